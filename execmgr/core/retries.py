"""A copy that failed: whether it tries once more, and which tasks are begun no more."""

from __future__ import annotations

from dataclasses import replace

from vgrads.execmgr.core.endings import fault_of
from vgrads.execmgr.core.growth import after_failure, exhausted, fits, too_much
from vgrads.execmgr.core.states import CopyEnded, CopyState
from vgrads.execmgr.core.turn import Turn
from vgrads.planner.rules import ATTEMPTS
from vgrads.planner.snapshot import TaskKey


def tries_again(turn: Turn, event: CopyEnded) -> bool:
    """A failed copy waits once more where it was, if no other copy can do its task, and time is
    left."""
    key = event.key
    if turn.book.released and event.code is not None:
        return _awaits_release(turn, event)
    fault, more = _weigh(turn, event)
    if fault:
        give_up(turn, key[:2], fault)
        return False
    if not more or turn.latest_start(key) < turn.now_s:
        return False
    twins = turn.book.copies[key[:2]]
    if any(not turn.copies[twin].state.settled for twin in twins if twin != key):
        return False
    _wait_again(turn, event, f"tried again after: {event.reason}")
    return True


def _wait_again(turn: Turn, event: CopyEnded, reason: str) -> None:
    record = turn.copies[event.key]
    again = replace(
        record,
        state=CopyState.WAITING,
        attempt=record.attempt + 1,
        committing=False,
        code=event.code,
        reason=reason,
    )
    turn.await_again(event.key, again)


def _awaits_release(turn: Turn, event: CopyEnded) -> bool:
    """Whoever released a task that failed by itself says whether it is tried again, and how."""
    leave = turn.released[event.key[:2]]
    turn.released = turn.released.set(event.key[:2], replace(leave, used=True))
    _wait_again(turn, event, event.reason)
    return True


def _weigh(turn: Turn, event: CopyEnded) -> tuple[str, bool]:
    """Why a task that failed is not to be begun any more, anywhere, or whether this copy may
    try again."""
    key = event.key
    rule = turn.book.snapshot.task(key[:2]).manner.rule_for(event.code, event.ended)
    if rule is None:
        more = turn.copies[key].attempt + 1 < ATTEMPTS
        return fault_of(turn.book, turn.copies, event), more
    fault = exhausted(turn.book, turn.copies, key, rule, event.reason)
    turn.copies = turn.copies.set(key, after_failure(turn.copies[key], rule))
    for twin in turn.book.copies[key[:2]]:
        if turn.copies[twin].state == CopyState.WAITING and not fits(turn.book, turn.copies, twin):
            turn.end_copy(
                twin, CopyState.SKIPPED, "its slot has not the memory that it needs by now"
            )
    return fault or too_much(turn.book, turn.copies, event), fits(turn.book, turn.copies, key)


def give_up(turn: Turn, task: TaskKey, fault: str) -> None:
    """A task that fails by itself is begun no more, anywhere; copies that run may still do it."""
    turn.faulty = turn.faulty.set(task, fault)
    turn.note(f"{task[0]}/{task[1]}: {fault}")
    for twin in turn.book.copies[task]:
        if turn.copies[twin].state == CopyState.WAITING:
            turn.end_copy(twin, CopyState.SKIPPED, fault)
