"""Exceptions raised while one bag is served: they fail that bag only."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vgrads.kernel.errors import VgradsError


class BagFault(Exception):
    """``bag``: the number of the bag that was served; ``reason``: the message for its owner."""

    def __init__(self, bag: int, reason: str) -> None:
        super().__init__(bag, reason)
        self.bag, self.reason = bag, reason


@contextmanager
def serving(bag: int) -> Iterator[None]:
    """Convert any exception inside to a BagFault of this bag."""
    try:
        yield
    except BagFault:
        raise
    except Exception as error:
        raise BagFault(bag, reason_of(error)) from error


def fault_in(bag: int, work: Callable[[], None]) -> BagFault | None:
    """Run work on the files of a bag; return its fault. Raise OSError where the disk is full, which
    is no bag's fault."""
    try:
        work()
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        fault = BagFault(bag, reason_of(error))
        fault.__cause__ = error
        return fault
    return None


def reason_of(error: Exception) -> str:
    """Return an exception as one line: errors of vgrads and of the system include advice, others
    are internal errors."""
    if isinstance(error, VgradsError | OSError):
        return f"it cannot be served: {error}"
    return f"internal error of vgrads: {type(error).__name__}: {error}"
