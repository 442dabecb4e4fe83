"""A slot whose job runs is ready when its pilot can be given tasks too; one whose pilot never
reports has failed for good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vgrads.drivers.api import SlotState, SlotStatus
from vgrads.execmgr.engines.base import Reach
from vgrads.kernel.clock import Clock


class PilotReports:
    """Which slots have pilots that have not reported, since when."""

    def __init__(self, clock: Clock, reach: Mapping[str, Reach]) -> None:
        self._clock, self._reach = clock, reach
        self._unheard: dict[str, float] = {}

    def confirmed(self, site: str, slot: str, status: SlotStatus) -> SlotStatus:
        """What a site tells of a slot that is ready for the first time: granted until its pilot
        reports, failed where it has not for too long."""
        reach = self._reach.get(site)
        if reach is None or reach.reports is None or reach.reports(slot):
            self._unheard.pop(slot, None)
            return status
        now = self._clock.now()
        since_s = self._unheard.setdefault(slot, now)
        if now < since_s + reach.patience_s:
            return replace(status, state=SlotState.GRANTED)
        words = (
            f"its pilot runs and has not reported here for {reach.patience_s:.0f} s: can "
            "it reach this machine? "
            "access.contact names the address under which slots find it"
        )
        return replace(status, state=SlotState.FAILED, reason=words, permanent=True)
