"""Bags with a deadline: how many nodes of each source they use now, so that their promise is kept
for the least money.

The plan (:mod:`vgrads.pool.deadline.plan`) says how many nodes of each queue and of the cloud;
:func:`vgrads.pool.spot.choose.choose` says at each check on which market of the cloud. It is made
anew when the estimate of the run time, the number of tasks or the state of a source has changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgrads.dispatch.fleet.goal_view import (
    LOOK_S,
    SAMPLE,
    GoalDecision,
    GoalView,
    count_payable_nodes,
    count_useful_nodes,
    decide_without_money,
    decide_without_work,
    expected_wait_s,
    is_closed,
    measure_remaining_work,
    source_of,
)
from vgrads.dispatch.fleet.site_view import FleetSite, SiteHealth, SiteInventory
from vgrads.dispatch.fleet.worker_time import WorkerTime
from vgrads.kernel.units import format_count, format_duration, format_usd
from vgrads.pool.deadline import plan as deadline_plan
from vgrads.pool.deadline.plan import DeadlinePlan, plan_nodes
from vgrads.pool.deadline.values import NodeSource, Work
from vgrads.pool.spot.choose import Current, MarketDecision, choose
from vgrads.pool.spot.history import SpotHistory
from vgrads.pool.spot.prior import PRIOR
from vgrads.pool.spot.survival import LifeTable
from vgrads.pool.spot.table import MarketPrices

_WRONG, _REPLAN_S = 1.25, 600.0
_MAINTAINED = 0.98
"""Promises up to this one are maintained, also where less was requested."""
_PROBE_S = 300.0
_MOST_LATER = 8


@dataclass
class GoalControl:
    """Plans and decisions of one bag. ``cloud``: that it uses; ``market``: where its nodes run now;
    ``prior``: life tables of spot nodes of other places and dates; ``since_s``: when its goal was
    last changed: earlier promises were of another one."""

    plan: DeadlinePlan | None = None
    history: dict[str, SpotHistory] = field(default_factory=dict)
    promises: list[tuple[float, float]] = field(default_factory=list)
    cloud: str = ""
    market: str = "none"
    prior: tuple[LifeTable, ...] = PRIOR
    since_s: float = -math.inf
    _sources: tuple[NodeSource, ...] = ()
    _names: tuple[str, ...] = ()
    # run time (s), tasks and instant (s) of the plan
    _basis: tuple[float, int, float] = (0.0, 0, -math.inf)
    _probed_s: float = -math.inf
    _is_late: bool = False
    _of_before: int = 0
    _workers: WorkerTime = field(default_factory=WorkerTime)

    def observe_spot(self, name: str, available: bool, now_s: float) -> None:
        """Record that spot nodes could be had, or were refused or taken back."""
        before = self.history.get(name)
        self.history[name] = (
            SpotHistory(now_s, available) if before is None else before.observed(now_s, available)
        )

    @property
    def present_promises(self) -> list[tuple[float, float]]:
        """Return the promises of the present goal."""
        return self.promises[self._of_before :]

    def follow_change(self, at_s: float) -> None:
        """Make the plan anew at the next decision, if the goal was changed then."""
        if at_s == self.since_s:
            return
        is_resumed, self.since_s = self.plan is None, at_s
        self.plan, self._of_before = None, len(self.promises)
        if is_resumed:
            # after a restart, promises made since the change are of the present goal
            self._of_before = sum(promised_s < at_s for promised_s, _ in self.promises)

    def decide(
        self,
        view: GoalView,
        sources: Sequence[FleetSite],
        present: Mapping[str, SiteInventory],
        health: Mapping[str, SiteHealth],
    ) -> GoalDecision:
        """Return how many nodes of each source are used now."""
        if not view.left:
            return decide_without_work(view)
        usable = [
            where
            for where in sources
            if where.procs >= view.procs and not is_closed(where, health[where.name], view.now_s)
        ]
        # spot nodes alone make no source: a plan has them only as another market of a steady one
        if not any(not where.market for where in usable):
            stuck = all(health[where.name].is_abandoned for where in sources if not where.market)
            reason = "no source of nodes is usable now"
            return GoalDecision(nodes={}, promise=None, reason=reason, stuck=stuck)
        workers = sum(
            present[where.name].staying * max(1, where.procs // view.procs) for where in usable
        )
        ready = view.left if view.ready is None else view.ready
        self._workers.look(view.now_s, workers, view.sampled, ready > 2 * workers)
        payable = {
            w.name: count_payable_nodes(view, w, present[w.name], health[w.name]) for w in usable
        }
        usable = [where for where in usable if payable[where.name]]
        if not any(not where.market for where in usable):
            return decide_without_money(view, sources, health)
        if view.each_s is None:
            return _sample(view, usable, payable)
        if self._is_outdated(view, usable):
            self._make_plan(view, usable, present, health)
        return self._steer(view, usable, present, payable)

    def _is_outdated(self, view: GoalView, usable: Sequence[FleetSite]) -> bool:
        each_s, tasks, at_s = self._basis
        if self.plan is None or tasks != view.tasks:
            return True
        # spot nodes are another market of these, so plans are not made anew when they come and go
        if {w.name for w in usable if w.market == ""} != set(self._names):
            return True
        assert view.each_s is not None
        wrong = max(view.each_s / each_s, each_s / view.each_s) if each_s > 0 else math.inf
        sampled = view.sampled >= max(SAMPLE, view.tasks // 50)
        period_s = _REPLAN_S if self._is_late else min(_REPLAN_S, view.goal.deadline_s / 10.0)
        return (wrong > _WRONG and sampled) or view.now_s - at_s > period_s

    def _make_plan(
        self,
        view: GoalView,
        usable: Sequence[FleetSite],
        present: Mapping[str, SiteInventory],
        health: Mapping[str, SiteHealth],
    ) -> None:
        assert view.each_s is not None
        spot = {where.site: where for where in usable if where.market}
        steady = [where for where in usable if not where.market]
        self._names = tuple(where.name for where in steady)
        self._sources = tuple(
            _make_source(self, where, spot.get(where.site), present, health, view)
            for where in steady
        )
        self._basis = (view.each_s, view.tasks, view.now_s)
        here = any(present[where.name].staying for where in usable)
        least_s = _compute_least_s(view, self.work(view)) + (
            0.0 if here else min(expected_wait_s(w, health[w.name]) for w in steady)
        )
        left_s = view.due_s - view.now_s
        self._is_late = left_s < least_s
        self.plan = self._plan_for(view, max(left_s, least_s))
        # a late bag is planned for a later deadline that can be kept, found by doubling
        for _ in range(_MOST_LATER if self._is_late else 0):
            if self.plan.enough:
                break
            least_s *= 2.0
            self.plan = self._plan_for(view, least_s)
        self.promises.append((view.now_s, self._promise(view)))

    def work(self, view: GoalView) -> Work:
        """Return what is left of a bag."""
        return measure_remaining_work(view, self._workers)

    def _plan_for(self, view: GoalView, left_s: float) -> DeadlinePlan:
        budget = view.goal.budget_usd
        return plan_nodes(
            self.work(view),
            self._sources,
            deadline_plan.Goal(
                deadline_s=left_s,
                probability=_find_target(view, self.present_promises),
                budget_usd=None if budget is None else max(0.0, budget - view.spent_usd),
            ),
        )

    def _promise(self, view: GoalView) -> float:
        assert self.plan is not None
        return 0.0 if self._is_late or view.lost else self.plan.promise

    def _steer(
        self,
        view: GoalView,
        usable: Sequence[FleetSite],
        present: Mapping[str, SiteInventory],
        payable: Mapping[str, int],
    ) -> GoalDecision:
        """Return the nodes of the plan, and those of the cloud as its market is chosen now."""
        assert self.plan is not None
        planned = self.plan.chosen
        queues = [source for source in self._sources if not source.cloud]
        nodes: dict[str, int] = {}
        elsewhere = 0
        for queue, most in zip(queues, planned.plan.queues, strict=True):
            count = min(most, count_useful_nodes(view, queue, elsewhere), payable[queue.name])
            nodes[queue.name] = count
            elsewhere += min(count, present[queue.name].staying) * queue.workers
        cloud = next((source for source in self._sources if source.name == planned.cloud), None)
        promise = self._promise(view)
        reason = _explain_plan(view, self.plan, nodes, promise)
        if self._is_late:
            reason = f"the deadline cannot be kept: {reason}"
        if cloud is not None:
            # the market was chosen at another cloud
            if cloud.name != self.cloud:
                self.cloud, self.market = cloud.name, "none"
            decision, spot_name = _choose_market(view, self, cloud, usable, present, queues)
            self.market = decision.market
            useful = count_useful_nodes(view, cloud, elsewhere)
            count = min(planned.plan.cloud, useful)
            name = spot_name if decision.market == "spot" else cloud.name
            if decision.market != "none":
                nodes[name] = count = min(count, payable[name])
            # it waits for spot nodes, and only a request shows whether there are any again
            elif decision.cost_usd and self._probes(spot_name, cloud, present, view.now_s):
                nodes[spot_name] = min(1, count, payable[spot_name])
            running = 0 if decision.market == "none" else count
            _retain_paid(nodes, usable, present, useful)
            reason += f"; cloud: {format_count(running, 'node')}, {decision.reason}"
        return GoalDecision(nodes=nodes, promise=promise, reason=reason)

    def _probes(
        self,
        spot_name: str,
        cloud: NodeSource,
        present: Mapping[str, SiteInventory],
        now_s: float,
    ) -> bool:
        """Return whether a spot node is requested only to see whether there is one again."""
        spot_usd, history = cloud.spot_usd_per_hour, self.history.get(spot_name)
        if spot_usd is None or history is None or history.is_available(now_s):
            return False
        if present[spot_name].requests:
            return True  # it has not been answered
        is_due = now_s - self._probed_s > _PROBE_S and spot_usd < cloud.usd_per_hour
        self._probed_s = now_s if is_due else self._probed_s
        return is_due


def _make_source(
    control: GoalControl,
    where: FleetSite,
    spot: FleetSite | None,
    present: Mapping[str, SiteInventory],
    health: Mapping[str, SiteHealth],
    view: GoalView,
) -> NodeSource:
    name = where.name
    source = source_of(where, present[name], health[name], view.procs, view.now_s)
    if spot is not None:
        history = control.history.get(spot.name, SpotHistory(view.now_s, first=True))
        source = replace(
            source,
            spot_usd_per_hour=spot.price,
            history=history,
            now_s=view.now_s,
            observed=spot.name in control.history,
            prior=control.prior,
        )
    if not where.cloud:
        return source
    market = control.market if name == control.cloud else "none"
    name = spot.name if spot is not None and market == "spot" else where.name
    return replace(
        source,
        market=market,
        running=present[name].staying,
        paid_s=view.paid_s.get(name, 0.0),
    )


def _find_target(view: GoalView, promises: Sequence[tuple[float, float]]) -> float:
    """Return the probability that the plan is to reach: the requested one, and once more was
    promised, that, up to :data:`_MAINTAINED`. Otherwise each new plan would release nodes until no
    more than the requested probability is left."""
    promised = promises[0][1] if promises else 0.0
    return max(view.goal.probability, min(promised, _MAINTAINED))


def _choose_market(
    view: GoalView,
    control: GoalControl,
    cloud: NodeSource,
    usable: Sequence[FleetSite],
    present: Mapping[str, SiteInventory],
    queues: Sequence[NodeSource],
) -> tuple[MarketDecision, str]:
    assert control.plan is not None
    assert view.each_s is not None
    plan = control.plan.chosen.plan
    site = next(where.site for where in usable if where.name == cloud.name)
    spot = next((w for w in usable if w.market and w.site == site), None)
    history = (
        control.history.get(spot.name, SpotHistory(view.now_s, first=True))
        if spot
        else SpotHistory(view.due_s - view.goal.deadline_s, first=False)
    )
    work = control.work(view)
    workers = plan.cloud * cloud.workers
    there = zip(plan.queues, queues, strict=True)
    tail_s = work.tail_s(workers + sum(count * queue.workers for count, queue in there))
    usable_s = max(0.0, view.due_s - tail_s - view.now_s)
    # worker seconds that nodes of queues still give, until their slots or the deadline end them
    promised_s = sum(
        queue.workers * min(usable_s, max(0.0, agent.ends_s - work.residual_s - view.now_s))
        for queue in queues
        for agent in present[queue.name].agents
        if not agent.leaving
    )
    work_s = max(0.0, work.total_s * (1.0 + plan.reserve) - promised_s) / workers
    if work_s > 0.0:
        work_s += work.lost_s(workers) * (1.0 + plan.reserve)
    decision = choose(
        view.now_s,
        work_s,
        view.due_s - tail_s,
        _round_to_two_digits(cloud.boot_s + work.mean_s / 2.0),
        Current(market=control.market),
        MarketPrices(spot_usd=spot.price if spot else math.inf, on_demand_usd=cloud.usd_per_hour),
        history,
        control.prior,
        step_s=min(LOOK_S, max(1.0, view.goal.deadline_s / 100.0)),
    )
    return decision, spot.name if spot else ""


def _compute_least_s(view: GoalView, work: Work) -> float:
    """Return the time without which the deadline is missed: that of a task, and of a chain of
    tasks, by a run time that is unlikely to be shorter."""
    return max(view.each_s or 0.0, work.chain_s * math.exp(-2.0 * work.error))


def _round_to_two_digits(value: float) -> float:
    """Return a value to two digits: equal ones share their table of decisions."""
    return float(f"{value:.2g}")


def _retain_paid(
    nodes: dict[str, int],
    usable: Sequence[FleetSite],
    present: Mapping[str, SiteInventory],
    most: int,
) -> None:
    """Let requests for nodes stand whose first paid period has begun: to cancel them saves
    nothing."""
    for where in usable:
        if where.price and where.billing_s > LOOK_S:
            coming = sum(request.nodes for request in present[where.name].requests)
            nodes[where.name] = max(nodes.get(where.name, 0), min(coming, most))


def _sample(
    view: GoalView, usable: Sequence[FleetSite], payable: Mapping[str, int]
) -> GoalDecision:
    """Return a few nodes for the first tasks, whose run times are the sample."""
    first = min(usable, key=lambda where: (expected_wait_s(where), where.price))
    count = max(1, math.ceil(min(view.left, SAMPLE) / max(1, first.procs // view.procs) / 4))
    return GoalDecision(
        nodes={first.name: min(count, payable[first.name])},
        promise=None,
        reason=(
            f"no promise yet: the run time is not stated; the sample is the "
            f"first {format_count(min(view.left, SAMPLE), 'task')}, on {first.name}"
        ),
    )


def _explain_plan(
    view: GoalView, plan: DeadlinePlan, nodes: Mapping[str, int], promise: float
) -> str:
    chosen = plan.chosen
    where = ", ".join(f"{count} of {name}" for name, count in nodes.items() if count) or "no queue"
    shortfall = (
        "" if promise >= view.goal.probability else f", {view.goal.probability:g} was requested"
    )
    chain = f", {len(view.width.levels):,} of them one after another," if view.width else ""
    first = " after those of bags with earlier deadlines" if view.ahead else ""
    return (
        f"{format_count(view.left, 'task')} of {view.each_s or 0.0:.3g} s{chain} are left{first} "
        "for "
        f"{format_duration(max(0.0, view.due_s - view.now_s))}: {where}; promise "
        f"{promise:.3f}{shortfall}, {format_usd(chosen.cost_usd)} expected, "
        f"{format_usd(view.spent_usd)} spent"
    )
