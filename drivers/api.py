"""What every driver does: submit a slot request, say how many of them stand, cancel.

Nothing waits in here. Whoever owns the loop asks, one call for all slots of a site. In virtual time
:meth:`Driver.wake_at` tells when asking again can bring news; a real site cannot know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

SPOT = "spot"
"""The queue of a slot that is asked for on a cloud's spot market."""


class SlotState(IntEnum):
    """Ordered: a slot never goes back, so late news is recognised by its rank.

    The last three end a slot: given back, lost before its end, or run to its end.
    """

    REQUESTED = 0
    QUEUED = 1
    GRANTED = 2
    READY = 3
    RELEASED = 4
    FAILED = 5
    EXPIRED = 6

    @property
    def ended(self) -> bool:
        """True for a slot that can take no task any more."""
        return self >= SlotState.RELEASED


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSpec:
    """What is asked of a site: ``procs`` processors for ``duration_s``, under an id of ours.

    Submitting the same id again asks for nothing more. ``name`` is the slot's name within its run:
    what a person reads, and what a simulated site draws the slot's fate from.
    """

    id: str
    name: str
    site: str
    queue: str
    procs: int
    duration_s: float
    nodes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotStatus:
    """How a slot stands, since when, and why if it went wrong."""

    id: str
    state: SlotState
    since_s: float
    reason: str = ""


class Driver(Protocol):
    """Three verbs. Errors are :class:`kernel.errors.SiteError`, transient or not."""

    def submit(self, spec: SlotSpec) -> None:
        """Ask for a slot."""

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        """How these slots stand now; unknown ids are FAILED."""

    def cancel(self, slot: str) -> None:
        """Give a slot back, whatever its state; unknown or ended ones are no error."""

    def wake_at(self) -> float:
        """When news can be expected in virtual time; ``inf`` where nothing is due or knowable."""

    def close(self) -> None:
        """Give back everything that is still held."""
