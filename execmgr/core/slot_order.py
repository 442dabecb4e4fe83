"""What waits in slots starts in the plan's order, as :mod:`vgrads.planner.rules` says; slots are
asked for when they are due, and given back when nothing is left for them."""

from __future__ import annotations

from dataclasses import replace

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.states import CloseSlot, CopyState, OpenSlot
from vgrads.execmgr.core.turn import Turn
from vgrads.planner.rules import LOOK_AHEAD, SLACK_S, may_pass

_INF = float("inf")
_MAY_PASS = may_pass.plain


def settle(turn: Turn) -> None:
    """Open slots that are due, start what may start, give up what cannot, until nothing changes."""
    while turn.touched:
        batch = [slot for slot in turn.book.order if slot in turn.touched]
        turn.touched = set()
        for slot in batch:
            _look(turn, slot)


def _look(turn: Turn, slot: str) -> None:
    record = turn.slots[slot]
    if record.closing or (record.state is not None and record.state.ended):
        turn.slots = turn.slots.set(slot, replace(record, wake_s=_INF))
        return
    wake_s = _walk(turn, slot)
    record = turn.slots[slot]
    if record.next >= len(turn.book.order[slot]) and record.used == 0:
        _close(turn, slot)
        return
    submit_s = turn.book.uses[slot].submit_s
    if record.state is None and turn.now_s >= submit_s:
        record = replace(record, state=SlotState.REQUESTED, asked_s=turn.now_s)
        turn.commands.append(OpenSlot(slot))
    if record.state is None:
        wake_s = min(wake_s, submit_s)
    elif record.state < SlotState.READY and turn.book.overdue_s[slot] > turn.now_s:
        wake_s = min(wake_s, turn.book.overdue_s[slot])
    turn.slots = turn.slots.set(slot, replace(record, wake_s=wake_s))


def _walk(turn: Turn, slot: str) -> float:
    """Go along what waits, in its order; when to look again if nothing is reported."""
    order, wake_s = turn.book.order[slot], _INF
    position, in_front, looked = turn.slots[slot].next, True, 0
    # processors that wait in front; the first planned start among them
    passed, horizon_s = 0, _INF
    while position < len(order) and looked < LOOK_AHEAD:
        key = order[position]
        position += 1
        if turn.copies[key].state == CopyState.WAITING:
            record, planned = turn.slots[slot], turn.book.placements[key]
            ready = record.state == SlotState.READY
            if not ready and in_front and record.wake_s > turn.now_s:
                return record.wake_s  # nothing is due before
            latest_s, here_s = turn.latest_start(key), turn.inputs_at(key)
            able = ready and here_s <= turn.now_s + 1e-9
            room = turn.book.uses[slot].slot.procs - record.used
            ends_s = turn.now_s + turn.given_s(key)
            if latest_s < turn.now_s:
                turn.end_copy(key, CopyState.SKIPPED, "too late to end in time")
            elif ready and planned.procs > room and (able or room == 0):
                wake_s = min(wake_s, latest_s + SLACK_S / 2)
                break
            elif able and _MAY_PASS(ends_s, planned.procs, horizon_s, passed, room):
                turn.begin_copy(key)
            else:
                unreleased = turn.book.released and here_s == _INF
                looked, in_front = looked + (not unreleased), False
                passed += planned.procs
                wake_s = min(wake_s, latest_s + SLACK_S / 2, horizon_s + SLACK_S if able else _INF)
                if ready and here_s > turn.now_s:
                    wake_s = min(wake_s, here_s)
                if planned.start_s + SLACK_S > turn.now_s:
                    horizon_s = min(horizon_s, planned.start_s)
        if in_front:
            turn.slots = turn.slots.set(slot, replace(turn.slots[slot], next=position))
    return wake_s


def _close(turn: Turn, slot: str) -> None:
    record = turn.slots[slot]
    if record.state is None:  # never asked for, nothing to give back
        ended = replace(
            record,
            state=SlotState.RELEASED,
            ended_s=turn.now_s,
            reason="not needed",
            wake_s=_INF,
        )
        turn.slots = turn.slots.set(slot, ended)
        return
    turn.slots = turn.slots.set(slot, replace(record, closing=True, wake_s=_INF))
    turn.commands.append(CloseSlot(slot))
