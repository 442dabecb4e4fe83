"""A plan: replicas of tasks with their slots and times, the promise, and the reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vgrads.kernel.arrays import Floats, Ints
from vgrads.planner.snapshot import QUANTILE_LEVELS, ReplicaKey, Snapshot, TaskKey
from vgrads.vgrid.slot import Slot

EVERYTHING = 2**30
"""``spare_workflows`` of a plan without early release before enough is done."""
_TOLERANCE_S = 1e-6


@dataclass(frozen=True, slots=True)
class Placement:
    """One replica of one task, in a slot, from ``start_s`` to ``end_s`` on ``procs`` processors.

    Where very many are created, the arguments are positional: that takes half as long.
    """

    workflow: str
    task: str
    replica: int
    slot: str
    start_s: float
    end_s: float
    procs: int
    probability: float = 0.0

    @property
    def key(self) -> ReplicaKey:
        return self.workflow, self.task, self.replica

    def with_probability(self, probability: float) -> Placement:
        """Return the same with a probability; ``dataclasses.replace`` takes ten times as long."""
        return Placement(
            self.workflow,
            self.task,
            self.replica,
            self.slot,
            self.start_s,
            self.end_s,
            self.procs,
            probability,
        )

    @property
    def task_key(self) -> TaskKey:
        return self.workflow, self.task


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Probability that at least the needed number of workflows is done by the deadline.

    ``cautious`` counts a task as lost if its slot is not ready at its planned start: the phases
    compute in this way. Never above ``probability``: a replica that starts late can delay others,
    and then the simulation, in other scenarios, has less.
    """

    probability: float
    standard_error: float
    by_workflow: Mapping[str, float]
    cautious: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseReport:
    """Changes made by a phase, with the numbers that decided."""

    name: str
    seconds: float
    placed: int
    probability_before: float
    probability_after: float
    steps: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUse:
    """A slot that the plan uses: when to request it, start, end, probability and cost."""

    slot: Slot
    submit_s: float
    start_s: float
    end_s: float
    probability: float
    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """The smallest change of one kind with which the minimum can be placed, verified by
    planning."""

    change: str
    amount: float
    unit: str
    probability: float
    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A task that need not run: ``run`` produced its outputs, and ``folder`` holds them."""

    workflow: str
    task: str
    run: str
    folder: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The decision for a whole set. ``lacking``: why a plan is not feasible, or its promise below
    the request; ``dropped``: workflows that are not in it, with the reason; ``spare_workflows``:
    number of workflows beyond the needed that must be complete in ready slots before early release;
    ``quantile``: of the run times that it was made for
    (:class:`vgrads.planner.snapshot.Snapshot`); ``run_times``: basis of the run times of each kind
    of task; ``notes``: limitations, from its workflows' files; ``done``: tasks that an earlier run
    completed and that the plan omits; ``expected_usd``, ``expected_hours``: money and
    processor-hours of the slots on average, released when nothing is left for them."""

    set_name: str
    deadline_s: float
    needed: int
    requested_probability: float
    feasible: bool
    lacking: str
    promise: Promise
    placements: tuple[Placement, ...]
    uses: tuple[SlotUse, ...]
    phases: tuple[PhaseReport, ...]
    reasons: Mapping[ReplicaKey, Mapping[str, Any]] = field(default_factory=dict)
    relaxations: tuple[Relaxation, ...] = ()
    policy: str = "vgrads"
    spare_workflows: int = EVERYTHING
    quantile: float = QUANTILE_LEVELS[0]
    run_times: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    done: tuple[Done, ...] = ()
    dropped: Mapping[str, str] = field(default_factory=dict)
    expected_usd: float = 0.0
    expected_hours: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def scheduled(self) -> int:
        """Number of workflows that are completely in the plan."""
        return len({placement.workflow for placement in self.placements})

    @property
    def cost_usd(self) -> float:
        """Cost that counts against the budget: of the slots as planned, or on average if that is
        more, for example if tasks may take longer than planned."""
        return round(max(sum(use.cost_usd for use in self.uses), self.expected_usd), 2)

    @property
    def meets_request(self) -> bool:
        """True if the promise reaches the requested probability."""
        return self.feasible and self.promise.probability >= self.requested_probability

    def check(self, snapshot: Snapshot) -> None:
        """Check precedence with transfers, capacity, slot bounds, separation of replicas, deadline,
        budget."""
        for problem in self.problems(snapshot):
            raise AssertionError(problem)

    def problems(self, snapshot: Snapshot) -> list[str]:
        """Return all violations that :meth:`check` would report."""
        snapshot = replace(snapshot, quantile=self.quantile)
        return [
            *_check_whole_workflows(self, snapshot),
            *_check_bounds(self, snapshot),
            *_check_twins(self),
            *_check_capacity(self, snapshot),
            *_check_precedence(self, snapshot),
            *_check_budget(self, snapshot),
        ]


def order_by_queue(uses: Iterable[SlotUse]) -> tuple[SlotUse, ...]:
    """Return the same uses, in the order of their offers, with no free slot of a queue requested
    after a later one of that queue.

    The curve of an offer assumes that only the earlier offers of its queue wait before it. A slot
    that is requested after a later one has more jobs before it, and starts later than its curve
    states. Requested earlier, it is ready by each instant with at least the same probability. Slots
    that cost money are left as planned: earlier requests would cost more.
    """
    limits_s: dict[str, float] = {}
    results: list[SlotUse] = []
    for use in reversed(tuple(uses)):
        slot = use.slot
        submit_s = min(use.submit_s, limits_s.get(slot.shared, use.submit_s))
        moved = slot.queue and not slot.fixed and not slot.paid
        results.append(replace(use, submit_s=submit_s) if moved else use)
        limits_s[slot.shared] = submit_s
    return tuple(reversed(results))


def order_replicas(placements: Iterable[Placement], snapshot: Snapshot) -> list[Placement]:
    """Return the order in which slots start replicas: by planned start and end, and tasks of zero
    length after their parents."""
    rows = list(placements)
    ranks = {name: flow.shape.rank for name, flow in snapshot.workflow_by_name.items()}
    turns = {name: n for n, name in enumerate(sorted(ranks))}
    keys = order_keys(
        start_s=np.array([p.start_s for p in rows]),
        end_s=np.array([p.end_s for p in rows]),
        rank=np.array([ranks[p.workflow][p.task] for p in rows], np.int64),
        turn=np.array([turns[p.workflow] for p in rows], np.int64),
        replica=np.array([p.replica for p in rows], np.int64),
    )
    return [rows[n] for n in np.lexsort(keys).tolist()]


def order_keys(
    *, start_s: Floats, end_s: Floats, rank: Ints, turn: Ints, replica: Ints
) -> tuple[Ints | Floats, ...]:
    """Return the keys of :func:`order_replicas` for ``np.lexsort``: the last one counts first.
    ``rank``: position of the task in its workflow, ``turn``: of the workflow among all, by name."""
    # rounded: sums of the same times in another order must not change the order
    return replica, turn, rank, end_s.round(6), start_s.round(6)


def _check_whole_workflows(plan: Plan, snapshot: Snapshot) -> list[str]:
    placed = {p.task_key for p in plan.placements}
    names = {workflow for workflow, _ in placed}
    keys = {(name, task) for name in names for task in snapshot.workflow_by_name[name].tasks}
    return [f"task {key} of a scheduled workflow is not placed" for key in sorted(keys - placed)]


def _check_bounds(plan: Plan, snapshot: Snapshot) -> list[str]:
    results = []
    for p in plan.placements:
        slot, task = snapshot.slot_by_id[p.slot], snapshot.task(p.task_key)
        if not slot.holds(task.needs):
            results.append(f"{p.key} does not fit into its slot")
        if p.start_s < -_TOLERANCE_S or p.end_s > min(slot.end_s, plan.deadline_s) + _TOLERANCE_S:
            results.append(f"{p.key} runs {p.start_s}–{p.end_s}, beyond its slot or the deadline")
        if (
            abs(p.end_s - p.start_s - snapshot.duration_s(task, slot)) > _TOLERANCE_S
            or p.procs != task.procs
        ):
            results.append(f"{p.key} is planned for another run time or width than its task has")
    return results


def _check_twins(plan: Plan) -> list[str]:
    names = set()
    results = []
    for p in plan.placements:
        if (p.task_key, p.slot) in names:
            results.append(f"two replicas of {p.task_key} in slot {p.slot}")
        names.add((p.task_key, p.slot))
    return results


def _check_capacity(plan: Plan, snapshot: Snapshot) -> list[str]:
    steps: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for p in plan.placements:
        # a task of no length takes no processor
        if p.end_s > p.start_s:
            # rounding must not let a task overlap the one after which it starts
            steps[p.slot] += [(p.start_s + _TOLERANCE_S, p.procs), (p.end_s, -p.procs)]
    results = []
    for slot_id, changes in steps.items():
        used = 0
        for instant_s, change in sorted(changes):
            used += change
            if used > snapshot.slot_by_id[slot_id].procs:
                results.append(f"slot {slot_id} holds {used} processors at {instant_s:.1f} s")
                break
    return results


def _check_precedence(plan: Plan, snapshot: Snapshot) -> list[str]:
    return find_precedence_problems(plan.placements, snapshot)


def find_precedence_problems(placements: Sequence[Placement], snapshot: Snapshot) -> list[str]:
    """Return a sentence for each replica that starts before its data can be available."""
    replicas: dict[TaskKey, list[Placement]] = defaultdict(list)
    for p in placements:
        replicas[p.task_key].append(p)
    results = []
    for p in placements:
        workflow, site = snapshot.workflow_by_name[p.workflow], snapshot.slot_by_id[p.slot].site
        for parent in workflow.tasks[p.task].parents:
            arrivals = [
                q.end_s
                + snapshot.transfer_s(
                    workflow, parent, p.task, (snapshot.slot_by_id[q.slot].site, site)
                )
                for q in replicas[p.workflow, parent]
            ]
            if not arrivals or min(arrivals) > p.start_s + _TOLERANCE_S:
                results.append(f"{p.key} starts before the data of {parent} can be available")
    return results


def _check_budget(plan: Plan, snapshot: Snapshot) -> list[str]:
    budget = snapshot.workflow_set.budget_usd
    if budget is not None and plan.cost_usd > budget + 1e-9:
        return [f"the plan costs {plan.cost_usd} of a budget of {budget}"]
    return []
