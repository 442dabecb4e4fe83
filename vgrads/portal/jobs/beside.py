"""Processes beside the service. They are forked off one that has all of planning loaded: a new one
is there in milliseconds."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import forkserver, get_context

processes = get_context("forkserver")
processes.set_forkserver_preload(["vgrads.portal.jobs.worker"])
_SAFE_PATH, _OURS = "PYTHONSAFEPATH", "vgrads"


def begin() -> None:
    """Start the process that others are forked off: it loads while this one does other things.

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
    """In a process that was forked off: what :func:`begin` set is not for tasks."""
    if os.environ.get(_SAFE_PATH) == _OURS:
        del os.environ[_SAFE_PATH]


def end(pool: ProcessPoolExecutor) -> None:
    """End a pool now, whatever it is at: nothing in it is worth waiting for."""
    for process in list(pool._processes.values()):  # no public way ends them
        process.terminate()
    pool.shutdown(wait=True, cancel_futures=True)
