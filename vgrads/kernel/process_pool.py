"""Pools of processes that end at once when their work is no longer needed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager


@contextmanager
def process_pool(workers: int | None = None) -> Iterator[ProcessPoolExecutor]:
    """Provide a pool of processes, by default as many as there are cores. Unlike at the end of
    Python's own, an interrupt or an error ends its processes without waiting for their work."""
    pool = ProcessPoolExecutor(workers)
    try:
        yield pool
    except BaseException:
        end_pool(pool)
        raise
    pool.shutdown()


def end_pool(pool: ProcessPoolExecutor) -> None:
    """Terminate a pool at once, without waiting for its work."""
    for process in list(pool._processes.values()):  # there is no public method to terminate them
        process.terminate()
    # one that was writing its result leaves a part of it; the rest would be awaited for ever while
    # this process could still write it
    pool._result_queue._writer.close()  # type: ignore[attr-defined]
    pool.shutdown(wait=True, cancel_futures=True)
