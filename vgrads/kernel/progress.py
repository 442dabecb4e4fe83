"""Progress of a long computation: reported where the work is done, received by its caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PhaseProgress:
    """The current phase in words, and its completed part: ``done`` of ``total`` items; ``total=0``:
    their number is not known in advance."""

    phase: str
    done: int = 0
    total: int = 0


Receiver = Callable[[PhaseProgress], None]
_receiver: ContextVar[Receiver | None] = ContextVar("receiver", default=None)


def report_progress(phase: str, done: int = 0, total: int = 0) -> None:
    """Report the current phase to the receiver of this context; without one, do nothing."""
    receiver = _receiver.get()
    if receiver is not None:
        receiver(PhaseProgress(phase, done, total))


@contextmanager
def send_progress(receiver: Receiver | None) -> Iterator[None]:
    """Send all reports within the block to this receiver; ``None``: to nobody."""
    before = _receiver.set(receiver)
    try:
        yield
    finally:
        _receiver.reset(before)
