"""Processes of the service, forked from one that has all of planning loaded: a new one starts in
milliseconds."""

from __future__ import annotations

import os
from multiprocessing import forkserver, get_context

processes = get_context("forkserver")
processes.set_forkserver_preload(["vgrads.portal.jobs.preload"])
_SAFE_PATH, _OURS = "PYTHONSAFEPATH", "vgrads"


def begin() -> None:
    """Start the process that others are forked from: it loads in the background.

    It imports nothing from the working folder: ``PYTHONSAFEPATH``, since :mod:`multiprocessing`
    passes no ``-P``.
    """
    before = os.environ.setdefault(_SAFE_PATH, _OURS)
    try:
        forkserver.ensure_running()
    finally:
        if before == _OURS:
            del os.environ[_SAFE_PATH]


def clean_environment() -> None:
    """Remove, in a forked process, the variables set by :func:`begin`: they are not for tasks."""
    if os.environ.get(_SAFE_PATH) == _OURS:
        del os.environ[_SAFE_PATH]
