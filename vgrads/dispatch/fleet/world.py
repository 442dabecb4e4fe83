"""A dispatcher in virtual time: the same core and the same fleet, over simulated sites and
simulated hosts.

A host comes for each node of a slot that is ready, and ends with the slot. The fleet looks around
each second of virtual time while there is something to decide; while all hosts are busy or nothing
has come, time jumps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vgrads.dispatch.core.step import Core
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.fleet.virtual import VirtualHosts
from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.states import Event, SlotNews
from vgrads.execmgr.sites import Sites
from vgrads.kernel.clock import SimClock

LOOK_S = 1.0


@dataclass
class World:
    """``control``: called at each look, to hand over bags and wishes; True when nothing is to do.
    ``looked``: called after it. ``steady``: look also while all hosts are busy, for deciders that
    watch the clock."""

    core: Core
    fleet: Fleet
    sites: Sites
    hosts: VirtualHosts
    clock: SimClock
    control: Callable[[], bool]
    looked: Callable[[], None] = lambda: None
    steady: bool = False
    _granted_s: dict[str, float] = field(default_factory=dict)
    _over: bool = False

    def run(self) -> str:
        """Until nothing is to do and everything is given back; why it ended before, empty where it
        did not."""
        self.hosts.at(self.clock.now(), self._look)
        self.hosts.run(over=lambda: self._over)
        hopeless = self.fleet.hopeless
        self._give_back()
        return hopeless

    def _look(self) -> None:
        now = self.hosts.now_s
        self.clock.advance_to(now)
        if self.control() or self.fleet.hopeless:
            self._over = True
            return
        moved = self.fleet.decide(now)
        events = self.fleet.carry_out()
        self.fleet.heard(events, now)
        self._take_over(events)
        if moved or events:
            self.hosts.push()
        self.looked()
        self.hosts.at(self._next_s(now, moved or bool(events)), self._look)

    def _next_s(self, now: float, moved: bool) -> float:
        """A look later; at what happens next where until then there is nothing to decide."""
        soon_s = now + LOOK_S
        here = [host for host in self.core.state.hosts.values() if host.here]
        coming_s = self.sites.wake_at(self.fleet.slots)
        if (
            moved
            or (here and self.steady)
            or any(not host.held for host in here)
            or (not here and coming_s == float("inf"))
        ):
            return max(min(soon_s, coming_s), now + 1e-6)
        return max(min(coming_s, max(soon_s, self.hosts.next_s)), now + 1e-6)

    def _take_over(self, events: Sequence[Event]) -> None:
        """Hosts come with slots that are ready, and go with those that have ended."""
        for event in events:
            if not isinstance(event, SlotNews):
                continue
            if event.state == SlotState.GRANTED:
                self._granted_s[event.slot] = event.at_s
            elif event.state == SlotState.READY:
                self._come(event.slot, self._granted_s.get(event.slot, event.at_s))
            elif event.state.ended:
                for host in [h for h in self.hosts.hosts.values() if h.slot == event.slot]:
                    self.hosts.leave(host.id, lost=True)
                    del self.hosts.hosts[host.id]

    def _come(self, slot: str, granted_s: float) -> None:
        asked = self.core.state.slots[slot]
        place = next(p for p in self.fleet.places if p.site == asked.site)
        for node in range(asked.hosts):
            self.hosts.join(
                f"{slot}.{node}", slot, place.procs, granted_s + place.longest_s, site=place.site
            )

    def _give_back(self) -> None:
        """Hosts go, then their slots; simulated sites answer at once."""
        now = self.clock.now()
        for host in self.core.state.hosts.values():
            if host.here:
                self.core.gone(host, now, lost=False)
        while not self.fleet.wait_for_end():
            self.fleet.heard(self.fleet.carry_out(), now)
