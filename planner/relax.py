"""Relaxations: the smallest change of each kind with which the request is met.

Each is verified by planning and simulation: no relaxation is proposed that was not tried, or that
falls short of the requested probability. A later deadline needs new offers, because slots end with
it, so the caller passes a function that returns the snapshot of a changed set.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from vgrads.kernel.compiled import working_time_s
from vgrads.kernel.progress import progress_to, report_progress
from vgrads.planner.make import STANDARD, Options, make_plan
from vgrads.planner.plan import Plan, Relaxation
from vgrads.planner.snapshot import Snapshot
from vgrads.workflows.sets import WorkflowSet

Ask = Callable[[WorkflowSet], Snapshot]
Try = Callable[[float], Plan]
_LATER = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0, 400.0, 3600.0)
"""Later deadlines that are tried, as multiples of the deadline, before the least is narrowed down;
the last ones for deadlines in a mistaken unit."""
_LATER_ROUGHLY = (1.5, 3.0, 10.0, 60.0, 3600.0)
_EACH = 0.1  # share of the effort of a kind of change for each plan
_NARROWINGS = 5
_SMALL = 600  # tasks up to which every change is tried, in fine steps


def relaxations(
    snapshot: Snapshot, ask: Ask, options: Options = STANDARD
) -> tuple[Relaxation, ...]:
    """Return relaxations of a set whose request cannot be met: fewer workflows, later deadline,
    more money, wider slot; each alone.

    Each kind has a share of the effort, in processor time: when it is used up, the least change
    so far counts. The changes of large sets are verified by the four phases alone.
    """
    tasks = snapshot.workflow_set.task_count
    kinds = (_fewer, _later, _dearer, _wider) if tasks <= _SMALL else (_fewer, _later)
    results: list[Relaxation] = []
    for number, kind in enumerate(kinds):
        report_progress("looking for changes that meet the request", number, len(kinds))
        effort = _Effort(options, options.effort_s / len(kinds), tasks <= _SMALL)
        results += kind(snapshot, ask, effort)
    return tuple(results)


class _Effort:
    """Planning of changed sets until the effort of one kind of change is used up."""

    def __init__(self, options: Options, effort_s: float, small: bool) -> None:
        each_s = _EACH * effort_s if small else 0.0
        self.options = replace(options, effort_s=each_s)
        self._over_at = working_time_s() + effort_s

    @property
    def left(self) -> bool:
        """True while effort is left."""
        return working_time_s() < self._over_at

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan a changed set. The phases of its plan are not those of the caller's."""
        with progress_to(None):
            return make_plan(snapshot, self.options)


def _relaxed(plan: Plan, change: str, amount: float, unit: str) -> Relaxation:
    return Relaxation(
        change=change,
        amount=amount,
        unit=unit,
        probability=plan.promise.probability,
        cost_usd=plan.cost_usd,
    )


def _least(
    try_with: Try, effort: _Effort, grid: Sequence[float], low: float, close: float
) -> tuple[float, Plan] | None:
    """Return the least amount that meets the request: of a rising grid, by bisection, whatever
    effort is left, because that takes few plans; then bisected to within ``close`` as long as
    effort is left. None if none is found."""
    plans: dict[float, Plan] = {}

    def meets(amount: float) -> bool:
        plans[amount] = try_with(amount)
        return plans[amount].meets_request

    number = bisect_left(grid, True, key=meets)
    if number == len(grid):
        return None
    high, low = grid[number], grid[number - 1] if number else low
    plan = plans[high]
    while high - low > close and effort.left:
        middle = (low + high) / 2
        trial = try_with(middle)
        low, high, plan = (low, middle, trial) if trial.meets_request else (middle, high, plan)
    return high, plan


def _fewer(snapshot: Snapshot, _: Ask, effort: _Effort) -> Iterator[Relaxation]:
    """Fewer workflows: as many as reach the requested probability."""
    workflow_set, low, high = snapshot.workflow_set, 0, snapshot.workflow_set.needed
    best: Plan | None = None
    while high - low > 1 and (effort.left or best is None):
        middle = (low + high) // 2
        plan = effort.plan(replace(snapshot, workflow_set=replace(workflow_set, needed=middle)))
        low, high, best = (middle, high, plan) if plan.meets_request else (low, middle, best)
    if best is not None:
        yield _relaxed(best, "fewer workflows", float(workflow_set.needed - low), "workflows")


def _later(snapshot: Snapshot, ask: Ask, effort: _Effort) -> Iterator[Relaxation]:
    """A later deadline."""
    workflow_set = snapshot.workflow_set
    small = workflow_set.task_count <= _SMALL
    factors = _LATER if small else _LATER_ROUGHLY

    def try_by(deadline_s: float) -> Plan:
        return effort.plan(ask(replace(workflow_set, deadline_s=deadline_s)))

    grid = [workflow_set.deadline_s * factor for factor in factors]
    rough_s = (grid[0] - workflow_set.deadline_s) / 2
    close_s = rough_s / 2**_NARROWINGS if small else rough_s
    result = _least(
        try_by, effort, grid, workflow_set.deadline_s, max(close_s, 0.02 * workflow_set.deadline_s)
    )
    if result is not None:
        yield _relaxed(result[1], "a later deadline", result[0] - workflow_set.deadline_s, "s")


def _dearer(snapshot: Snapshot, _: Ask, effort: _Effort) -> Iterator[Relaxation]:
    """More money, if the budget is the limit and something can be bought."""
    workflow_set = snapshot.workflow_set
    if workflow_set.budget_usd is None or not any(slot.paid for slot in snapshot.slots):
        return
    free = effort.plan(replace(snapshot, workflow_set=replace(workflow_set, budget_usd=None)))
    if not free.meets_request or free.cost_usd <= workflow_set.budget_usd:
        return

    def try_for(usd: float) -> Plan:
        return effort.plan(replace(snapshot, workflow_set=replace(workflow_set, budget_usd=usd)))

    more_usd = free.cost_usd - workflow_set.budget_usd
    result = _least(
        try_for,
        effort,
        [free.cost_usd],
        workflow_set.budget_usd,
        max(0.01, more_usd / 2**_NARROWINGS),
    )
    if result is not None:
        plan = result[1]
        more = max(0.01, plan.cost_usd - workflow_set.budget_usd)
        yield _relaxed(plan, "a larger budget", round(more, 2), "USD")


def _wider(snapshot: Snapshot, _: Ask, effort: _Effort) -> Iterator[Relaxation]:
    """More processors in the most probable free slot, up to all that its queue offers."""
    free = [slot for slot in snapshot.slots if not slot.paid and slot.curve.milestones]
    if not free:
        return
    surest = max(free, key=lambda slot: slot.curve.probabilities[-1] * slot.up)
    most = sum(slot.procs for slot in snapshot.slots if slot.shared == surest.shared) - surest.procs

    def try_with(more: float) -> Plan:
        slots = tuple(
            replace(s, procs=s.procs + round(more)) if s is surest else s for s in snapshot.slots
        )
        return effort.plan(replace(snapshot, slots=slots))

    steps = (surest.procs // 2, surest.procs, 2 * surest.procs, 4 * surest.procs, most)
    grid = sorted({float(min(step, most)) for step in steps if step > 0})
    result = _least(try_with, effort, grid, 0.0, max(1.0, most / 16)) if most > 0 else None
    if result is not None:
        amount = float(round(result[0]))
        yield _relaxed(result[1], f"more processors in {surest.id}", amount, "processors")
