"""States of a driver's slots: they only increase, with the instant and the reason of the last
transition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from vgrads.drivers.api import SlotState, SlotStatus
from vgrads.kernel.clock import Clock


class SlotLedger:
    """States by slot id; transitions to a lower state are ignored as late."""

    def __init__(self) -> None:
        self._status: dict[str, SlotStatus] = {}

    def __contains__(self, slot: str) -> bool:
        return slot in self._status

    def move(
        self, slot: str, state: SlotState, at_s: float, reason: str = "", permanent: bool = False
    ) -> bool:
        """Record a transition; return False if the slot is terminal or already further. A
        transition without a reason keeps that of an open slot, which names its job: the state that
        had it may have passed between two polls."""
        status = self._status.get(slot)
        if status is not None and (status.state.ended or state <= status.state):
            return False
        if status is not None and not state.ended:
            reason = reason or status.reason
        self._status[slot] = SlotStatus(
            id=slot, state=state, since_s=at_s, reason=reason, permanent=permanent
        )
        return True

    def forget(self, slot: str) -> None:
        """Remove a slot whose request did not arrive, as far as is known."""
        self._status.pop(slot, None)

    def state(self, slot: str) -> SlotState | None:
        """Return the state of a slot; None if it is unknown."""
        status = self._status.get(slot)
        return status.state if status else None

    def status(self, slots: Sequence[str], now_s: float) -> list[SlotStatus]:
        """Return the status of each; an unknown id is FAILED."""
        lost = SlotState.FAILED
        return [
            self._status.get(
                s, SlotStatus(id=s, state=lost, since_s=now_s, reason="unknown to the site")
            )
            for s in slots
        ]

    def open_slots(self) -> list[str]:
        """Return the slots that are not terminal."""
        return [slot for slot, status in self._status.items() if not status.state.ended]


class LedgerDriver(ABC):
    """Base of drivers of real sites: a ledger, a clock, no predictable changes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ledger = SlotLedger()

    @abstractmethod
    def cancel(self, slot: str) -> None:
        """Release a slot."""

    def wake_at(self) -> float:
        """Return ``inf``: not known at a real site."""
        return float("inf")

    def close(self) -> None:
        """Release all open slots."""
        for slot in self._ledger.open_slots():
            self.cancel(slot)

    def _ended(self, slot: str) -> bool:
        state = self._ledger.state(slot)
        return state is not None and state.ended
