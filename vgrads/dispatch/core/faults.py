"""Exceptions that are raised while one bag is served: they fail that bag, and no other."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vgrads.kernel.errors import VgradsError


class BagFault(Exception):
    """``bag``: the number of the bag that was served; ``reason``: what its owner is shown."""

    def __init__(self, bag: int, reason: str) -> None:
        super().__init__(bag, reason)
        self.bag, self.reason = bag, reason


@contextmanager
def serving(bag: int) -> Iterator[None]:
    """Any exception within is a BagFault of this bag."""
    try:
        yield
    except BagFault:
        raise
    except Exception as error:
        raise BagFault(bag, reason_of(error)) from error


def fault_in(bag: int, work: Callable[[], None]) -> BagFault | None:
    """Work on the files of a bag; what was wrong with it. OSError where the disk is full, which is
    no bag's fault."""
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
    """An exception in a line: errors of ours and of the system say what to do, others are faults of
    vgrads."""
    if isinstance(error, VgradsError | OSError):
        return f"it cannot be served: {error}"
    return f"a fault of vgrads while it was served: {type(error).__name__}: {error}"
