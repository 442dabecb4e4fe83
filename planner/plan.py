"""A plan: which copy of which task runs where and when, what is promised, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from vgrads.planner.rules import EVERYTHING
from vgrads.planner.snapshot import PLACES, CopyKey, Snapshot, TaskKey
from vgrads.vgrid.slot import Slot

_TOLERANCE_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One copy of one task, in a slot, from ``start_s`` to ``end_s`` on ``procs`` processors."""

    workflow: str
    task: str
    copy: int
    slot: str
    start_s: float
    end_s: float
    procs: int
    probability: float = 0.0

    @property
    def key(self) -> CopyKey:
        return self.workflow, self.task, self.copy

    def as_sure(self, probability: float) -> Placement:
        """The same with its probability; ``dataclasses.replace`` takes five times as long, and
        there are very many."""
        return Placement(
            workflow=self.workflow,
            task=self.task,
            copy=self.copy,
            slot=self.slot,
            start_s=self.start_s,
            end_s=self.end_s,
            procs=self.procs,
            probability=probability,
        )

    @property
    def task_key(self) -> TaskKey:
        return self.workflow, self.task


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Probability that at least the needed number of workflows is done by the deadline.

    ``cautious`` counts as lost whatever is not ready at its planned instant: the phases reckon so.
    """

    probability: float
    standard_error: float
    by_workflow: Mapping[str, float]
    cautious: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseReport:
    """What a phase did, with the numbers that decided."""

    name: str
    seconds: float
    placed: int
    probability_before: float
    probability_after: float
    steps: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUse:
    """A slot that the plan uses: when to ask for it, from when to when, how sure, at what cost."""

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
    """A task that need not run: ``run`` made what it would make, and ``folder`` holds it."""

    workflow: str
    task: str
    run: str
    folder: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The decision for a whole set. ``lacking`` says why a plan that is not feasible is not;
    ``spare``: how many workflows beyond the needed must stand whole in slots that are there before
    the rest is withdrawn; ``places``: for which quantile of run times it was made
    (:class:`vgrads.planner.snapshot.Snapshot`); ``run_times``: what those of each kind of task rest
    on; ``notes``: what it does not cover, as its workflows' files say; ``done``: tasks that an
    earlier run did, and that it does not hold; ``expected_usd``, ``expected_hours``: money and
    processor-hours of the slots on average, given back when nothing is left for them."""

    set_name: str
    deadline_s: float
    needed: int
    asked_probability: float
    feasible: bool
    lacking: str
    promise: Promise
    placements: tuple[Placement, ...]
    uses: tuple[SlotUse, ...]
    phases: tuple[PhaseReport, ...]
    reasons: Mapping[CopyKey, Mapping[str, Any]] = field(default_factory=dict)
    relaxations: tuple[Relaxation, ...] = ()
    policy: str = "vgrads"
    spare: int = EVERYTHING
    places: float = PLACES[0]
    run_times: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    done: tuple[Done, ...] = ()
    expected_usd: float = 0.0
    expected_hours: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def scheduled(self) -> int:
        """Workflows that stand in the plan as a whole."""
        return len({placement.workflow for placement in self.placements})

    @property
    def cost_usd(self) -> float:
        """What counts against the budget: money for the slots as planned, or on average where that
        is more, as where tasks may take longer than planned."""
        return round(max(sum(use.cost_usd for use in self.uses), self.expected_usd), 2)

    @property
    def kept_as_asked(self) -> bool:
        """True where the promise is at least as sure as was asked."""
        return self.feasible and self.promise.probability >= self.asked_probability

    def check(self, snapshot: Snapshot) -> None:
        """Precedence with transfers, capacity, slot bounds, twins apart, deadline, budget."""
        for problem in self.problems(snapshot):
            raise AssertionError(problem)

    def problems(self, snapshot: Snapshot) -> list[str]:
        """Everything that :meth:`check` would complain of."""
        snapshot = replace(snapshot, places=self.places)
        return [
            *_whole_workflows(self, snapshot),
            *_bounds(self, snapshot),
            *_twins(self),
            *_capacity(self, snapshot),
            *_precedence(self, snapshot),
            *_budget(self, snapshot),
        ]


def in_order(placements: Iterable[Placement], snapshot: Snapshot) -> list[Placement]:
    """The order in which slots take copies: by planned start and end, and what lasts no time behind
    what it needs."""
    ranks = {name: flow.shape.rank for name, flow in snapshot.workflow_by_name.items()}
    turns = [
        (
            round(p.start_s, 6),
            round(p.end_s, 6),
            ranks[p.workflow][p.task],
            p.workflow,
            p.task,
            p.copy,
            p,
        )
        for p in placements
    ]
    turns.sort(key=itemgetter(0, 1, 2, 3, 4, 5))
    return [turn[6] for turn in turns]


def _whole_workflows(plan: Plan, snapshot: Snapshot) -> list[str]:
    placed = {p.task_key for p in plan.placements}
    names = {workflow for workflow, _ in placed}
    wanted = {(name, task) for name in names for task in snapshot.workflow_by_name[name].tasks}
    return [
        f"task {key} of a scheduled workflow is placed nowhere" for key in sorted(wanted - placed)
    ]


def _bounds(plan: Plan, snapshot: Snapshot) -> list[str]:
    found = []
    for p in plan.placements:
        slot, task = snapshot.slot_by_id[p.slot], snapshot.task(p.task_key)
        if not slot.holds(task.needs):
            found.append(f"{p.key} does not fit into its slot")
        if p.start_s < -_TOLERANCE_S or p.end_s > min(slot.end_s, plan.deadline_s) + _TOLERANCE_S:
            found.append(f"{p.key} runs {p.start_s}–{p.end_s}, beyond its slot or the deadline")
        if (
            abs(p.end_s - p.start_s - snapshot.duration_s(task, slot)) > _TOLERANCE_S
            or p.procs != task.procs
        ):
            found.append(f"{p.key} is planned for another run time or width than its task has")
    return found


def _twins(plan: Plan) -> list[str]:
    seen = set()
    found = []
    for p in plan.placements:
        if (p.task_key, p.slot) in seen:
            found.append(f"two copies of {p.task_key} in slot {p.slot}")
        seen.add((p.task_key, p.slot))
    return found


def _capacity(plan: Plan, snapshot: Snapshot) -> list[str]:
    steps: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for p in plan.placements:
        if p.end_s > p.start_s:
            steps[p.slot] += [(p.start_s + _TOLERANCE_S, p.procs), (p.end_s, -p.procs)]
    found = []
    for slot_id, changes in steps.items():
        used = 0
        for instant_s, change in sorted(changes):
            used += change
            if used > snapshot.slot_by_id[slot_id].procs:
                found.append(f"slot {slot_id} holds {used} processors at {instant_s:.1f} s")
                break
    return found


def _precedence(plan: Plan, snapshot: Snapshot) -> list[str]:
    copies: dict[TaskKey, list[Placement]] = defaultdict(list)
    for p in plan.placements:
        copies[p.task_key].append(p)
    found = []
    for p in plan.placements:
        workflow, site = snapshot.workflow_by_name[p.workflow], snapshot.slot_by_id[p.slot].site
        for parent in workflow.tasks[p.task].parents:
            arrivals = [
                q.end_s
                + snapshot.transfer_s(
                    workflow, parent, p.task, (snapshot.slot_by_id[q.slot].site, site)
                )
                for q in copies[p.workflow, parent]
            ]
            if not arrivals or min(arrivals) > p.start_s + _TOLERANCE_S:
                found.append(f"{p.key} starts before the data of {parent} can be there")
    return found


def _budget(plan: Plan, snapshot: Snapshot) -> list[str]:
    budget = snapshot.wanted.budget_usd
    if budget is not None and plan.cost_usd > budget + 1e-9:
        return [f"the plan costs {plan.cost_usd} of a budget of {budget}"]
    return []
