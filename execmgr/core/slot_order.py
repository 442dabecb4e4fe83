"""Start order in slots: waiting replicas start in the plan's order, by :mod:`vgrads.planner.rules`;
slots are requested when due, and released when nothing is left for them."""

from __future__ import annotations

from collections.abc import Iterator

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.rule_state import RuleState, allot_time
from vgrads.execmgr.core.states import (
    ReleaseSlot,
    ReplicaRecord,
    ReplicaState,
    RequestSlot,
    SlotProgress,
)
from vgrads.planner.rules import LOOK_AHEAD, SLACK_S, may_backfill
from vgrads.planner.snapshot import ReplicaKey

NOT_PAID = "its slot is not paid for any longer: the promise cannot be met any more"
_INF = float("inf")
_WAITING = ReplicaState.WAITING
_MAY_BACKFILL = may_backfill.plain


def settle(rule_state: RuleState) -> None:
    """Request slots that are due, start replicas that may start, skip those that cannot, until
    nothing changes."""
    while rule_state.touched:
        batch = _sort_slots(rule_state.execution, rule_state.touched)
        rule_state.touched = set()
        rule_state.settled.update(batch)
        for slot in batch:
            progress = _look(rule_state, slot)
            if progress != rule_state.progress[slot]:
                rule_state.progress = rule_state.progress.set(slot, progress)


def _sort_slots(execution: ExecutionPlan, slots: set[str]) -> list[str]:
    """Return the slots of the plan, in its order."""
    # sets of strings have another order in each process, but a replay must give the same commands
    numbers = execution.slot_numbers
    return sorted(slots & numbers.keys(), key=numbers.__getitem__)


def _look(rule_state: RuleState, slot: str) -> SlotProgress:
    record = rule_state.slots[slot]
    if record.closing or (record.state is not None and record.state.ended):
        return rule_state.progress[slot]._replace(wake_s=_INF)
    paid_until_s = _INF if record.paid_until_s is None else record.paid_until_s
    if rule_state.now_s >= paid_until_s:
        _stop_running(rule_state, slot)
    progress = _start_waiting(rule_state, slot)
    progress = progress._replace(wake_s=min(progress.wake_s, paid_until_s))
    if progress.next >= len(rule_state.execution.order[slot]) and progress.used == 0:
        _close(rule_state, slot)
        return progress._replace(wake_s=_INF)
    if record.state is None or record.state < SlotState.READY:
        return progress._replace(wake_s=min(progress.wake_s, _request_if_due(rule_state, slot)))
    return progress


def _stop_running(rule_state: RuleState, slot: str) -> None:
    for key in rule_state.execution.order[slot]:
        if rule_state.replicas[key].state == ReplicaState.RUNNING:
            rule_state.stop_replica(key, ReplicaState.CANCELLED, NOT_PAID)


def _request_if_due(rule_state: RuleState, slot: str) -> float:
    """Request a slot if it is due; return when it is due or overdue."""
    submit_s, overdue_s = rule_state.execution.uses[slot].submit_s, rule_state.execution.overdue_s
    if rule_state.slots[slot].state is None:
        if rule_state.now_s < submit_s:
            return submit_s
        requested = rule_state.slots[slot]._replace(
            state=SlotState.REQUESTED, requested_s=rule_state.now_s
        )
        rule_state.slots = rule_state.slots.set(slot, requested)
        rule_state.commands.append(RequestSlot(slot))
    return overdue_s[slot] if overdue_s[slot] > rule_state.now_s else _INF


def _start_waiting(rule_state: RuleState, slot: str) -> SlotProgress:
    """Go through the waiting replicas in order; return how far the slot has come, and when to check
    again if nothing is reported."""
    execution, now_s, end_s = rule_state.execution, rule_state.now_s, rule_state.end_of(slot)
    ready = rule_state.slots[slot].state == SlotState.READY
    used, first, before_s = rule_state.progress[slot]
    placements, room = execution.placements, execution.procs(slot) - used
    # position of the first that still waits
    front, looked, wake_s = len(execution.order[slot]), 0, _INF
    # processors of waiting replicas in front; the earliest planned start among them
    reserved_procs, shadow_time_s = 0, _INF
    for position, key, record in _waiting(rule_state, slot, first):
        if not ready and position < front and before_s > now_s:
            return SlotProgress(used, position, before_s)  # nothing is due before
        planned = placements[key]
        allotted_s = allot_time(planned, record)
        latest_s = end_s - allotted_s + SLACK_S
        # without room it does not matter when the inputs come
        here_s = _INF if ready and room == 0 else rule_state.inputs_at(planned)
        able = ready and here_s <= now_s + 1e-9
        if latest_s < now_s:
            rule_state.end_replica(key, ReplicaState.SKIPPED, "too late to end in time")
        # it can start as soon as processors are free, so nothing behind it may take them
        elif ready and planned.procs > room and (room == 0 or able):
            # checked again just after its latest start, when it is to be skipped
            front, wake_s = min(front, position), min(wake_s, latest_s + SLACK_S / 2)
            break
        elif able and _MAY_BACKFILL(
            now_s + allotted_s, planned.procs, shadow_time_s, reserved_procs, room
        ):
            rule_state.begin_replica(key)
            used, room = used + planned.procs, room - planned.procs
        else:
            front = position if position < front else front
            looked += here_s < _INF or not execution.released
            reserved_procs += planned.procs
            wake_s = min(wake_s, latest_s + SLACK_S / 2)
            if ready and here_s < _INF:
                coming_s = here_s if here_s > now_s else _INF
                wake_s = min(wake_s, coming_s, shadow_time_s + SLACK_S if able else _INF)
            if planned.start_s + SLACK_S > now_s:
                shadow_time_s = min(shadow_time_s, planned.start_s)
            if looked == LOOK_AHEAD:
                break
    return SlotProgress(used, front, wake_s)


def _waiting(
    rule_state: RuleState, slot: str, first: int
) -> Iterator[tuple[int, ReplicaKey, ReplicaRecord]]:
    """Yield the waiting replicas of a slot in order, from a position on, with their positions."""
    order = rule_state.execution.order[slot]
    for position in range(first, len(order)):
        record = rule_state.replicas[order[position]]
        if record.state is _WAITING:
            yield position, order[position], record


def _close(rule_state: RuleState, slot: str) -> None:
    record = rule_state.slots[slot]
    if record.state is None:  # never requested, nothing to release
        ended = record._replace(
            state=SlotState.RELEASED, ended_s=rule_state.now_s, reason="not needed"
        )
        rule_state.slots = rule_state.slots.set(slot, ended)
        return
    rule_state.slots = rule_state.slots.set(slot, record._replace(closing=True))
    rule_state.commands.append(ReleaseSlot(slot))
