"""A bag with a goal and the sources of its nodes, as decisions about them use them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vgrads.bags.bag import BagGoal
from vgrads.dispatch.core.state import BagState
from vgrads.dispatch.core.tasks import ASSIGNED, DONE, DROPPED, ENDED, FAILED, PENDING
from vgrads.dispatch.fleet.budget import RELEASE_S
from vgrads.dispatch.fleet.site_view import FleetSite, SiteHealth, SiteInventory
from vgrads.dispatch.fleet.worker_time import WorkerTime
from vgrads.kernel.units import billed_usd, format_count, format_usd
from vgrads.pool.deadline.values import NodeSource, Work
from vgrads.pool.deadline.width import Width

SAMPLE = 20
"""Tasks after which the observed run time counts, or a fiftieth of them where that is more."""
_WEIGHED = 39
"""Tasks that the estimate rests on at most: the newest weighs a twentieth."""
_STATED_ERROR = 0.3
LOOK_S = 60.0
"""Longest time between two decisions about the cloud."""


@dataclass(frozen=True, kw_only=True)
class GoalView:
    """A bag with a goal, as of ``now_s``: ``due_s`` is the instant of its deadline; ``left``: tasks
    that must still be done; ``each_s``: estimate of their run time, None while there is none;
    ``sampled``: ended tasks on which it rests; ``spent_usd``: paid or owed so far; ``lost``:
    required tasks that can no longer be done; ``is_final``: later tasks change nothing about the
    goal; ``owed_usd``: what the present nodes will cost until what runs there has ended;
    ``paid_s``: for how long the present nodes of a source are paid already; ``ready``: tasks that
    run or may run now, None: all that are left; ``width``: how many may run at once as they are
    done, None: all; ``ahead``: tasks that bags with earlier deadlines still have to do first, as so
    many of its own; ``running``: tasks that run."""

    now_s: float
    due_s: float
    goal: BagGoal
    left: int
    each_s: float | None
    sampled: int
    tasks: int
    procs: int
    spent_usd: float
    lost: int = 0
    is_final: bool = True
    owed_usd: float = 0.0
    paid_s: Mapping[str, float] = field(default_factory=dict)
    ready: int | None = None
    width: Width | None = None
    ahead: int = 0
    running: int = 0

    @property
    def work_left(self) -> int:
        """Return the tasks until its last one: those of earlier bags, and its own."""
        return self.ahead + self.left

    def after(self, earlier: Sequence[GoalView]) -> GoalView:
        """Return the view behind bags with earlier deadlines, on the same nodes: their work comes
        first, and the money of all pays for all."""
        first_s = sum(view.left * (view.each_s or 0.0) * view.procs for view in earlier)
        if not first_s or not self.each_s:
            return self
        budgets = [view.goal.budget_usd for view in (self, *earlier)]
        # where one bag has no limit, all of them together have none
        budget_usd = None if None in budgets else sum(b for b in budgets if b is not None)
        return replace(
            self,
            goal=replace(self.goal, budget_usd=budget_usd),
            spent_usd=sum((view.spent_usd for view in earlier), self.spent_usd),
            owed_usd=sum((view.owed_usd for view in earlier), self.owed_usd),
            ahead=math.ceil(first_s / (self.each_s * self.procs)),
        )


@dataclass(frozen=True, kw_only=True)
class GoalDecision:
    """``nodes``: how many of each source, by its name; ``promise``: probability that the goal is
    reached, None while there is none; ``reason``: with the numbers; ``stuck``: no source can give
    nodes any more."""

    nodes: Mapping[str, int]
    promise: float | None
    reason: str
    reached: bool = False
    stuck: bool = False


def share_sites(one: BagState, other: BagState) -> bool:
    """Return whether two bags may use nodes of the same site."""
    return not one.sites or not other.sites or bool(set(one.sites) & set(other.sites))


def count_joint_nodes(
    earlier: Counter[str], nodes: Mapping[str, int], sources: Sequence[FleetSite]
) -> Counter[str]:
    """Return how many nodes of each source are needed, if ``earlier`` are needed already and a bag
    with a later deadline needs ``nodes``, on which the work of the earlier ones is done too. Nodes
    on one market of a cloud do the work of those on the other."""
    result = Counter(earlier)
    for where in sources:
        elsewhere = sum(
            earlier[w.name] for w in sources if w.site == where.site and w.market != where.market
        )
        needed = nodes.get(where.name, 0) - (elsewhere if where.cloud else 0)
        result[where.name] = max(result[where.name], needed)
    return result


def count_goal_progress(bag: BagState, goal: BagGoal) -> tuple[int, int, int]:
    """Return how many tasks are required, how many of them are done, and how many can no longer
    be."""
    tasks, required = bag.tasks, goal.required(len(bag.tasks))
    if goal.these:
        counts = [tasks.status.count(how, 0, required) for how in (DONE, FAILED, DROPPED)]
        return required, counts[0], counts[1] + counts[2]
    lost = tasks.counts[FAILED] + tasks.counts[DROPPED]
    return required, tasks.counts[DONE], max(0, lost - len(tasks) + required)


def make_view(
    bag: BagState,
    goal: BagGoal,
    spent_usd: float,
    now_s: float,
    owed_usd: float = 0.0,
    paid_s: Mapping[str, float] | None = None,
) -> GoalView:
    """Return the view of a bag; see :class:`GoalView`."""
    required, done, lost = count_goal_progress(bag, goal)
    stated_s, counts = bag.stated_s, bag.tasks.counts
    # tasks whose results existed before did not run here
    ended = max(0, counts[DONE] - bag.reused)
    each_s = estimate_s(stated_s, bag.typical_s, ended, counts[ASSIGNED], required)
    return GoalView(
        now_s=now_s,
        due_s=bag.came_s + goal.deadline_s,
        goal=goal,
        left=max(0, required - done - lost),
        each_s=each_s,
        sampled=ended,
        tasks=len(bag.tasks),
        procs=bag.procs,
        spent_usd=spent_usd,
        lost=lost,
        is_final=not bag.open or (goal.at_least is not None and done >= goal.at_least),
        owed_usd=owed_usd,
        paid_s=paid_s or {},
        ready=counts[PENDING] + counts[ASSIGNED] if bag.tasks.order else None,
        width=_estimate_width(bag, required),
        running=counts[ASSIGNED],
    )


def _estimate_width(bag: BagState, required: int) -> Width | None:
    """Return how many of the required tasks may run at once; None where all may."""
    order = bag.tasks.order
    # where fewer than all suffice, nobody knows yet which these are
    if order is None or required < len(bag.tasks):
        return None
    status = np.frombuffer(bag.tasks.status, np.uint8)
    levels = order.levels(np.isin(status, ENDED, invert=True))
    return None if levels is None else Width(levels)


def estimate_s(
    stated_s: float | None, typical_s: float | None, ended: int, running: int, required: int
) -> float | None:
    """Return the estimate of the run time: as stated, until enough tasks have ended. The first of
    those that run at once to end are the shortest: a shorter run time than the stated one counts
    once as many have ended as run."""
    if stated_s is None or typical_s is None:
        return stated_s if typical_s is None else typical_s
    if ended < min(SAMPLE, required):
        return stated_s
    return typical_s if ended >= min(running, required) else max(stated_s, typical_s)


def is_closed(where: FleetSite, health: SiteHealth, now_s: float) -> bool:
    """Return whether a source is not considered now. A spot market that has refused a request is:
    whether to wait for it is part of the decision."""
    return health.is_abandoned if where.market else health.closed(now_s)


def expected_wait_s(where: FleetSite, health: SiteHealth | None = None) -> float:
    if health is not None and health.came:
        return health.wait_s
    return where.waits_s[len(where.waits_s) // 2] if where.waits_s else 60.0


def compute_first_usd(view: GoalView, where: FleetSite, health: SiteHealth) -> float:
    """Return what a new node of a source costs at least: until it has ended one task."""
    first_s = expected_wait_s(where, health) + (view.each_s or 0.0) + 2.0 * RELEASE_S
    return billed_usd(1, first_s, where.billing_s, where.price)


def count_payable_nodes(
    view: GoalView, where: FleetSite, present: SiteInventory, health: SiteHealth
) -> int:
    """Return how many nodes of a source the budget pays: those that are present or requested, and
    new ones until each has ended a task."""
    budget = view.goal.budget_usd
    if budget is None or not where.price:
        return where.limits.most
    here = present.staying + sum(request.nodes for request in present.requests)
    # a node that the rest of the budget pays for exactly counts despite rounding
    new = int(
        (budget - view.spent_usd - view.owed_usd) / compute_first_usd(view, where, health) + 1e-9
    )
    return min(where.limits.most, here + max(0, new))


def decide_without_work(view: GoalView) -> GoalDecision:
    """Return the decision where no task that counts is left."""
    if not view.is_final:
        reason = (
            f"all of the {format_count(view.tasks, 'task')} submitted so far that count are "
            "done; the bag is "
            "open, and later tasks count too"
        )
        return GoalDecision(nodes={}, promise=None, reason=reason)
    if view.lost:
        reason = f"the goal cannot be reached: {view.lost:,} of the required tasks failed"
        return GoalDecision(nodes={}, promise=0.0, reason=reason, reached=True)
    if view.now_s > view.due_s:
        reason = "the required tasks were done after the deadline"
        return GoalDecision(nodes={}, promise=0.0, reason=reason, reached=True)
    return GoalDecision(nodes={}, promise=1.0, reason="the goal is reached", reached=True)


def decide_without_money(
    view: GoalView, sources: Sequence[FleetSite], health: Mapping[str, SiteHealth]
) -> GoalDecision:
    """Return the decision where no source is free, and the budget pays for no node."""
    least_usd = min(compute_first_usd(view, w, health[w.name]) for w in sources if w.price)
    left_usd = max(0.0, (view.goal.budget_usd or 0.0) - view.spent_usd)
    free = [w for w in sources if not w.price and w.procs >= view.procs]
    return GoalDecision(
        nodes={},
        promise=0.0,
        reason=(
            f"{format_usd(left_usd)} of the budget are left and pay for no node; the cheapest "
            f"costs {format_usd(least_usd)} until it has ended a task"
        ),
        stuck=all(health[where.name].is_abandoned for where in free),
    )


def source_of(
    where: FleetSite, present: SiteInventory, health: SiteHealth, procs: int, now_s: float
) -> NodeSource:
    """Return a source of nodes as the plan uses it; ``procs``: of a task. Waits that were observed
    here count as much as those that were expected; of requested nodes the rest of their waits
    counts."""
    waits_s = where.waits_s or (expected_wait_s(where),)
    if health.came:
        waits_s = tuple(sorted((*waits_s, *(health.wait_s,) * len(waits_s))))
    if present.requests and not where.cloud:
        first_s = min(request.requested_s for request in present.requests)
        waits_s = _estimate_remaining_s(waits_s, now_s - first_s)
    left_s = [
        min(agent.ends_s - now_s, where.longest_s) for agent in present.agents if not agent.leaving
    ]
    return NodeSource(
        name=where.name,
        cloud=where.cloud,
        workers=max(1, where.procs // procs),
        most=where.limits.most,
        usd_per_hour=where.price,
        billing_s=where.billing_s,
        length_s=where.longest_stay(now_s, 0.0).length_s or where.longest_s,
        waits_s=(0.0,) if where.cloud else waits_s,
        boot_s=0.0 if not where.cloud else health.wait_s if health.came else expected_wait_s(where),
        running=len(left_s),
        running_left_s=sum(left_s) / len(left_s) if left_s else 0.0,
    )


def estimate_mean_error(view: GoalView) -> float:
    """Return the standard deviation of the logarithm of the true mean run time over the
    estimate."""
    sampled = min(view.sampled, _WEIGHED)
    return _STATED_ERROR if view.sampled < SAMPLE else 0.5 / math.sqrt(sampled) + 0.02


def measure_remaining_work(view: GoalView, workers: WorkerTime) -> Work:
    """Return what is left of a bag; ``workers``: what was measured of them."""
    assert view.each_s is not None
    mixed = view.sampled >= view.running  # the first tasks of all nodes have begun together
    return Work(
        tasks=view.work_left,
        mean_s=view.each_s,
        error=estimate_mean_error(view),
        overhead_s=workers.overhead_s(view.each_s),
        rate=workers.rate,
        running=view.running if mixed else 0,
        width=None if view.ahead else view.width,  # tasks of earlier bags fill the rest
    )


def count_useful_nodes(view: GoalView, source: NodeSource, elsewhere: int = 0) -> int:
    """Return how many nodes of a source have work: for all tasks that are left, or where not all
    may run at once, for those that may until nodes that are requested now would have started, and
    until the next decision. ``elsewhere``: workers of present nodes that are used before them."""
    if view.width is None or view.ahead:
        return math.ceil(view.work_left / source.workers)
    wait_s = source.waits_s[len(source.waits_s) // 2] + source.boot_s + LOOK_S
    rounds = wait_s / view.each_s if view.each_s else math.inf
    return math.ceil(max(0, view.width.most(min(rounds, view.left)) - elsewhere) / source.workers)


def _estimate_remaining_s(waits_s: tuple[float, ...], elapsed_s: float) -> tuple[float, ...]:
    """Return the remaining waits of requests that have waited so long; beyond all waits that were
    expected, as long again."""
    return tuple(w - elapsed_s for w in waits_s if w > elapsed_s) or (elapsed_s,)
