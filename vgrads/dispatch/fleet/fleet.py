"""The nodes of a dispatcher: requested and released as ``pool`` decides, through the drivers of the
sites.

A request is written to the journal before it is sent to a site, so that a later manager has it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from vgrads.dispatch.core.events import SlotChanged
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.explanation import find_unserved
from vgrads.dispatch.fleet.goal_fleet import GoalFleet, end_unpayable, explain_stuck
from vgrads.dispatch.fleet.site_view import (
    BusySince,
    FleetSite,
    LongestStay,
    SiteHealth,
    make_pool_view,
    make_supply_site,
)
from vgrads.dispatch.fleet.slots import FleetSlots, present, requested
from vgrads.dispatch.fleet.supply import Fits, Supply, SupplySite
from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.states import Event, SiteSilent, SlotUpdate
from vgrads.execmgr.sites import Sites
from vgrads.pool.view import PoolDecision

_MOST_REASONS = 50
_RESTART_S = 0.5
"""Longest pause before an agent is started anew that had joined, where that is only a process: a
task that ends its agent again and again is given up after some, and others wait for that."""


@dataclass
class Fleet:
    """Requests for nodes and their state. ``fits``: may a bag use a grid? Called with the grid's
    ad: ``Name``, ``Limit``, ``Free``, ``Queued``, ``Running`` (nodes), ``MeanWait`` (s),
    ``ErrorRate`` (of requests), ``Price``."""

    core: Core
    sites: Sites
    sources: Sequence[FleetSite]
    run: str
    pilot_environment: Callable[[str], Mapping[str, str]]
    fits: Fits = lambda bag, grid: True  # noqa: ARG005 any grid will do
    ad_hoc_agents: bool = False
    reasons: list[tuple[float, str, str]] = field(default_factory=list)
    _health: defaultdict[str, SiteHealth] = field(default_factory=partial(defaultdict, SiteHealth))
    _to_open: list[str] = field(default_factory=list)
    _to_close: list[str] = field(default_factory=list)
    _recovered: bool = False
    _busy: BusySince = field(default_factory=BusySince)
    _supply: Supply = field(default_factory=Supply)
    _grids: Sequence[SupplySite] = ()

    def __post_init__(self) -> None:
        self.slots = FleetSlots(self.core.state, self.sources, self.pilot_environment)
        self.goals = GoalFleet(self.core, self.ad_hoc_agents, sources=self.sources)

    def ask_at(self, sites: Sequence[FleetSite]) -> None:
        """Request nodes at these sites from now on."""
        self.sources = self.slots.sites = self.goals.sources = sites

    def decide(self, now_s: float) -> bool:
        """Compare work and nodes, and record the requests that follow; False if there are none."""
        return self.core.guarded(lambda: self._decide(now_s), now_s)

    def _decide(self, now_s: float) -> bool:
        self._busy.look(self.core.state.agents.values(), now_s)
        self._count_agents(now_s)
        moved, inventories = False, present(self.core.state, self.slots, now_s)
        grids = self._grids = [
            make_supply_site(where, inventories[where.name], self._health[where.name], now_s)
            for where in self.sources
        ]
        needs = self.goals.needs(self.sources, inventories, self._health, now_s)
        for bag_name, reason in needs.reasons:
            _add_reason(self.reasons, bag_name, reason, now_s)
        shares = self._supply.share(
            self.core.state.bags.values(),
            needs.others,
            grids,
            lambda bag, grid: self.goals.fits(bag, grid) and self.fits(bag, grid),
        )
        for where, share in zip(self.sources, shares, strict=True):
            health, inventory = self._health[where.name], inventories[where.name]
            work = needs.added(share, where, inventory)
            view = make_pool_view(where, work, inventory, health, self._busy, now_s)
            decision = needs.completed(where.decide(view), where, view, work.loads)
            stay = where.longest_stay(now_s, health.expected_s(where.boot_s))
            decision = _limit_decision(decision, health.closed(now_s), stay)
            self._note(stay.at(where), decision, now_s)
            moved = moved or bool(decision.open or decision.withdraw or decision.drain)
        for name in end_unpayable(self.core, self.goals, now_s):
            self.close(name, "the budget does not pay for it any longer")
        self._close_empty(now_s)
        return moved or bool(self._to_close)

    @property
    def coming(self) -> int:
        """Return the number of nodes that were requested and have not joined."""
        return sum(self.slots.missing(name, slot, 0.0) for name, slot in self.slots.open_slots())

    @property
    def expected_wait_s(self) -> float:
        """Return the expected wait for a node requested now, by the observations at the quickest
        site; before any has joined, its boot time."""
        waits = (self._health[p.name].expected_s(p.boot_s) for p in self.sources)
        return min(waits, default=0.0)

    def _note(self, where: FleetSite, decision: PoolDecision, now_s: float) -> None:
        for reason in decision.reasons:
            _add_reason(self.reasons, where.name, reason, now_s)
        most = max(0, where.requests - self.slots.occupied()[where.name]) if decision.open else 0
        for agents in _split(decision.open, where.widest)[:most]:
            # slots stay in the state for ever, so this name is a new one
            name = f"h{len(self.core.state.slots)}"
            self.core.note(requested(name, where, agents, now_s))
            self._to_open.append(name)
        for name in decision.withdraw:
            if not self.slots.came[name]:
                health, slot = self._health[where.name], self.core.state.slots[name]
                health.late_s = max(health.late_s, now_s - slot.requested_s)
                self.close(name, "no more work for it")
        for number in decision.drain:
            self.core.disconnect(self.core.state.agents[int(number)], "released")

    def close(self, name: str, why: str) -> None:
        """Release a request or a slot."""
        if not self.core.state.slots[name].closing:
            self.core.note(SlotChanged(id=name, closing=why))
            self._to_close.append(name)

    def _count_agents(self, now_s: float) -> None:
        """Count the agents of each slot that have joined so far."""
        self.slots.count()
        for name, slot in self.slots.open_slots():
            if name in self.slots.came and not slot.joined:
                self.core.note(SlotChanged(id=name, joined=True))
                self._health[slot.source].record_arrival(now_s - slot.requested_s)

    def _close_empty(self, now_s: float) -> None:
        """Release slots whose last agent left, and, after the boot time, those without agents."""
        here = {agent.slot for agent in self.core.state.agents.values() if agent.here}
        for name, slot in self.slots.open_slots():
            if name in here:
                continue
            if slot.joined and not self.slots.missing(name, slot, now_s):
                self.close(name, "its agents have left")
            elif (
                not slot.joined
                and slot.ready_s is not None
                and now_s - slot.ready_s > self.slots.boot_s(slot.source)
            ):
                _record_no_report(self._health[slot.source], self.slots.boot_s(slot.source), now_s)
                self.close(name, "its nodes did not report")

    # requests to the sites, in any one thread

    def carry_out(self) -> list[Event]:
        """Send the decided requests to the sites, and poll their states."""
        events: list[Event] = []
        # the first time after a start: slots of an earlier dispatcher may be held at their sites
        if not self._recovered:
            self._recovered = True
            # a copy: this is not the thread of the loop, which may
            # change the slots at the same time
            for name, slot in list(self.core.state.slots.items()):
                # slots of an earlier dispatcher: its request may or may not have reached the site
                if slot.occupied and name not in self._to_open:
                    events += self.sites.find(self.slots, name, SlotState(slot.state))
        opening, self._to_open = self._to_open, []
        closing, self._to_close = self._to_close, []
        for name in opening:
            events += self.sites.open(self.slots, name)
        for name in closing:
            events += self.sites.close(self.slots, name)
        return events + self.sites.news(self.slots)

    # observations, in the loop again

    def observe(self, events: Sequence[Event], now_s: float) -> None:
        """Apply the events reported by the sites."""
        for event in events:
            if isinstance(event, SiteSilent):
                for where in self.sources:
                    if where.site == event.site:
                        self._health[where.name].words = event.reason
            elif isinstance(event, SlotUpdate):
                self._slot_update(event, now_s)

    def _slot_update(self, event: SlotUpdate, now_s: float) -> None:
        changed = SlotChanged(
            id=event.slot,
            state=int(event.state),
            reason=event.reason,
            ready_s=now_s if event.state == SlotState.READY else None,
            ended=event.state.ended or None,
            ended_s=now_s if event.state.ended else None,
        )
        self.core.note(changed)
        self.goals.observe(self.core.state.slots[event.slot], event.state, now_s)
        if not event.state.ended:
            return
        slot = self.core.state.slots[event.slot]
        agents = [agent for agent in self.core.state.agents.values() if agent.slot == event.slot]
        for agent in agents:
            if agent.here:
                self.core.gone(agent, now_s, lost=event.state == SlotState.FAILED)
        if event.state == SlotState.FAILED and not slot.closing:
            self._health[slot.source].words = event.reason
            if not any(agent.done for agent in agents):  # else the slot may be replaced at once
                at_once = any(w.name == slot.source and w.starts_at_once for w in self.sources)
                most_s = _RESTART_S if at_once and slot.joined else math.inf
                self._health[slot.source].record_failure(now_s, event.permanent, most_s)

    @property
    def unserved(self) -> dict[int, str]:
        """Return bags (number) that dispatch policies exclude from all agents or grids, with the
        reason."""
        core, ads = self.core, [grid.ad for grid in self._grids]
        now_s = core.state.now_s
        return core.guarded(lambda: find_unserved(core, ads, now_s), now_s)

    @property
    def hopeless(self) -> str:
        """Return why no agent can join any more; empty while one can."""
        here = any(agent.here for agent in self.core.state.agents.values())
        if here or not self.sources or self.ad_hoc_agents:
            return ""
        abandoned = all(self._health[p.name].is_abandoned for p in self.sources)
        words = [f"{p.name}: {self._health[p.name].words}" for p in self.sources if abandoned]
        return explain_stuck(self.core, self.goals) or "; ".join(words)

    def wait_for_end(self) -> bool:
        """Release everything; return True when nothing is held any more."""
        occupied = [name for name, slot in self.core.state.slots.items() if slot.occupied]
        for name in occupied:
            self.close(name, "the work has ended")
        return not occupied


def _limit_decision(decision: PoolDecision, is_paused: bool, stay: LongestStay) -> PoolDecision:
    """Return a decision without requests where the site gets none now, with the reason if that is a
    closed window, or one that shortens them."""
    if not decision.open or not (is_paused or stay.reason):
        return decision
    if is_paused:
        return replace(decision, open=(), reasons=())
    if not stay.length_s:
        return replace(decision, open=(), reasons=(stay.reason,))
    return replace(decision, reasons=(*decision.reasons, stay.reason))


def _split(sizes: Sequence[int], widest: int) -> list[int]:
    """Split into requests as wide as a site accepts."""
    return [min(widest, size - begun) for size in sizes for begun in range(0, size, widest)]


def _add_reason(
    reasons: list[tuple[float, str, str]], name: str, reason: str, now_s: float
) -> None:
    if not reasons or reasons[-1][1:] != (name, reason):
        del reasons[:-_MOST_REASONS]
        reasons.append((now_s, name, reason))


def _record_no_report(health: SiteHealth, boot_s: float, now_s: float) -> None:
    health.words = (
        f"its nodes did not report within {boot_s:.0f} s: check that they can reach this machine, "
        "and set access.contact to the address under which they reach it"
    )
    health.record_failure(now_s, permanent=True)
