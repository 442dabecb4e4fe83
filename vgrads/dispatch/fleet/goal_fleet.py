"""The bags with goals of a dispatcher: what they need of each source, and which nodes they no
longer need."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from vgrads.agent.lifetime import TAKEN_BACK
from vgrads.bags.bag import BagGoal
from vgrads.dispatch.core.state import BagState, SlotRequest, State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.tasks import ASSIGNED
from vgrads.dispatch.fleet.budget import RELEASE_S, divide_costs, find_unpayable, list_paid_slots
from vgrads.dispatch.fleet.goal_view import (
    LOOK_S,
    GoalDecision,
    GoalView,
    count_goal_progress,
    count_joint_nodes,
    make_view,
    share_sites,
)
from vgrads.dispatch.fleet.site_view import FleetSite, SiteHealth, SiteInventory
from vgrads.dispatch.fleet.supply import SiteDemand
from vgrads.drivers.api import SlotState
from vgrads.kernel.units import billed_s, format_count
from vgrads.pool.view import NodeView, PoolDecision, PoolView, merge_decisions

if TYPE_CHECKING:
    from vgrads.dispatch.fleet.goals import GoalControl

_MOST_RECORDED = 400
_BOUNDARY_S = 60.0
"""Nodes are released this long before the end of a paid period, or later."""


@dataclass(frozen=True, kw_only=True)
class GoalNeeds:
    """``nodes`` of each source that the goals need now; ``reasons``: new ones, with the bag's name;
    ``others``: the bags that are served without a goal. ``any``: there are bags with goals."""

    state: State
    nodes: Counter[str]
    reasons: tuple[tuple[str, str], ...]
    others: tuple[BagState, ...]
    any: bool
    complete: bool

    def added(self, share: SiteDemand, where: FleetSite, inventory: SiteInventory) -> SiteDemand:
        """Return the work of a source with that of the goals."""
        if not self.any:
            return share
        return replace(share, loads=share.loads + self.nodes[where.name] + inventory.busy_leaving)

    def completed(
        self, decision: PoolDecision, where: FleetSite, view: PoolView, nodes: int
    ) -> PoolDecision:
        """Return a decision that also releases surplus nodes of a source with a price, although
        they may be busy: at the end of their paid periods, once their replacements have joined."""
        if not self.any or not where.price or not (self.complete or self.nodes[where.name]):
            return decision
        # those with the fewest tasks go first, and of these the newest
        staying = sorted(view.staying, key=lambda node: (node.running, -node.joined_s))
        going = [
            node.id
            for node in staying[: max(0, len(staying) - nodes)]
            if self._is_at_boundary(where, node, view.now_s)
        ]
        if not going:
            return decision
        reason = (
            f"released {format_count(len(going), 'node')} of {where.name}: others do their work"
        )
        return merge_decisions((decision, PoolDecision(drain=tuple(going), reasons=(reason,))))

    def _is_at_boundary(self, where: FleetSite, node: NodeView, now_s: float) -> bool:
        if not where.billing_s:
            return True
        slot = self.state.slots.get(node.allocation)
        paid_s = now_s - (slot.requested_s if slot else node.joined_s)
        return billed_s(paid_s, where.billing_s) - paid_s <= _BOUNDARY_S


@dataclass
class GoalFleet:
    """``decisions``: the last one of each bag with a goal, by its number; ``views``: what it was
    made for; ``controls``: its plans; ``nodes_over_time``: instants, and nodes of each source from
    then on; ``inventory``: the present agents of each source; ``ad_hoc_agents``: others may join
    than those that are requested."""

    core: Core
    ad_hoc_agents: bool = False
    decisions: dict[int, GoalDecision] = field(default_factory=dict)
    controls: dict[int, GoalControl] = field(default_factory=dict)
    views: dict[int, GoalView] = field(default_factory=dict)
    sources: Sequence[FleetSite] = ()
    inventory: Mapping[str, SiteInventory] = field(default_factory=dict)
    _decided: dict[int, int] = field(default_factory=dict)
    _looked: dict[int, tuple[float, object]] = field(default_factory=dict)
    _ended: dict[int, tuple[tuple[int, ...], float]] = field(default_factory=dict)
    nodes_over_time: defaultdict[int, list[tuple[float, dict[str, int]]]] = field(
        default_factory=partial(defaultdict, list)
    )
    _spot: frozenset[str] = frozenset()

    def resume(self, status: Mapping[str, Any]) -> None:
        """Go on with the promises and the nodes over time of an earlier dispatcher of these bags,
        from its last status; what was reached then was in time or not since then."""
        for bag in status.get("bags", ()):
            if goal := bag.get("goal"):
                if goal["reached_s"] is not None:
                    basis = (bag["retried"], bag["tasks"], len(goal.get("changes", ())))
                    self._ended[bag["number"]] = basis, goal["reached_s"]
                promises = [(at_s, share) for at_s, share in goal["promises"]]
                self.controls[bag["number"]] = _make_control(promises)
                self.nodes_over_time[bag["number"]] = [
                    (at_s, n) for at_s, n in goal["nodes_over_time"]
                ]

    def needs(
        self,
        sources: Sequence[FleetSite],
        present: Mapping[str, SiteInventory],
        health: Mapping[str, SiteHealth],
        now_s: float,
    ) -> GoalNeeds:
        """Return what the bags with goals need now."""
        self.sources, self.inventory = sources, present
        self._spot = frozenset(where.name for where in sources if where.market)
        for name in self._spot:
            # taken back by its cloud: there are too few spot nodes now
            if any(agent.leaving == TAKEN_BACK for agent in present[name].agents):
                for control in self.controls.values():
                    control.observe_spot(name, False, now_s)
        bags = [bag for bag in self.core.serving if self.goal_of(bag) and not self._reached(bag)]
        due = self.core.dispatch_index.due = {
            bag.number: _compute_due_s(bag, self.core) for bag in bags
        }
        # the plan of each contains the work of those before it, on the same nodes
        bags.sort(key=lambda bag: due[bag.number])
        nodes: Counter[str] = Counter()
        reasons = []
        for n, bag in enumerate(bags):
            before = self.decisions.get(bag.number)
            usable = [w for w in sources if not bag.sites or w.site in bag.sites]
            if self._is_due(bag, present, now_s):
                earlier = [b for b in bags[:n] if share_sites(b, bag)]
                self._decide(bag, earlier, usable, present, health, now_s)
            decision = self.decisions[bag.number]
            if before is None or before.nodes != decision.nodes:
                reasons.append((bag.name, decision.reason))
            nodes = count_joint_nodes(nodes, decision.nodes, usable)
            self._record(bag.number, present, now_s)
        clouds = [where.name for where in sources if where.cloud]
        return GoalNeeds(
            state=self.core.state,
            nodes=nodes,
            reasons=tuple(reasons),
            others=tuple(bag for bag in self.core.serving if bag not in bags),
            any=any(self.goal_of(bag) for bag in self.core.serving),
            complete=all(present[name].staying >= nodes[name] for name in clouds),
        )

    def _record(self, bag: int, present: Mapping[str, SiteInventory], now_s: float) -> None:
        """Record how many nodes of each source there are, where that has changed."""
        nodes = {name: inventory.staying for name, inventory in present.items()}
        recorded = self.nodes_over_time[bag]
        if not recorded or recorded[-1][1] != nodes:
            recorded.append((now_s, nodes))
            if len(recorded) > _MOST_RECORDED:
                # every second entry goes: the whole time stays covered, in less detail
                del recorded[1::2]

    def _is_due(self, bag: BagState, present: Mapping[str, SiteInventory], now_s: float) -> bool:
        """Return whether to decide again: the nodes have changed, or some time has passed."""
        nodes = tuple((p.staying, len(p.requests)) for p in present.values())
        basis = (nodes, len(bag.goal_changes))
        at_s, before = self._looked.get(bag.number, (0.0, None))
        goal = self.core.bags[bag.number].goal
        assert goal is not None
        required, done, lost = count_goal_progress(bag, goal)
        # a short deadline needs more decisions than one in a minute
        period_s = min(LOOK_S, max(1.0, goal.deadline_s / 100.0))
        if basis == before and now_s - at_s < period_s and done + lost < required:
            return False
        self._looked[bag.number] = (now_s, basis)
        return True

    def _decide(
        self,
        bag: BagState,
        earlier: Sequence[BagState],
        usable: Sequence[FleetSite],
        present: Mapping[str, SiteInventory],
        health: Mapping[str, SiteHealth],
        now_s: float,
    ) -> None:
        goal = self.core.bags[bag.number].goal
        assert goal is not None
        spent_usd = self.spent_usd(bag.number, now_s)
        # the instant at which the present nodes would be free if they got no more tasks
        idle_s = now_s + RELEASE_S + (bag.typical_s or 0.0)
        owed_usd = self.spent_usd(bag.number, idle_s) - spent_usd
        own = make_view(bag, goal, spent_usd, now_s, owed_usd, self._paid_s(now_s))
        basis, reached_s = self._ended.get(bag.number, ((), now_s))
        if not own.left and basis == _make_basis(bag):
            # what was reached in time stays so, however late it is looked at
            own = replace(own, now_s=reached_s)
        self.views[bag.number] = own
        view = own.after([self.views[b.number] for b in earlier])
        control = self.control_of(bag)
        self._decided[bag.number] = len(bag.goal_changes)
        decision = self.decisions[bag.number] = control.decide(view, usable, present, health)
        if decision.reached:
            self._ended[bag.number] = _make_basis(bag), own.now_s
        waiting = bag.tasks.left - bag.tasks.counts[ASSIGNED]
        free = any(where.price == 0.0 for where in usable)
        if decision.reached and waiting > 0 and not (goal.these and free):
            self.core.shrink(bag.number, waiting, now_s)  # not needed, or only paid nodes could

    def fits(self, bag: int, grid: Mapping[str, object]) -> bool:
        """Return whether a bag that is served without a goal may use a grid: not spot nodes, and
        once its goal is reached, none with a price."""
        priced = bool(grid["Price"])
        return grid["Name"] not in self._spot and not (
            priced and self.goal_of(self.core.state.bags[bag])
        )

    def observe(self, slot: SlotRequest, state: SlotState, now_s: float) -> None:
        """Record what a site answered about spot nodes."""
        # a request that was withdrawn here says nothing about the market
        if slot.market and not slot.closing and state in (SlotState.READY, SlotState.FAILED):
            for control in self.controls.values():
                control.observe_spot(slot.source, state == SlotState.READY, now_s)

    def goal_of(self, bag: BagState) -> BagGoal | None:
        """Return the present goal of a bag, if it has one."""
        spec = self.core.bags.get(bag.number)
        return None if spec is None else spec.goal

    def control_of(self, bag: BagState) -> GoalControl:
        """Return plans and promises of a bag, those of the present goal apart."""
        control = self.controls.get(bag.number)
        if control is None:
            control = self.controls[bag.number] = _make_control([])
        if bag.last_change is not None:
            control.follow_change(bag.last_change.at_s)
        return control

    def is_decided(self, bag: BagState) -> bool:
        """Return whether the last decision is for the present goal of a bag."""
        return self._decided.get(bag.number) == len(bag.goal_changes)

    def _reached(self, bag: BagState) -> bool:
        """Return whether nothing more is needed; tasks that are done again change that, and a
        change of the goal."""
        decision = self.decisions.get(bag.number)
        basis, _ = self._ended.get(bag.number, ((), 0.0))
        return decision is not None and decision.reached and basis == _make_basis(bag)

    def spent_usd(self, bag: int, at_s: float) -> float:
        """Return what a bag has cost until an instant."""
        slots = list_paid_slots(self.core.state.slots, self.sources)
        share = divide_costs(list(self.core.state.bags.values()))[bag]
        return share * sum(slot.cost_usd(at_s) for slot in slots)

    def _paid_s(self, now_s: float) -> dict[str, float]:
        """Return for how long the nodes of each source are paid already, at least."""
        left: dict[str, float] = {}
        for slot in list_paid_slots(self.core.state.slots, self.sources):
            if slot.ended_s is None:
                used_s, name = now_s - slot.since_s, slot.where.name
                left_s = billed_s(used_s, slot.where.billing_s) - used_s
                left[name] = min(left_s, left.get(name, left_s))
        return left

    def unpayable(self, now_s: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the slots that get no more tasks, so that what runs can end before the budgets
        are used up, and those that must be released now. Where a bag of the dispatcher has no
        budget, there are none: the nodes serve all bags."""
        bags = list(self.core.state.bags.values())
        budgets = [self._budget_usd(bag) for bag in bags]
        limits = [budget for budget in budgets if budget is not None]
        slots = list_paid_slots(self.core.state.slots, self.sources)
        if not slots or len(limits) < len(budgets):
            return (), ()
        task_s = max((bag.typical_s or 0.0 for bag in bags if not bag.over), default=0.0)
        return (
            find_unpayable(slots, sum(limits), now_s, RELEASE_S + task_s),
            find_unpayable(slots, sum(limits), now_s, RELEASE_S),
        )

    def _budget_usd(self, bag: BagState) -> float | None:
        goal = self.goal_of(bag)
        return None if goal is None else goal.budget_usd


def _make_control(promises: list[tuple[float, float]]) -> GoalControl:
    # what plans nodes is loaded late: most bags have no goal
    from vgrads.dispatch.fleet.goals import GoalControl  # noqa: PLC0415

    return GoalControl(promises=promises)


def _make_basis(bag: BagState) -> tuple[int, ...]:
    """Return what changes whether a goal that was reached still is."""
    return bag.retried, len(bag.tasks), len(bag.goal_changes)


def explain_stuck(core: Core, goals: GoalFleet) -> str:
    """Return why no bag that is left can get nodes any more; empty while one can."""
    decisions = [(bag.name, goals.decisions.get(bag.number)) for bag in core.serving]
    if not all(decision is not None and decision.stuck for _, decision in decisions):
        return ""
    return "; ".join(f"{name}: {decision.reason}" for name, decision in decisions if decision)


def _compute_due_s(bag: BagState, core: Core) -> float:
    goal = core.bags[bag.number].goal
    assert goal is not None
    return bag.came_s + goal.deadline_s


def end_unpayable(core: Core, goals: GoalFleet, now_s: float) -> list[str]:
    """Let agents leave that the budgets of the bags do not pay any longer; return the slots that
    must end now."""
    idle, ended = goals.unpayable(now_s)
    for agent in core.state.agents.values():
        if agent.here and not agent.leaving and agent.slot in idle:
            core.disconnect(agent, "the budget ends")
    return list(ended)
