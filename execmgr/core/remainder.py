"""Progress of a run as input for replanning the remainder, and the result as the next execution
plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.completion import find_refused_queues
from vgrads.execmgr.core.escalation import find_grown_tasks
from vgrads.execmgr.core.execution_plan import ExecutionPlan, amend
from vgrads.execmgr.core.promise_record import estimate_repetition
from vgrads.execmgr.core.spending import sum_spent_usd
from vgrads.execmgr.core.states import ReplicaState, RequestChange, RunState
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, format_usd
from vgrads.planner.make import Options
from vgrads.planner.outlook import Outlook, compute_promise
from vgrads.planner.plan import Relaxation, SlotUse
from vgrads.planner.relax_remainder import find_relaxations_now
from vgrads.planner.replan import (
    REPLANNING,
    Amended,
    Offers,
    OpenSlot,
    Progress,
    grow,
    plan_change,
    replan,
)
from vgrads.workflows.task import Task

_WITHIN_S = 20.0  # after which a search for changes ends: the end of a run may wait for it


def measure_progress(execution: ExecutionPlan, state: RunState) -> Progress:
    """Return done, running (until when) and waiting work, open slots, and the cost so far."""
    running = {
        key: record.start_s
        for key, record in state.replicas.items()
        if record.state == ReplicaState.RUNNING
    }
    ended = {
        key: record.end_s - record.start_s
        for key, record in state.replicas.items()
        if record.state == ReplicaState.DONE
    }
    waiting = [
        key for key, record in state.replicas.items() if record.state == ReplicaState.WAITING
    ]
    return Progress(
        now_s=state.now_s,
        done=frozenset(state.done),
        running=running,
        ended=ended,
        waiting=frozenset(waiting),
        open_slots=_open_slots(execution, state),
        spent_usd=sum_spent_usd(execution, state),
        version=state.version,
        coming=_list_coming(execution, state),
        broken=frozenset(workflow for workflow, _ in state.faulty),
        closed=find_refused_queues(execution, state.slots),
        grown=find_grown_tasks(execution, state.replicas),
        repeating=estimate_repetition(state),
    )


def _list_coming(execution: ExecutionPlan, state: RunState) -> tuple[SlotUse, ...]:
    """Return the slots of the plan that were not requested yet and are still needed."""
    return tuple(
        execution.uses[slot]
        for slot, record in sorted(state.slots.items())
        if record.requested_s is None and record.state is None and not record.closing
    )


def _open_slots(execution: ExecutionPlan, state: RunState) -> tuple[OpenSlot, ...]:
    results = []
    for slot, record in sorted(state.slots.items()):
        if record.state is None or record.state.ended or record.closing:
            continue
        # one that waits could start now at the earliest: no earlier end is certain
        ready_s = state.now_s if record.ready_s is None else record.ready_s
        ready = record.state == SlotState.READY
        results.append(
            OpenSlot(
                use=execution.uses[slot],
                ready=ready,
                end_s=ready_s + execution.slot_duration_s(slot),
            )
        )
    return tuple(results)


def compute_current_promise(execution: ExecutionPlan, state: RunState) -> Outlook:
    """Return the promise if the plan continues unchanged."""
    return compute_promise(execution.plan, execution.snapshot, measure_progress(execution, state))


def plan_remainder(
    execution: ExecutionPlan, state: RunState, offers: Offers, effort: float = 1.0
) -> tuple[ExecutionPlan | None, str]:
    """Return a better execution plan for the remainder, or None; and the numbers that decided.
    ``effort``: a multiple of the usual."""
    options = replace(REPLANNING, effort=effort)
    amended, reason = replan(
        execution.plan, execution.snapshot, measure_progress(execution, state), offers, options
    )
    return _amend_remainder(execution, state, amended), reason


def plan_request(
    execution: ExecutionPlan,
    state: RunState,
    offers: Offers,
    change: RequestChange,
    effort: float = 1.0,
) -> tuple[ExecutionPlan | None, float, str]:
    """Return the execution plan of the remainder for a changed request, its promise, and why there
    is none; InputError for a change that contradicts what has happened. ``offers``: without those
    of sites that are dropped."""
    check_change(execution, state, change)
    changed = change_request(execution, change)
    dropped = (state.dropped - set(change.add_sites)) | set(change.drop_sites)
    progress = _drop_sites(execution, measure_progress(execution, state), dropped)
    options = replace(REPLANNING, effort=effort)
    amended, promise, lacking = plan_change(
        changed.plan, changed.snapshot, progress, offers, options
    )
    return _amend_remainder(changed, state, amended), promise, lacking


def change_request(execution: ExecutionPlan, change: RequestChange) -> ExecutionPlan:
    """Return the execution plan with a changed request and nothing else changed."""
    workflow_set, plan = execution.snapshot.workflow_set, execution.plan
    deadline_s = plan.deadline_s if change.deadline_s is None else change.deadline_s
    needed = plan.needed if change.needed is None else change.needed
    probability = plan.requested_probability
    probability = probability if change.probability is None else change.probability
    budget = workflow_set.budget_usd if change.budget_usd is None else change.budget_usd
    workflow_set = replace(
        workflow_set,
        deadline_s=deadline_s,
        needed=needed,
        probability=probability,
        budget_usd=budget,
    )
    return replace(
        execution,
        plan=replace(plan, deadline_s=deadline_s, needed=needed, requested_probability=probability),
        snapshot=replace(execution.snapshot, workflow_set=workflow_set),
    )


def check_change(execution: ExecutionPlan, state: RunState, change: RequestChange) -> None:
    """Raise InputError for a deadline before now, a budget below what is spent, more workflows than
    there are, or sites to be added that were not dropped."""
    if change.deadline_s is not None and change.deadline_s <= state.now_s:
        raise InputError("is before now", where="deadline")
    count = len(execution.snapshot.workflow_set.workflows)
    if change.needed is not None and not 1 <= change.needed <= count:
        words = format_count(count, "workflow", "are")
        raise InputError(f"{change.needed} of them are requested, {words} there", where="at-least")
    spent = sum_spent_usd(execution, state)
    if change.budget_usd is not None and change.budget_usd < spent:
        raise InputError(
            f"{format_usd(change.budget_usd)} is below the {format_usd(spent)} that are spent",
            where="budget",
        )
    both = set(change.add_sites) & set(change.drop_sites)
    if both:
        raise InputError(f"'{min(both)}' is both added and dropped", where="add-site")
    in_use = set(change.add_sites) - state.dropped
    if in_use:
        raise InputError(f"'{min(in_use)}' is in use: it was not dropped", where="add-site")


def find_sufficient_changes(
    execution: ExecutionPlan, state: RunState, offers: Offers, effort: float = 1.0
) -> tuple[Relaxation, ...] | None:
    """Return the changes of the request, each alone, with which what remains would reach the
    requested probability; None for a set that is too large to try them. Nothing is expected of
    workflows whose command has failed by itself: no change of the request helps it. ``effort``: a
    multiple of the usual."""
    progress = measure_progress(execution, state)
    failed = {task[0] for task in state.failures if task not in state.done}
    progress = replace(progress, broken=progress.broken | failed)
    options = Options(effort=effort, within_s=_WITHIN_S)
    return find_relaxations_now(execution.plan, execution.snapshot, progress, offers, options)


def _drop_sites(execution: ExecutionPlan, progress: Progress, dropped: frozenset[str]) -> Progress:
    """Return the progress without the slots of dropped sites, except those in which tasks run."""
    if not dropped:
        return progress
    busy = {execution.slot_of(key) for key in progress.running}
    return replace(
        progress,
        coming=tuple(use for use in progress.coming if use.slot.site not in dropped),
        open_slots=tuple(
            slot
            for slot in progress.open_slots
            if slot.use.slot.site not in dropped or slot.use.slot.id in busy
        ),
    )


def plan_added_tasks(
    execution: ExecutionPlan, state: RunState, offers: Offers, added: Sequence[tuple[str, Task]]
) -> tuple[ExecutionPlan | None, str]:
    """Return the execution plan with more tasks, or None if they cannot be placed; and the reason.
    InputError if they do not fit the set."""
    amended, reason = grow(
        execution.plan, execution.snapshot, measure_progress(execution, state), offers, added
    )
    return _amend_remainder(execution, state, amended), reason


def _amend_remainder(
    execution: ExecutionPlan, state: RunState, amended: Amended | None
) -> ExecutionPlan | None:
    if amended is None:
        return None
    settled = frozenset(
        key for key, record in state.replicas.items() if record.state != ReplicaState.WAITING
    )
    return amend(execution, amended.plan, amended.snapshot, settled)
