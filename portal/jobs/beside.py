"""Processes beside the service. They are forked off one that has all of planning loaded: a new one is there in milliseconds."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import forkserver, get_context

processes = get_context("forkserver")
processes.set_forkserver_preload(["portal.jobs.worker"])


def begin() -> None:
    """Start the process that others are forked off: it loads while this one does other things."""
    forkserver.ensure_running()


def end(pool: ProcessPoolExecutor) -> None:
    """End a pool now, whatever it is at: nothing in it is worth waiting for."""
    for process in list(pool._processes.values()):  # no public way ends them
        process.terminate()
    pool.shutdown(wait=True, cancel_futures=True)
