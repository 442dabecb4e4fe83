"""What would do? The smallest change of each kind with which the minimum can be placed.

Each is verified by planning: nothing is proposed that was not tried. A later deadline needs new
offers, for slots end with it, so whoever plans says how to ask for a snapshot of a changed set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from planner.make import STANDARD, Options, make_plan
from planner.plan import Plan, Relaxation
from planner.snapshot import Snapshot
from workflows.sets import WorkflowSet

Ask = Callable[[WorkflowSet], Snapshot]
_LATER = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)  # times the deadline, before it is narrowed
_NARROWINGS = 5
_LARGEST = 600  # tasks up to which every kind of change is tried


def relaxations(
    snapshot: Snapshot, ask: Ask, options: Options = STANDARD
) -> tuple[Relaxation, ...]:
    """For a set whose minimum cannot be placed: later, fewer, dearer, wider; each alone."""
    tasks = sum(len(workflow.tasks) for workflow in snapshot.wanted.workflows)
    kinds = (_fewer, _later, _dearer, _wider) if tasks <= _LARGEST else (_fewer, _later)
    return tuple(found for kind in kinds for found in kind(snapshot, ask, options))


def _relaxed(plan: Plan, change: str, amount: float, unit: str) -> Relaxation:
    return Relaxation(
        change=change, amount=amount, unit=unit, probability=plan.promise.probability, cost_usd=plan.cost_usd
    )  # fmt: skip


def _fewer(snapshot: Snapshot, _: Ask, options: Options) -> Iterator[Relaxation]:
    """Fewer workflows: as many as can be placed now, if that is any."""
    wanted, low, high = snapshot.wanted, 0, snapshot.wanted.needed
    best: Plan | None = None
    while high - low > 1:
        middle = (low + high) // 2
        plan = make_plan(replace(snapshot, wanted=replace(wanted, needed=middle)), options)
        low, high, best = (middle, high, plan) if plan.feasible else (low, middle, best)
    if best is not None:
        yield _relaxed(best, "fewer workflows", float(wanted.needed - low), "workflows")


def _later(snapshot: Snapshot, ask: Ask, options: Options) -> Iterator[Relaxation]:
    """A later deadline: doubled until it does, then narrowed."""
    wanted = snapshot.wanted

    def plan_by(deadline_s: float) -> Plan:
        return make_plan(ask(replace(wanted, deadline_s=deadline_s)), options)

    low = wanted.deadline_s
    for factor in _LATER:
        high, plan = wanted.deadline_s * factor, plan_by(wanted.deadline_s * factor)
        if plan.feasible:
            break
        low = high
    else:
        return
    for _ in range(_NARROWINGS):
        middle = (low + high) / 2
        trial = plan_by(middle)
        low, high, plan = (low, middle, trial) if trial.feasible else (middle, high, plan)
    yield _relaxed(plan, "a later deadline", high - wanted.deadline_s, "s")


def _dearer(snapshot: Snapshot, _: Ask, options: Options) -> Iterator[Relaxation]:
    """More money, where a budget limits and something can be bought."""
    wanted = snapshot.wanted
    if wanted.budget_usd is None or not any(slot.paid for slot in snapshot.slots):
        return
    plan = make_plan(replace(snapshot, wanted=replace(wanted, budget_usd=None)), options)
    if plan.feasible:
        enough = replace(snapshot, wanted=replace(wanted, budget_usd=plan.cost_usd))
        verified = make_plan(enough, options)
        if verified.feasible:
            yield _relaxed(verified, "a larger budget", round(verified.cost_usd - wanted.budget_usd, 2), "USD")  # fmt: skip


def _wider(snapshot: Snapshot, _: Ask, options: Options) -> Iterator[Relaxation]:
    """More processors in the surest free slot: doubled until it does, then narrowed."""
    free = [slot for slot in snapshot.slots if not slot.paid and slot.curve.milestones]
    if not free:
        return
    surest = max(free, key=lambda slot: slot.curve.probabilities[-1] * slot.up)

    def plan_with(more: int) -> Plan:
        slots = tuple(
            replace(s, procs=s.procs + more) if s is surest else s for s in snapshot.slots
        )
        return make_plan(replace(snapshot, slots=slots), options)

    low, high = 0, max(1, surest.procs // 2)
    plan = plan_with(high)
    while not plan.feasible:
        low, high = high, high * 2
        if high > 64 * max(surest.procs, snapshot.wanted.width):
            return
        plan = plan_with(high)
    while high - low > max(1, high // 16):
        middle = (low + high) // 2
        trial = plan_with(middle)
        low, high, plan = (low, middle, trial) if trial.feasible else (middle, high, plan)
    yield _relaxed(plan, f"more processors in {surest.id}", float(high), "processors")
