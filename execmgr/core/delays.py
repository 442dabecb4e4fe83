"""What has delayed a run so far, compared with its plan, in words: nothing is changed here."""

from __future__ import annotations

from collections.abc import Iterator

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.completion import find_first_lost
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import ReplicaRecord, ReplicaState, RunState, SlotRecord
from vgrads.kernel.units import format_count, format_duration

_LEAST_SHARE = 0.01  # of the deadline
_LEAST_S = 1.0
_LEAST_FACTOR = 1.1


def describe_delays(execution: ExecutionPlan, state: RunState) -> list[str]:
    """Return one sentence for each kind of delay: lost slots, late slots, tasks that failed, tasks
    that took longer than expected. Delays of less than a hundredth of the deadline are left out."""
    least_s = max(_LEAST_S, _LEAST_SHARE * execution.plan.deadline_s)
    return [
        *_list_lost_slots(execution, state),
        *_list_late_slots(execution, state, least_s),
        *_list_failed_tasks(state),
        *_list_slow_tasks(execution, state, least_s),
    ]


def _list_lost_slots(execution: ExecutionPlan, state: RunState) -> Iterator[str]:
    lost = [
        (record.ended_s or 0.0, slot, record)
        for slot, record in state.slots.items()
        if record.state == SlotState.FAILED
    ]
    if lost:
        at_s, slot, record = max(lost)
        reason = f": {record.reason}" if record.reason else ""
        site = execution.place(slot)
        if len(lost) == 1:
            yield f"slot {slot} of {site} was lost after {format_duration(at_s)}{reason}"
        else:
            yield (
                f"{format_count(len(lost), 'slot', 'were')} lost, the last one, {slot} of "
                f"{site}, after "
                f"{format_duration(at_s)}{reason}"
            )


def _list_late_slots(execution: ExecutionPlan, state: RunState, least_s: float) -> Iterator[str]:
    late = [
        (late_s, slot, record)
        for slot, record in state.slots.items()
        if (late_s := _compute_late_s(record, execution.uses[slot].start_s, state.now_s)) >= least_s
    ]
    if late:
        late_s, slot, record = max(late)
        verb = "started" if record.ready_s is not None else "still waits,"
        others = f"; {len(late) - 1} more started late or wait" if len(late) > 1 else ""
        yield (
            f"slot {slot} of {execution.place(slot)} {verb} {format_duration(late_s)} after its "
            f"planned start{others}"
        )


def _compute_late_s(record: SlotRecord, start_s: float, now_s: float) -> float:
    """Return by how much a slot started later than planned, or is late by now; 0 for one that
    ended without having started."""
    if record.ready_s is not None:
        return record.ready_s - start_s
    if record.requested_s is None or record.closing or (record.state and record.state.ended):
        return 0.0
    return now_s - start_s


def _list_failed_tasks(state: RunState) -> Iterator[str]:
    failed = {task: reason for task, reason in state.lost.items() if task not in state.done}
    if failed:
        (workflow, task), reason = find_first_lost(failed)
        others = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        yield f"{workflow}/{task}{others} cannot be done: {reason}"


def _list_slow_tasks(execution: ExecutionPlan, state: RunState, least_s: float) -> Iterator[str]:
    """Compare run times with the expected ones: of ended tasks, and of running ones that already
    take longer."""
    times = list(_list_times(execution, state))
    took_s, expected_s = sum(took for took, _ in times), sum(expected for _, expected in times)
    longest_s = max((took - expected for took, expected in times), default=0.0)
    if longest_s >= least_s and took_s >= _LEAST_FACTOR * expected_s > 0.0:
        yield (
            f"tasks take {took_s / expected_s:.2g} × as long as expected ({len(times)} so far), "
            f"one of them {format_duration(longest_s)} longer"
        )


def _list_times(execution: ExecutionPlan, state: RunState) -> Iterator[tuple[float, float]]:
    """Yield run times so far, each with the expected one."""
    for key, record in state.replicas.items():
        took_s = _compute_took_s(record, state.now_s)
        expected_s = execution.median_s(key) * record.time
        if record.state == ReplicaState.DONE or took_s > expected_s:
            yield took_s, expected_s


def _compute_took_s(record: ReplicaRecord, now_s: float) -> float:
    if record.state == ReplicaState.RUNNING:
        return now_s - record.start_s
    return record.end_s - record.start_s if record.state == ReplicaState.DONE else 0.0
