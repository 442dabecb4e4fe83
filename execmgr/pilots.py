"""The programs by which engines reach slots, and how a run treats the sites that start them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


def _no_variables(_slot: str, _name: str) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """The program that must run in a slot so that an engine can reach it.

    ``of_slot``: further variables, of a slot with this name at its site.
    """

    command: str
    environment: Mapping[str, str]
    of_slot: Callable[[str, str], Mapping[str, str]] = _no_variables


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePolling:
    """Treatment of a site by a run, in addition to its driver: polling interval, and pilot of its
    slots.

    ``reports``: whether the pilot of a slot accepts tasks; ``patience_s``: how long the pilot may
    take to start after its site reports the slot as ready. ``dismiss``: tells the pilot of a slot
    to end by itself, so that its job exits with 0; False where it cannot be told.
    """

    poll_s: float = 0.0
    pilot: Callable[[], Pilot] | None = None
    reports: Callable[[str], bool] | None = None
    patience_s: float = 180.0
    dismiss: Callable[[str], bool] | None = None

    def new_pilot(self) -> Pilot | None:
        """Return the pilot of a slot that is requested now; None for a site without pilots."""
        return self.pilot() if self.pilot else None
