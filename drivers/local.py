"""Cores of this machine as slots: granted at once while cores are left, until their time is up."""

from __future__ import annotations

from collections.abc import Sequence

from drivers.api import SlotSpec, SlotState, SlotStatus
from drivers.ledger import SlotLedger
from kernel.clock import Clock


class LocalDriver:
    """``procs`` cores, counted; nothing is pinned. The engine runs the processes."""

    def __init__(self, procs: int, clock: Clock) -> None:
        self.procs = procs
        self._clock = clock
        self._ledger = SlotLedger()
        self._held: dict[str, tuple[int, float]] = {}  # slot → (cores, end)

    def submit(self, spec: SlotSpec) -> None:
        if spec.id in self._ledger:
            return
        self._expire()
        now = self._clock.now()
        if spec.procs > self.procs - sum(cores for cores, _ in self._held.values()):
            self._ledger.move(
                spec.id,
                SlotState.FAILED,
                now,
                f"fewer than {spec.procs} of {self.procs} cores are free",
            )
            return
        self._held[spec.id] = (spec.procs, now + spec.duration_s)
        self._ledger.move(spec.id, SlotState.READY, now)

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        self._expire()
        return self._ledger.status(slots, self._clock.now())

    def cancel(self, slot: str) -> None:
        if self._held.pop(slot, None):
            self._ledger.move(slot, SlotState.RELEASED, self._clock.now(), "released")

    def wake_at(self) -> float:
        return min((end for _, end in self._held.values()), default=float("inf"))

    def close(self) -> None:
        for slot in list(self._held):
            self.cancel(slot)

    def _expire(self) -> None:
        now = self._clock.now()
        for slot in [s for s, (_, end) in self._held.items() if end <= now]:
            del self._held[slot]
            self._ledger.move(slot, SlotState.EXPIRED, now, "reached its end")
