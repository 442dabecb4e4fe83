"""A site that states closed windows: no slot is submitted so that it could run into one.

A batch system may know nothing of a window. So a job that would cross it is held back until its
end, and one that waits so long that it would cross is withdrawn; a slot that is granted at once
ends with the time that is left, or is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vgrads.drivers.api import Driver, SlotSpec, SlotState, SlotStatus
from vgrads.kernel.clock import Clock
from vgrads.vgrid.catalog import Site
from vgrads.vgrid.closures import Availability, find_availability

_ROUNDED_S = 90.0  # by which batch systems and their drivers lengthen a wall time
_LEAST_S = 60.0  # that a slot must last


class ClosedSite:
    """Driver of a site with closed windows, around its own. ``zero_s``: the zero of the run's clock
    in seconds since 1970."""

    def __init__(self, driver: Driver, site: Site, clock: Clock, zero_s: float) -> None:
        self.driver = driver
        self._site, self._clock, self._zero_s = site, clock, zero_s
        self._latest_s: dict[str, tuple[float, str]] = {}  # after which a slot is not to start
        self._shortened: dict[str, str] = {}
        self._ended: dict[str, SlotStatus] = {}

    def submit(self, spec: SlotSpec) -> None:
        """Submit a slot request, at a time and for a time that cross no window."""
        # a resumed run requests its slots again: one that was refused or withdrawn stays so
        if spec.id in self._ended:
            return
        now_s = self._clock.now()
        queue = spec.queue if self._site.queues else ""
        availability = find_availability(self._site, queue, self._zero_s + now_s)
        if self._site.kind == "batch":
            timed = self._delayed(spec, availability, now_s)
        else:
            timed = self._cut(spec, availability)
        if timed is not None:
            self.driver.submit(timed)

    def _delayed(self, spec: SlotSpec, availability: Availability, now_s: float) -> SlotSpec | None:
        """Return the request of a job that starts before no window that it would run into."""
        begin_s = max(now_s, spec.begin_s or 0.0)
        for first_s, last_s in availability.no_starts(spec.procs, spec.duration_s + _ROUNDED_S):
            if now_s + last_s <= begin_s:
                continue
            # it would start where it may not: it begins after that time
            if begin_s > now_s + first_s:
                begin_s = now_s + last_s
                continue
            end_s = now_s + first_s + spec.duration_s + _ROUNDED_S
            closures = availability.closed_to(spec.procs)
            next_s = self._zero_s + now_s + first_s  # the window that it must end before is later
            words = next(availability.name(c) for c in closures if c.begin_s >= next_s)
            self._latest_s[spec.id] = now_s + first_s, words
            end_s = min(end_s, spec.end_by_s or end_s)
            return replace(spec, begin_s=_begin_later(begin_s, now_s, spec), end_by_s=end_s)
        if begin_s == float("inf"):
            words = availability.describe(availability.closed_to(spec.procs)[0])
            self._fail(spec.id, f"never fits: {words}", permanent=True)
            return None
        return replace(spec, begin_s=_begin_later(begin_s, now_s, spec))

    def _cut(self, spec: SlotSpec, availability: Availability) -> SlotSpec | None:
        """Return the request of a slot that is granted at once, no longer than until a window."""
        closures = availability.closed_to(spec.procs)
        left_s = min((c.begin_s - availability.now_s for c in closures), default=spec.duration_s)
        if left_s >= spec.duration_s:
            return spec
        words = availability.describe(closures[0])
        if left_s < _LEAST_S:
            self._fail(spec.id, words)
            return None
        self._shortened[spec.id] = words
        return replace(spec, duration_s=left_s)

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        """Return the states of slots; those that wait too long for a start before a window are
        withdrawn."""
        others = [slot for slot in slots if slot not in self._ended]
        states = dict(zip(others, self.driver.status(others), strict=True)) if others else {}
        for slot, status in states.items():
            latest_s, words = self._latest_s.get(slot, (float("inf"), ""))
            # it has started, so no window is left that it could run into
            if status.state >= SlotState.GRANTED:
                self._latest_s.pop(slot, None)
            elif self._clock.now() >= latest_s:
                self.driver.cancel(slot)
                self._fail(slot, f"did not start early enough before {words}")
            if status.state == SlotState.EXPIRED and slot in self._shortened:
                states[slot] = replace(status, reason=f"{status.reason}: {self._shortened[slot]}")
        return [self._ended.get(slot) or states[slot] for slot in slots]

    def _fail(self, slot: str, reason: str, permanent: bool = False) -> None:
        self._latest_s.pop(slot, None)
        self._ended[slot] = SlotStatus(
            id=slot,
            state=SlotState.FAILED,
            since_s=self._clock.now(),
            reason=reason,
            permanent=permanent,
        )

    def cancel(self, slot: str) -> None:
        """Release a slot in any state."""
        self._latest_s.pop(slot, None)
        if slot not in self._ended:
            self.driver.cancel(slot)

    def wake_at(self) -> float:
        """Return when the next change is due in virtual time, a withdrawal included."""
        latest_s = (latest_s for latest_s, _ in self._latest_s.values())
        return min([self.driver.wake_at(), *latest_s])

    def close(self) -> None:
        """Release all slots of this driver."""
        self.driver.close()


def _begin_later(begin_s: float, now_s: float, spec: SlotSpec) -> float | None:
    return begin_s if begin_s > now_s else spec.begin_s
