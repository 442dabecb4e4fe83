"""Relaxations: the smallest change of each kind with which the request is met.

Each is verified by planning and simulation: no relaxation is proposed that was not tried, or that
falls short of the requested probability. A later deadline needs new offers, because slots end with
it, so the caller passes a function that returns the snapshot of a changed set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from vgrads.planner.make import STANDARD, Options, plan_alone
from vgrads.planner.plan import Plan, Relaxation
from vgrads.planner.snapshot import Snapshot
from vgrads.workflows.sets import WorkflowSet

Ask = Callable[[WorkflowSet], Snapshot]
Try = Callable[[float], Plan]
_LATER = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)  # times the deadline, before it is narrowed
_LATER_ROUGHLY = (1.5, 3.0, 10.0)
_NARROWINGS = 5
_SMALL = 600  # tasks up to which every change is tried, in fine steps


def relaxations(
    snapshot: Snapshot, ask: Ask, options: Options = STANDARD
) -> tuple[Relaxation, ...]:
    """Return relaxations of a set whose request cannot be met: fewer workflows, later deadline,
    more money, wider slot; each alone."""
    tasks = sum(len(workflow.tasks) for workflow in snapshot.workflow_set.workflows)
    kinds = (_fewer, _later, _dearer, _wider) if tasks <= _SMALL else (_fewer, _later)
    return tuple(relaxation for kind in kinds for relaxation in kind(snapshot, ask, options))


def _relaxed(plan: Plan, change: str, amount: float, unit: str) -> Relaxation:
    return Relaxation(
        change=change,
        amount=amount,
        unit=unit,
        probability=plan.promise.probability,
        cost_usd=plan.cost_usd,
    )


def _least(
    try_with: Try, grid: Sequence[float], low: float, close: float
) -> tuple[float, Plan] | None:
    """Return the least amount that meets the request: the first of a rising grid that does, then
    bisected to within ``close``; None if none does."""
    for amount in grid:
        plan = try_with(amount)
        if plan.meets_request:
            high = amount
            break
        low = amount
    else:
        return None
    while high - low > close:
        middle = (low + high) / 2
        trial = try_with(middle)
        low, high, plan = (low, middle, trial) if trial.meets_request else (middle, high, plan)
    return high, plan


def _fewer(snapshot: Snapshot, _: Ask, options: Options) -> Iterator[Relaxation]:
    """Fewer workflows: as many as reach the requested probability."""
    workflow_set, low, high = snapshot.workflow_set, 0, snapshot.workflow_set.needed
    best: Plan | None = None
    while high - low > 1:
        middle = (low + high) // 2
        plan = plan_alone(
            replace(snapshot, workflow_set=replace(workflow_set, needed=middle)), options
        )
        low, high, best = (middle, high, plan) if plan.meets_request else (low, middle, best)
    if best is not None:
        yield _relaxed(best, "fewer workflows", float(workflow_set.needed - low), "workflows")


def _later(snapshot: Snapshot, ask: Ask, options: Options) -> Iterator[Relaxation]:
    """A later deadline."""
    workflow_set = snapshot.workflow_set
    small = sum(len(workflow.tasks) for workflow in workflow_set.workflows) <= _SMALL
    factors = _LATER if small else _LATER_ROUGHLY

    def try_by(deadline_s: float) -> Plan:
        return plan_alone(ask(replace(workflow_set, deadline_s=deadline_s)), options)

    grid = [workflow_set.deadline_s * factor for factor in factors]
    rough_s = (grid[0] - workflow_set.deadline_s) / 2
    close_s = rough_s / 2**_NARROWINGS if small else rough_s
    result = _least(
        try_by, grid, workflow_set.deadline_s, max(close_s, 0.02 * workflow_set.deadline_s)
    )
    if result is not None:
        yield _relaxed(result[1], "a later deadline", result[0] - workflow_set.deadline_s, "s")


def _dearer(snapshot: Snapshot, _: Ask, options: Options) -> Iterator[Relaxation]:
    """More money, if the budget is the limit and something can be bought."""
    workflow_set = snapshot.workflow_set
    if workflow_set.budget_usd is None or not any(slot.paid for slot in snapshot.slots):
        return
    free = plan_alone(
        replace(snapshot, workflow_set=replace(workflow_set, budget_usd=None)), options
    )
    if not free.meets_request or free.cost_usd <= workflow_set.budget_usd:
        return

    def try_for(usd: float) -> Plan:
        return plan_alone(
            replace(snapshot, workflow_set=replace(workflow_set, budget_usd=usd)), options
        )

    more_usd = free.cost_usd - workflow_set.budget_usd
    result = _least(
        try_for, [free.cost_usd], workflow_set.budget_usd, max(0.01, more_usd / 2**_NARROWINGS)
    )
    if result is not None:
        plan = result[1]
        more = max(0.01, plan.cost_usd - workflow_set.budget_usd)
        yield _relaxed(plan, "a larger budget", round(more, 2), "USD")


def _wider(snapshot: Snapshot, _: Ask, options: Options) -> Iterator[Relaxation]:
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
        return plan_alone(replace(snapshot, slots=slots), options)

    steps = (surest.procs // 2, surest.procs, 2 * surest.procs, 4 * surest.procs, most)
    grid = sorted({float(min(step, most)) for step in steps if step > 0})
    result = _least(try_with, grid, 0.0, max(1.0, most / 16)) if most > 0 else None
    if result is not None:
        amount = float(round(result[0]))
        yield _relaxed(result[1], f"more processors in {surest.id}", amount, "processors")
