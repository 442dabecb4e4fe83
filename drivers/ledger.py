"""The states of a driver's slots: forward only, with the instant and the reason of the last
step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from vgrads.drivers.api import SlotState, SlotStatus
from vgrads.kernel.clock import Clock


class SlotLedger:
    """States by slot id; steps backwards are dropped as late news."""

    def __init__(self) -> None:
        self._status: dict[str, SlotStatus] = {}

    def __contains__(self, slot: str) -> bool:
        return slot in self._status

    def move(
        self, slot: str, state: SlotState, at_s: float, reason: str = "", permanent: bool = False
    ) -> bool:
        """Record a step; False where the slot has ended or is already further."""
        known = self._status.get(slot)
        if known is not None and (known.state.ended or state <= known.state):
            return False
        self._status[slot] = SlotStatus(
            id=slot, state=state, since_s=at_s, reason=reason, permanent=permanent
        )
        return True

    def forget(self, slot: str) -> None:
        """As if the slot had never been asked for: the request did not arrive, as far as is
        known."""
        self._status.pop(slot, None)

    def state(self, slot: str) -> SlotState | None:
        """The state of a slot, None if it was never seen."""
        known = self._status.get(slot)
        return known.state if known else None

    def status(self, slots: Sequence[str], now_s: float) -> list[SlotStatus]:
        """The status of each; an unknown id has failed."""
        lost = SlotState.FAILED
        return [
            self._status.get(
                s, SlotStatus(id=s, state=lost, since_s=now_s, reason="unknown to the site")
            )
            for s in slots
        ]

    def open_slots(self) -> list[str]:
        """Slots that have not ended."""
        return [slot for slot, status in self._status.items() if not status.state.ended]


class LedgerDriver(ABC):
    """What drivers of real sites have in common: a ledger, a clock, and no idea when news will
    come."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ledger = SlotLedger()

    @abstractmethod
    def cancel(self, slot: str) -> None:
        """Give a slot back."""

    def wake_at(self) -> float:
        """A real site cannot know."""
        return float("inf")

    def close(self) -> None:
        """Give back everything that is still held."""
        for slot in self._ledger.open_slots():
            self.cancel(slot)

    def _ended(self, slot: str) -> bool:
        state = self._ledger.state(slot)
        return state is not None and state.ended
