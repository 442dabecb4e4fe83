"""Plans in all scenarios at once: when the work is done, at what cost, with how many node hours.

Decisions in a scenario are those of execution: queues get their nodes as they start, and
:mod:`vgrads.pool.spot.table` decides about the cloud, each step. Arrays have one row for each plan
and one column for each scenario.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.pool.deadline.scenarios import BagScenarios, Flags
from vgrads.pool.deadline.values import DeadlineCase, Floats, NodePlan, NodeSource
from vgrads.pool.deadline.width import LevelPace
from vgrads.pool.spot.choose import MARKETS
from vgrads.pool.spot.table import NONE, ON_DEMAND, SPOT, DecisionTable

_NOTICED = 1.5
"""After nodes have worked for so many run times the true one is observed."""
_REPLANS, _TAILS = 10, 40
"""A plan is made anew after each tenth of the time; tails are computed for so many sizes."""

Markets = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PlanOutcome:
    """For each scenario: ``end_s`` (``inf``: later than all steps), dollars, node seconds."""

    end_s: Floats
    cost_usd: Floats
    node_s: Floats

    def probability(self, deadline_s: float, budget_usd: float | None = None) -> float:
        """Return the share of scenarios that end in time and within the budget."""
        good = self.end_s <= deadline_s
        if budget_usd is not None:
            good &= self.cost_usd <= budget_usd + 1e-9
        return float(good.mean())


def simulate_plans(
    plans: Sequence[NodePlan],
    case: DeadlineCase,
    table: DecisionTable | None,
    scenarios: BagScenarios,
    grows: bool = False,
) -> list[PlanOutcome]:
    """Simulate plans whose decisions about the cloud are those of one table (None: no cloud). Nodes
    are released when the work is done; a started billing period of the cloud is used to its end.
    Nothing is bought that the budget does not pay. ``grows``: more nodes of the cloud are started
    where those of the plan can no longer be in time, as when the plan is made anew."""
    run = _PlanRuns(plans, case, scenarios)
    cloud = None
    if case.cloud is not None and table is not None:
        cloud = _CloudNodes(plans, case, case.cloud, table, scenarios.count)
        cloud.growth = _Growth(plans, case, case.cloud) if grows else None
    for step in range(scenarios.steps):
        if not run.open.any():
            break
        power, promised_s = run.queues(step)
        if cloud is not None:
            cloud.decide(step, run.visible, promised_s, run, scenarios)
            power += cloud.power
        run.work(step, power, cloud)
    return [
        PlanOutcome(end_s, cost_usd, node_s)
        for end_s, cost_usd, node_s in zip(run.end_s, run.cost_usd, run.node_s, strict=True)
    ]


class _PlanRuns:
    """State of all plans in all scenarios."""

    def __init__(
        self, plans: Sequence[NodePlan], case: DeadlineCase, scenarios: BagScenarios
    ) -> None:
        self._case, self._scenarios, self.error = case, scenarios, scenarios.error
        self._pace = case.work.pace
        shape = (len(plans), scenarios.count)
        self._nodes = np.array([plan.queues for plan in plans], float).reshape(len(plans), -1)
        # the true work of each scenario, which decisions see only once tasks have run
        self.left = np.tile(case.work.total_s * scenarios.error, (len(plans), 1))
        self.open = np.ones(shape, np.bool_)
        self.end_s = np.full(shape, np.inf)
        self.cost_usd, self.node_s, self._busy_s = (np.zeros(shape) for _ in range(3))
        workers = self._nodes @ np.array([queue.workers for queue in case.queues], float)
        if case.cloud is not None:
            workers += np.array([plan.cloud for plan in plans]) * case.cloud.workers
        tails_s = np.array([case.work.tail_s(count) for count in workers])
        self.tail_s: Floats = tails_s[:, None] * scenarios.error

    @property
    def expected(self) -> Floats:
        """Return the work left by the estimate."""
        return self.left / self.error

    @property
    def visible(self) -> Floats:
        """Return the work left as decisions see it: by the estimate until tasks have run."""
        noticed = self._busy_s > self._case.work.mean_s * _NOTICED * self.error
        return np.where(noticed, self.left, self.expected)

    def queues(self, step: int) -> tuple[Floats, Floats]:
        """Return the workers in queues' nodes, and the work that those will still do."""
        power, promised_s = np.zeros(self.left.shape), np.zeros(self.left.shape)
        step_s = self._case.step_s
        usable_s = np.maximum(0.0, self._case.deadline_s - self.tail_s - step * step_s)
        for nodes, queue, active, left_s in zip(
            self._nodes.T,
            self._case.queues,
            self._scenarios.active,
            self._scenarios.left_s,
            strict=True,
        ):
            # nodes that run already, then new ones: they start and end at different times
            blocks = (np.minimum(nodes, queue.running), np.maximum(0.0, nodes - queue.running))
            for count, share, remaining_s in zip(blocks, active, left_s, strict=True):
                if not count.any():
                    continue
                there = count[:, None] * share[:, step]
                power += queue.workers * there
                promised_s += (queue.workers * count[:, None]) * np.minimum(
                    remaining_s[:, step], usable_s
                )
                used_s = self.open * there * step_s
                self.node_s += used_s
                if queue.usd_per_hour:
                    # arrays, a number for each scenario
                    # ast-grep-ignore: one-bill
                    self.cost_usd += used_s / 3600.0 * queue.usd_per_hour
        return power, promised_s

    def lost_s(self, left: Floats, workers: Floats) -> Floats:
        """Return how much longer ``left`` worker seconds take because not all may run at once."""
        if self._pace is None:
            return np.zeros(left.shape)
        tasks = self.left / (self._case.work.each_s * self._scenarios.error)
        each_s = np.divide(left, tasks, out=np.zeros(left.shape), where=tasks > 0)
        return self._pace.rounds_lost(tasks, workers) * each_s

    def _paced(self, pace: LevelPace, power: Floats, each_s: Floats) -> tuple[Floats, Floats]:
        """Return the work of a step where not all tasks may run at once, and the share of the step
        that it takes."""
        done, share = np.zeros(power.shape), np.ones(power.shape)
        each_s = np.broadcast_to(each_s, power.shape)[self.open]
        left, step_s = self.left[self.open], self._case.step_s
        tasks, share[self.open] = pace.progress(left / each_s, power[self.open], step_s / each_s)
        done[self.open] = np.where(share[self.open] < 1.0, left, tasks * each_s)
        return done, share

    def work(self, step: int, power: Floats, cloud: _CloudNodes | None) -> None:
        """Do the work of a step."""
        step_s, work = self._case.step_s, self._case.work
        each_s = work.each_s * self._scenarios.error
        power = np.minimum(power, work.rate * each_s)
        done = power * step_s
        share = np.divide(self.left, done, out=np.zeros(done.shape), where=done > 0)
        self._busy_s += (power > 0.0) * step_s
        if self._pace is not None:
            done, share = self._paced(self._pace, power, each_s)
        over = self.open & (done >= self.left) & (self.left > 0)
        if over.any():
            end_s = step * step_s + share * step_s + self.tail_s
            self.end_s = np.where(over, end_s, self.end_s)
            if cloud is not None:
                self.cost_usd -= over * cloud.unused_usd(share)
            self.open &= ~over
        self.left = np.maximum(0.0, self.left - done)


class _CloudNodes:
    """The nodes of a cloud for all plans in all scenarios. ``power``: their workers in the current
    step."""

    def __init__(
        self,
        plans: Sequence[NodePlan],
        case: DeadlineCase,
        cloud: NodeSource,
        table: DecisionTable,
        count: int,
    ) -> None:
        self._case, self._cloud, self._table = case, cloud, table
        shape = (len(plans), count)
        self._nodes = np.array([[float(plan.cloud)] for plan in plans])
        self._nodes = np.tile(self._nodes, (1, count))
        self.growth: _Growth | None = None
        self._reserve = np.array([[1.0 + plan.reserve] for plan in plans])
        self._market = np.full(shape, MARKETS.index(cloud.market))
        self._restart_left_s = np.zeros(shape)
        # one instant for all nodes of a plan: with more nodes than run now, none counts as paid
        self._paid_until_s = np.where(self._nodes <= cloud.running, cloud.paid_s, np.zeros(shape))
        self._taken_back = np.zeros(shape, np.bool_)
        """Running tasks were lost, half a run time of each, and are repeated after the start."""
        prices = np.array([0.0, cloud.spot_usd_per_hour or 0.0, cloud.usd_per_hour])
        self._prices = prices / 3600.0
        self.power = np.zeros(shape)

    def decide(
        self, step: int, left: Floats, promised_s: Floats, run: _PlanRuns, scenarios: BagScenarios
    ) -> None:
        """Choose the market of a step, pay for it, and let nodes start."""
        now_s, step_s = step * self._case.step_s, self._case.step_s
        work_s = np.maximum(0.0, left * self._reserve - promised_s)
        available, ages = scenarios.spot[:, step], scenarios.ages[:, step]
        lost = (self._market == SPOT) & ~available
        # a period that was paid ends with the node that is taken back
        self._paid_until_s[lost] = now_s
        self._market[lost] = NONE
        self._taken_back |= lost
        until_s = self._case.deadline_s - now_s
        if self.growth is not None:
            self._grow(self.growth, step, work_s, run)
        # plans without nodes of the cloud are in the same arrays: no division by zero
        workers = np.maximum(1.0, self._nodes) * self._cloud.workers
        each_s = work_s / workers
        each_s += (each_s > 0.0) * run.lost_s(left, workers) * self._reserve
        slack_s = until_s - run.tail_s - each_s - self._restart_left_s
        usable_s = np.maximum(0.0, until_s - run.tail_s.mean(axis=1, keepdims=True))
        chosen = self._table.choices(usable_s, slack_s, available, ages, self._market)
        chosen = np.where(each_s > 0.0, chosen, NONE)
        is_paid = self._paid_until_s > now_s + 1e-6
        # what is paid for is used to its end, unless only on-demand nodes can still be in time
        chosen = np.where(is_paid & (chosen != ON_DEMAND), self._market, chosen)
        renews = run.open & (chosen != NONE) & ((chosen != self._market) | ~is_paid)
        period_s = max(self._cloud.billing_s, step_s)
        price = self._prices[chosen] * (self._nodes * period_s)
        if self._case.budget_usd is not None:
            refused = renews & (run.cost_usd + price > self._case.budget_usd + 1e-9)
            chosen, renews = np.where(refused, NONE, chosen), renews & ~refused
        run.cost_usd += renews * price
        self._paid_until_s[renews] = now_s + period_s
        self._start(chosen, run)

    def _start(self, chosen: Markets, run: _PlanRuns) -> None:
        """Let nodes start on the chosen market, and count their workers of the step."""
        step_s = self._case.step_s
        starts = (chosen != self._market) & (chosen != NONE)
        self._restart_left_s[starts] = self._cloud.boot_s
        again = starts & self._taken_back
        self._restart_left_s[again] += self._case.work.mean_s / 2.0
        self._taken_back &= ~starts
        busy = chosen != NONE
        self._restart_left_s *= busy
        self._market = chosen
        starting_s = np.minimum(self._restart_left_s, step_s)
        self._restart_left_s -= starting_s
        working = self._nodes * (1.0 - starting_s / step_s)
        if self.growth is not None:
            working -= self.growth.starting(step_s, starts)
        self.power = busy * (self._cloud.workers * working)
        run.node_s += (run.open & busy) * (self._nodes * step_s)

    def _grow(self, growth: _Growth, step: int, work_s: Floats, run: _PlanRuns) -> None:
        """Start the nodes that lack for this work, and pay for them."""
        now_s = step * self._case.step_s
        usable_s = self._case.deadline_s - now_s - run.tail_s
        starting_s = np.where(self._market == ON_DEMAND, self._restart_left_s, self._cloud.boot_s)
        more = growth.lacking(step, work_s, usable_s, starting_s, self._nodes) * run.open
        rest_s = np.maximum(0.0, self._paid_until_s - now_s)
        price = self._prices[self._market] * rest_s * more
        if self._case.budget_usd is not None:
            more = np.where(run.cost_usd + price > self._case.budget_usd + 1e-9, 0.0, more)
            price = price * (more > 0.0)
        if more.any():
            run.cost_usd += price
            self._nodes += more
            growth.add(more)
            run.tail_s = np.where(more > 0.0, growth.tail_s(self._nodes, run), run.tail_s)

    def unused_usd(self, share: Floats) -> Floats:
        """Return the price of what is left of a step that was paid and is not billed."""
        if self._cloud.billing_s > self._case.step_s:
            return np.zeros(share.shape)
        price: Floats = self._prices[self._market] * self._nodes * self._case.step_s * (1.0 - share)
        return price


class _Growth:
    """Nodes of a cloud that are started because those of the plan can no longer be in time."""

    def __init__(self, plans: Sequence[NodePlan], case: DeadlineCase, cloud: NodeSource) -> None:
        self._case, self._cloud = case, cloud
        counts = [queue.workers for queue in case.queues]
        self._queued = np.array([[float(np.dot(plan.queues, counts))] for plan in plans])
        most = float(self._queued.max()) + cloud.most * cloud.workers
        self._counts = np.unique(np.rint(np.geomspace(1.0, max(1.0, most), _TAILS)))
        self._tails_s = np.array([case.work.tail_s(count) for count in self._counts])
        self._joining: Floats | float = 0.0
        self._joining_s: Floats | float = 0.0
        noticed = int(case.work.mean_s * _NOTICED / case.step_s) + 1
        tenths = case.deadline_s / case.step_s / _REPLANS
        self._steps = {noticed, *(int(tenths * n) + 1 for n in range(1, _REPLANS))}

    def lacking(
        self, step: int, work_s: Floats, usable_s: Floats, starting_s: Floats, nodes: Floats
    ) -> Floats:
        """Return the nodes that lack for the work, as far as there are more. ``usable_s``: until
        the last tasks begin; ``starting_s``: until the present ``nodes`` work on demand."""
        if step not in self._steps:
            return np.zeros(nodes.shape)
        here_s = nodes * np.maximum(0.0, usable_s - starting_s)
        new_s = usable_s - self._cloud.boot_s
        lacks = np.maximum(0.0, work_s / self._cloud.workers - here_s)
        more = np.ceil(np.divide(lacks, new_s, out=np.zeros(nodes.shape), where=new_s > 0.0) - 1e-9)
        return np.minimum(more, self._cloud.most - nodes)

    def add(self, more: Floats) -> None:
        """Let nodes start."""
        self._joining = self._joining + more
        self._joining_s = np.where(more > 0.0, self._cloud.boot_s, self._joining_s)

    def starting(self, step_s: float, starts: Flags) -> Floats:
        """Return the share of a step in which nodes start, times their number; where all ``starts``
        they start with the others."""
        self._joining = np.where(starts, 0.0, self._joining)
        now_s = np.minimum(self._joining_s, step_s)
        result: Floats = self._joining * now_s / step_s
        self._joining_s = self._joining_s - now_s
        self._joining = np.where(self._joining_s > 0.0, self._joining, 0.0)
        return result

    def tail_s(self, nodes: Floats, run: _PlanRuns) -> Floats:
        """Return the tail with so many nodes of the cloud."""
        workers = self._queued + nodes * self._cloud.workers
        tails_s: Floats = np.interp(workers, self._counts, self._tails_s)
        return tails_s * run.error
