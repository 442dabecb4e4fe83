"""Readiness of pilots: a slot whose job runs is ready when its pilot accepts tasks; one whose pilot
never reports has failed permanently. The pilot of a released slot ends by itself, if it can."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from vgrads.drivers.api import SlotState, SlotStatus
from vgrads.execmgr.core.states import SlotUpdate
from vgrads.execmgr.pilots import SitePolling
from vgrads.kernel.clock import Clock

_ENDS_WITHIN_S = 10.0
"""Time for a pilot to end by itself; then its slot is cancelled."""


class PilotReports:
    """Slots whose pilots have not reported, and since when; and those whose pilots were told to
    end, and until when they may."""

    def __init__(self, clock: Clock, polling: Mapping[str, SitePolling]) -> None:
        self._clock, self._polling = clock, polling
        self._unheard: dict[str, float] = {}
        self._ending: dict[str, float] = {}

    def is_ending(self, site: str, slot: str, state: SlotState | None) -> bool:
        """Tell the pilot of a ready slot to end by itself; return True while it may do so. The
        job then exits with 0 instead of being cancelled at the site."""
        polling = self._polling.get(site)
        if polling is None or polling.dismiss is None or state != SlotState.READY:
            return False
        now = self._clock.now()
        if slot not in self._ending:
            if not polling.dismiss(slot):
                return False
            self._ending[slot] = now + _ENDS_WITHIN_S
        return now < self._ending[slot]

    def ready(
        self, slots: Iterable[str], states: Mapping[str, SlotState], place: Callable[[str], str]
    ) -> list[SlotUpdate]:
        """Return those of these slots whose pilots accept tasks before their sites, which are
        polled, report them as ready; ``place``: the site of a slot."""
        ready = []
        for slot in slots:
            polling = self._polling.get(place(slot)) if states[slot] < SlotState.READY else None
            if polling is not None and polling.reports is not None and polling.reports(slot):
                self._begin_anew(slot)
                now = self._clock.now()
                ready.append(SlotUpdate(at_s=now, slot=slot, state=SlotState.READY))
        return ready

    def confirmed(self, site: str, slot: str, status: SlotStatus) -> SlotStatus:
        """Return the status of a slot that its site reports as ready for the first time: granted
        until its pilot reports, failed if it has not reported for too long."""
        polling = self._polling.get(site)
        if polling is None or polling.reports is None or polling.reports(slot):
            self._begin_anew(slot)
            return status
        now = self._clock.now()
        since_s = self._unheard.setdefault(slot, now)
        if now < since_s + polling.patience_s:
            return replace(status, state=SlotState.GRANTED)
        words = (
            f"its pilot runs but has not reported here for {polling.patience_s:.0f} s: check that "
            "it can reach this machine, and set "
            "access.contact to the address under which slots reach it"
        )
        return replace(status, state=SlotState.FAILED, reason=words, permanent=True)

    def _begin_anew(self, slot: str) -> None:
        """The same slot may be requested again, and then has all its time."""
        self._unheard.pop(slot, None)
        self._ending.pop(slot, None)
