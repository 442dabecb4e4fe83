"""Whether this process compiles functions now, and the processor time that this has taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_announce: list[Callable[[bool], None]] = []


@contextmanager
def announce_compilation(announce: Callable[[bool], None]) -> Iterator[None]:
    """Call ``announce(True)`` before anything is compiled within the block, ``announce(False)``
    after it; the thread may be another."""
    _announce.append(announce)
    try:
        yield
    finally:
        _announce.remove(announce)


@contextmanager
def compilation() -> Iterator[None]:
    """Announce that the block compiles a function."""
    for announce in tuple(_announce):
        announce(True)
    try:
        yield
    finally:
        for announce in tuple(_announce):
            announce(False)


_prepared_s = 0.0  # processor time of this process for loading and compiling


@contextmanager
def preparation() -> Iterator[None]:
    """Count the processor time of the block as spent on loading or compiling functions."""
    global _prepared_s  # noqa: PLW0603 as the time of the process itself
    start_s = time.process_time()
    try:
        yield
    finally:
        _prepared_s += time.process_time() - start_s


def working_time_s() -> float:
    """Return the processor time of this process (s) without what loading and compiling functions
    took: only the first search on a machine would end early by that."""
    return time.process_time() - _prepared_s
