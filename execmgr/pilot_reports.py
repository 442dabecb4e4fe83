"""Readiness of pilots: a slot whose job runs is ready when its pilot accepts tasks; one whose pilot
never reports has failed permanently."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from vgrads.drivers.api import SlotState, SlotStatus
from vgrads.execmgr.core.states import SlotUpdate
from vgrads.execmgr.engines.base import SitePolling
from vgrads.kernel.clock import Clock


class PilotReports:
    """Slots whose pilots have not reported, and since when."""

    def __init__(self, clock: Clock, polling: Mapping[str, SitePolling]) -> None:
        self._clock, self._polling = clock, polling
        self._unheard: dict[str, float] = {}

    def ready(
        self, slots: Iterable[str], states: Mapping[str, SlotState], place: Callable[[str], str]
    ) -> list[SlotUpdate]:
        """Return those of these slots whose pilots accept tasks before their sites, which are
        polled, report them as ready; ``place``: the site of a slot."""
        ready = []
        for slot in slots:
            polling = self._polling.get(place(slot)) if states[slot] < SlotState.READY else None
            if polling is not None and polling.reports is not None and polling.reports(slot):
                # the same slot may be requested again, and then waits from the beginning
                self._unheard.pop(slot, None)
                now = self._clock.now()
                ready.append(SlotUpdate(at_s=now, slot=slot, state=SlotState.READY))
        return ready

    def confirmed(self, site: str, slot: str, status: SlotStatus) -> SlotStatus:
        """Return the status of a slot that its site reports as ready for the first time: granted
        until its pilot reports, failed if it has not reported for too long."""
        polling = self._polling.get(site)
        if polling is None or polling.reports is None:
            self._unheard.pop(slot, None)
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
