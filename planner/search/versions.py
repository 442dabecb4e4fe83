"""Candidate plans with their results, simulated in the same scenarios: what differs between two is
due to the plans."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vgrads.kernel.arrays import Bools, Floats, Ints
from vgrads.planner.effort import Effort
from vgrads.planner.promise.lengths import Lengths, make_lengths
from vgrads.planner.promise.rollout import sample_fates, simulate_some
from vgrads.planner.schedule import ReplicaRows, Schedule, arrange
from vgrads.planner.search.orders import NumberedSet, Orders
from vgrads.vgrid.slot import Slot

_SCENARIOS = (64, 1024)  # fewest and most
_DRAWN, _SIMULATED = 3_000_000, 80_000  # scenarios times tasks, times replicas
_PER_CANDIDATE, _PER_REPLICA = 1_500, 12
"""Effort of making a candidate, and for each of its replicas, in simulated replicas."""


@dataclass(eq=False)
class PlacedOrders:
    """A plan that can be simulated: its replicas with starts, and the slots that it uses."""

    orders: Orders
    starts_s: Floats
    ends_s: Floats
    used: Ints  # slots, by number
    schedule: Schedule
    lengths: Lengths
    fates_s: Floats = field(repr=False)  # scenarios × 2 × slots
    most_usd: float = 0.0


@dataclass(frozen=True, eq=False)
class ScenarioResults:
    """Results in some scenarios, one each: number of workflows done, and cost in USD and
    processor-hours of all slots."""

    done: Ints
    usd: Floats
    hours: Floats


@dataclass(frozen=True, eq=False)
class Version:
    """A candidate with its results in the first scenarios."""

    candidate: PlacedOrders
    outcome: ScenarioResults
    promise: float
    progress: float  # workflows done on average, of the needed ones
    usd: float
    hours: float

    @property
    def orders(self) -> Orders:
        """The plan itself."""
        return self.candidate.orders

    @property
    def most_usd(self) -> float:
        """What counts against the budget: the cost as planned, or on average if that is more."""
        return max(self.candidate.most_usd, self.usd)

    def rank(self, required: float) -> tuple[float, ...]:
        """Return the order of preference, the best highest: the promise up to what is required,
        progress where it falls short, then money, then processor-hours."""
        if self.promise < required:
            return (self.promise, self.progress, -self.usd, -self.most_usd, -self.hours)
        return (required, 0.0, -self.usd, -self.most_usd, -self.hours)


class Simulator:
    """Simulates candidates of one problem while effort is left, in at most ``count`` scenarios."""

    def __init__(self, problem: NumberedSet, effort: Effort) -> None:
        snapshot = problem.snapshot
        self.problem, self.effort, self.snapshot = problem, effort, snapshot
        self.count = min(_choose_between(_DRAWN // len(problem.tasks)), snapshot.scenarios)
        self.needed, self.budget_usd = snapshot.workflow_set.needed, snapshot.workflow_set.most_usd
        self._fates: dict[tuple[int, float], Floats] = {}
        self._keys: set[tuple[object, ...]] = set()

    def is_new(self, orders: Orders) -> bool:
        """True the first time that this is called with these orders."""
        arrays = orders.task, orders.slot, orders.submits_s
        # arrays have no hash, their bytes do
        key = (*(array.tobytes() for array in arrays), orders.spare_workflows)
        before = len(self._keys)
        self._keys.add(key)
        return len(self._keys) > before

    def candidate(self, orders: Orders) -> PlacedOrders | None:
        """Return a plan that can be simulated, without what would end too late, and without the
        paid slots that were offered last if the budget does not suffice; None if too few workflows
        are left."""
        problem = self.problem
        while True:
            if not self.effort.spend(_PER_CANDIDATE + _PER_REPLICA * len(orders.task)):
                return None
            placed = problem.place(orders)
            if placed is None:
                return None
            orders, starts_s = placed
            ends_s = starts_s + problem.lengths_s(orders)
            used, slot = np.unique(orders.slot, return_inverse=True)
            most_usd = self._most_usd(orders, ends_s, used)
            if most_usd <= self.budget_usd + 1e-9:
                break
            # one slot at a time: the next turn computes the cost of the rest, which may suffice
            orders = orders.only(orders.slot != used[problem.paid[used]][-1])
        submits_s = {problem.slots[n].id: float(orders.submits_s[n]) for n in used}
        rows = ReplicaRows(
            slot=slot,
            task=orders.task,
            replica=problem.numbered(orders),
            procs=problem.work.procs[orders.task],
            start_s=starts_s,
            length_s=ends_s - starts_s,
        )
        schedule, _ = arrange(self.snapshot, rows, submits_s)
        return PlacedOrders(
            orders=orders,
            starts_s=starts_s,
            ends_s=ends_s,
            used=used,
            schedule=schedule,
            lengths=make_lengths(self.snapshot, schedule, list(submits_s)),
            fates_s=self._fates_s(orders, used),
            most_usd=most_usd,
        )

    def _most_usd(self, orders: Orders, ends_s: Floats, used: Ints) -> float:
        """Return the cost of slots that are ready at once and held to the end of the last task."""
        if not self.problem.paid[used].any():
            return 0.0
        last_s = np.zeros(len(self.problem.slots))
        np.maximum.at(last_s, orders.slot, ends_s)
        slots = self.problem.slots
        durations_s = (last_s - orders.submits_s).tolist()
        return float(sum(slots[n].cost_usd(durations_s[n]) for n in used.tolist()))

    def _fates_s(self, orders: Orders, used: Ints) -> Floats:
        columns = []
        for n in used.tolist():
            # samples depend on the slot and its request only, which most candidates share
            key = n, float(orders.submits_s[n])
            if key not in self._fates:
                submits_s = {self.problem.slots[n].id: key[1]}
                self._fates[key] = sample_fates(self.snapshot, submits_s, self.count)
            columns.append(self._fates[key])
        return np.concatenate(columns, axis=2)

    def simulate(self, candidate: PlacedOrders, rows: Ints) -> ScenarioResults | None:
        """Simulate a candidate in some scenarios; None if too little effort is left."""
        if not self.effort.spend(len(rows) * len(candidate.orders.task)):
            return None
        # the simulation is compiled anew for an array in another layout
        fates_s = np.ascontiguousarray(candidate.fates_s[rows])
        done_s, until_s = simulate_some(
            self.snapshot,
            candidate.schedule,
            fates_s,
            candidate.orders.spare_workflows,
            (rows, self.count),
            candidate.lengths,
        )
        seconds = np.maximum(until_s - fates_s[:, 0], 0.0)
        # of slots that are never ready
        seconds[~np.isfinite(seconds)] = 0.0
        slots = [self.problem.slots[n] for n in candidate.used]
        usd = np.zeros(len(rows))
        for column, slot in enumerate(slots):
            if slot.paid:
                usd += _compute_costs_usd(slot, seconds[:, column])
        width = self.problem.work.width[candidate.used]
        return ScenarioResults(np.isfinite(done_s).sum(axis=1), usd, seconds @ width / 3600.0)

    def version(self, candidate: PlacedOrders, count: int | None = None) -> Version | None:
        """Simulate a candidate in so many scenarios, by default fewer of a large one; None if too
        little effort is left, or if it costs more than the budget on average."""
        chosen = count or self.usual_count(candidate)
        outcome = self.simulate(candidate, np.arange(chosen))
        if outcome is None or outcome.usd.mean() > self.budget_usd + 1e-9:
            return None
        return Version(
            candidate=candidate,
            outcome=outcome,
            promise=float((outcome.done >= self.needed).mean()),
            progress=float(np.minimum(outcome.done, self.needed).mean()) / self.needed,
            usd=float(outcome.usd.mean()),
            hours=float(outcome.hours.mean()),
        )

    def usual_count(self, candidate: PlacedOrders, share: float = 1.0) -> int:
        """Return the number of scenarios for a candidate, fewer for a large one."""
        return self.within(int(share * _SIMULATED) // len(candidate.orders.task))

    def within(self, count: int) -> int:
        """Return a number of scenarios within the limits."""
        return min(self.count, _choose_between(count))

    def enough(self, version: Version) -> Bools:
        """Return the scenarios in which enough workflows are done."""
        return version.outcome.done >= self.needed


def _choose_between(count: int) -> int:
    return max(_SCENARIOS[0], min(_SCENARIOS[1], count))


def _compute_costs_usd(slot: Slot, seconds: Floats) -> Floats:
    """Return :meth:`vgrads.vgrid.slot.Slot.cost_usd` of many durations."""
    # the price of a duration takes a call in Python: one for each that occurs
    distinct_s, which = np.unique(seconds, return_inverse=True)
    if slot.billing_s > 0:
        # rounding of a sum of times must not begin a further billing unit
        units = np.ceil(distinct_s / slot.billing_s - 1e-9)
        first, counted = np.unique(units, return_inverse=True)
        costs = np.array([slot.cost_usd(n * slot.billing_s) for n in first.tolist()])
        return costs[counted][which]
    return np.array([slot.cost_usd(s) for s in distinct_s.tolist()])[which]
