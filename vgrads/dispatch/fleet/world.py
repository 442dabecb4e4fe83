"""A dispatcher in virtual time: the same core and the same fleet, over simulated sites and
simulated agents.

An agent joins for each node of a ready slot, and ends with the slot. The fleet is checked each
second of virtual time while decisions are due; while all agents are busy or none has joined, time
jumps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vgrads.dispatch.core.step import Core
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.fleet.virtual import VirtualAgents
from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.states import Event, SlotUpdate
from vgrads.execmgr.sites import Sites
from vgrads.kernel.clock import SimClock

LOOK_S = 1.0


@dataclass
class World:
    """``control``: called at each check, to submit bags and requests; True when no work is left.
    ``looked``: called after it. ``steady_s``: check also while all agents are busy, each so many
    seconds, for deciders that depend on time."""

    core: Core
    fleet: Fleet
    sites: Sites
    agents: VirtualAgents
    clock: SimClock
    control: Callable[[], bool]
    looked: Callable[[], None] = lambda: None
    steady_s: float = float("inf")
    _granted_s: dict[str, float] = field(default_factory=dict)
    _over: bool = False

    def run(self) -> str:
        """Run until no work is left and everything is released; return why it ended early, empty
        where it did not."""
        self.agents.at(self.clock.now(), self._look)
        self.agents.run(over=lambda: self._over)
        hopeless = self.fleet.hopeless
        self._give_back()
        return hopeless

    def _look(self) -> None:
        now = self.agents.now_s
        self.clock.advance_to(now)
        if self.control() or self.fleet.hopeless:
            self._over = True
            return
        moved = self.fleet.decide(now)
        events = self.fleet.carry_out()
        self.fleet.observe(events, now)
        self._take_over(events)
        if moved or events:
            self.agents.push()
        self.looked()
        self.agents.at(self._next_s(now, moved or bool(events)), self._look)

    def _next_s(self, now: float, moved: bool) -> float:
        """Return the time of the next check; of the next event where no decision is due before."""
        soon_s = max(now + LOOK_S, self._opens_s(now))
        here = [agent for agent in self.core.state.agents.values() if agent.here]
        coming_s = self.sites.wake_at(self.fleet.slots)
        if (
            moved
            or any(not agent.assigned for agent in here)
            or (not here and coming_s == float("inf"))
        ):
            # later than now, since time would not advance otherwise
            return max(min(soon_s, coming_s), now + 1e-6)
        jump_s = max(soon_s, min(self.agents.next_s, now + self.steady_s))
        return max(min(coming_s, jump_s), now + 1e-6)

    def _opens_s(self, now: float) -> float:
        """Return when the first site opens, while all are closed and nothing is held."""
        if self.fleet.slots.open_slots():
            return 0.0
        stays = (where.longest_stay(now, 0.0) for where in self.fleet.sources)
        return min((stay.opens_s for stay in stays), default=0.0)

    def _take_over(self, events: Sequence[Event]) -> None:
        """Add agents for ready slots, and remove those of ended ones."""
        for event in events:
            if not isinstance(event, SlotUpdate):
                continue
            if event.state == SlotState.GRANTED:
                self._granted_s[event.slot] = event.at_s
            elif event.state == SlotState.READY:
                self._come(event.slot, self._granted_s.get(event.slot, event.at_s))
            elif event.state.ended:
                for agent in [h for h in self.agents.agents.values() if h.slot == event.slot]:
                    self.agents.leave(agent.id, lost=True)
                    del self.agents.agents[agent.id]

    def _come(self, slot: str, granted_s: float) -> None:
        request = self.core.state.slots[slot]
        site = self.fleet.slots.place_of(request.source)
        end_s = granted_s + self.fleet.slots.length_s(slot)
        for node in range(request.agents):
            self.agents.join(f"{slot}.{node}", slot, site.procs, end_s, site=site.site)

    def _give_back(self) -> None:
        """Release agents, then their slots; simulated sites answer at once."""
        now = self.clock.now()
        for agent in self.core.state.agents.values():
            if agent.here:
                self.core.gone(agent, now, lost=False)
        while not self.fleet.wait_for_end():
            self.fleet.observe(self.fleet.carry_out(), now)
