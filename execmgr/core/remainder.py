"""Progress of a run as input for replanning the remainder, and the result as the next execution
plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.completion import refused_queues
from vgrads.execmgr.core.escalation import added_tasks
from vgrads.execmgr.core.execution_plan import ExecutionPlan, amend
from vgrads.execmgr.core.states import ReplicaState, RunState, SlotRecord
from vgrads.planner.plan import SlotUse
from vgrads.planner.replan import (
    REPLANNING,
    Amended,
    Offers,
    OpenSlot,
    Progress,
    grow,
    promise_now,
    replan,
)
from vgrads.workflows.task import Task


def progress_of(execution: ExecutionPlan, state: RunState) -> Progress:
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
    spent = sum(_cost_usd(execution.uses[slot], record) for slot, record in state.slots.items())
    return Progress(
        now_s=state.now_s,
        done=frozenset(state.done),
        running=running,
        ended=ended,
        waiting=frozenset(waiting),
        open_slots=_open_slots(execution, state),
        spent_usd=spent,
        version=state.version,
        coming=_coming(execution, state),
        broken=frozenset(workflow for workflow, _ in state.faulty),
        closed=refused_queues(execution, state.slots),
        grown=added_tasks(execution, state.replicas),
    )


def _cost_usd(use: SlotUse, record: SlotRecord) -> float:
    """Return what a slot has cost, or will cost as planned while it is open."""
    if record.ended_s is None:
        return 0.0 if record.requested_s is None else use.cost_usd
    if record.ready_s is None:
        return 0.0
    return use.slot.cost_usd(record.ended_s - record.ready_s)


def _coming(execution: ExecutionPlan, state: RunState) -> tuple[SlotUse, ...]:
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


def current_promise(execution: ExecutionPlan, state: RunState) -> float:
    """Return P(the promise is kept) if the plan continues unchanged."""
    progress = progress_of(execution, state)
    return promise_now(execution.plan, execution.snapshot, progress).probability


def plan_remainder(
    execution: ExecutionPlan, state: RunState, offers: Offers, effort: float = 1.0
) -> tuple[ExecutionPlan | None, str]:
    """Return a better execution plan for the remainder, or None; and the numbers that decided.
    ``effort``: a multiple of the usual."""
    options = replace(REPLANNING, effort=effort)
    amended, reason = replan(
        execution.plan, execution.snapshot, progress_of(execution, state), offers, options
    )
    return _amended(execution, state, amended), reason


def plan_added_tasks(
    execution: ExecutionPlan, state: RunState, offers: Offers, added: Sequence[tuple[str, Task]]
) -> tuple[ExecutionPlan | None, str]:
    """Return the execution plan with more tasks, or None if they cannot be placed; and the reason.
    InputError if they do not fit the set."""
    amended, reason = grow(
        execution.plan, execution.snapshot, progress_of(execution, state), offers, added
    )
    return _amended(execution, state, amended), reason


def _amended(
    execution: ExecutionPlan, state: RunState, amended: Amended | None
) -> ExecutionPlan | None:
    if amended is None:
        return None
    settled = frozenset(
        key for key, record in state.replicas.items() if record.state != ReplicaState.WAITING
    )
    return amend(execution, amended.plan, amended.snapshot, settled)
