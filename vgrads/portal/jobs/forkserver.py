"""Processes of the service, forked from one that has all of planning loaded: a new one starts in
milliseconds."""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing import connection, forkserver, get_context, parent_process

processes = get_context("forkserver")
processes.set_forkserver_preload(["vgrads.portal.jobs.preload"])
_BACKGROUND = 10  # added to the nice value
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


def _clean_environment() -> None:
    """Remove, in a forked process, the variables set by :func:`begin`: they are not for tasks."""
    if os.environ.get(_SAFE_PATH) == _OURS:
        del os.environ[_SAFE_PATH]


def be_a_child() -> None:
    """Set up a process of the service: leave Ctrl-C to the service, end with it, and let its
    answers go before: what is planned, run and dispatched here has a lower priority."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _clean_environment()
    os.nice(_BACKGROUND)
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # wakes without preempting
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
