"""Observation of one slot, from request to end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquisition:
    """One slot from request to end; instants in seconds of any one clock, None: not reached."""

    site: str
    queue: str
    procs: int
    requested_s: float
    granted_s: float | None = None
    ready_s: float | None = None
    ended_s: float | None = None
    refused: bool = False
    broken: bool = False

    def check(self) -> None:
        """Check the order: requested, granted, ready, ended."""
        instants = [self.requested_s, self.granted_s, self.ready_s, self.ended_s]
        passed = [instant for instant in instants if instant is not None]
        if passed != sorted(passed):
            raise AssertionError(f"out of order: {self}")
