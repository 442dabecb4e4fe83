"""One step in the making: what a run has come to, under change, and the commands to give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.states import (
    CancelCopy,
    CloseSlot,
    Command,
    CopyRecord,
    CopyState,
    Delivery,
    OpenSlot,
    RunState,
    StartCopy,
)
from vgrads.planner.rules import LOOK_AHEAD, SLACK_S, may_pass
from vgrads.planner.snapshot import CopyKey, TaskKey

_INF = float("inf")
_MAY_PASS = may_pass.plain


class Turn:
    """Maps under change. ``touched``: slots for which something may have changed; they are walked
    by :meth:`settle`."""

    def __init__(self, book: Book, state: RunState, now_s: float) -> None:
        self.book, self.now_s, self.state = book, now_s, state
        self.slots, self.copies = state.slots, state.copies
        self.done, self.lost, self.faulty = state.done, state.lost, state.faulty
        self.released = state.released
        self.commands: list[Command] = []
        self.touched = {slot for slot, record in state.slots.items() if record.wake_s <= now_s}

    def freeze(self) -> RunState:
        """The state after the step."""
        return replace(
            self.state,
            now_s=self.now_s,
            slots=self.slots,
            copies=self.copies,
            done=self.done,
            lost=self.lost,
            faulty=self.faulty,
            released=self.released,
            wake_s=min((record.wake_s for record in self.slots.values()), default=_INF),
        )

    def note(self, words: str) -> None:
        """Keep what was decided, for people."""
        self.state = replace(self.state, notes=(*self.state.notes, (self.now_s, words)))

    def set_slot(self, slot: str, **changes: Any) -> None:
        """Change a slot's record; it is looked at again."""
        self.slots = self.slots.set(slot, replace(self.slots[slot], **changes))
        self.touched.add(slot)

    # copies

    def begin_copy(self, key: CopyKey) -> None:
        """Start a waiting copy."""
        slot, running = self.book.slot_of(key), CopyState.RUNNING
        held = self.slots[slot]
        used = held.used + self.book.placements[key].procs
        self.slots = self.slots.set(slot, replace(held, used=used))
        self.copies = self.copies.set(
            key, replace(self.copies[key], state=running, start_s=self.now_s)
        )
        self.commands.append(StartCopy(key))

    def await_again(self, key: CopyKey, record: CopyRecord) -> None:
        """A copy that ran waits once more, where it was in its slot's order."""
        slot = self.book.slot_of(key)
        held = self.slots[slot]
        self.copies = self.copies.set(key, record)
        used = held.used - self.book.placements[key].procs
        self.set_slot(slot, used=used, next=min(held.next, self.book.position[key]))

    def end_copy(self, key: CopyKey, state: CopyState, reason: str) -> None:
        """A copy has come to its end; where none is left of its task, what needs the task is given
        up."""
        before, slot = self.copies[key], self.book.slot_of(key)
        if before.state == CopyState.RUNNING:
            self.set_slot(slot, used=self.slots[slot].used - self.book.placements[key].procs)
        ended = replace(before, state=state, end_s=self.now_s, reason=reason, committing=False)
        self.copies = self.copies.set(key, ended)
        self.touched.add(slot)
        if state != CopyState.DONE:
            self._lose_if_last(key[:2], reason)

    def stop_copy(self, key: CopyKey, state: CopyState, reason: str) -> None:
        """End a copy whether it waits or runs."""
        if self.copies[key].state == CopyState.RUNNING:
            self.commands.append(CancelCopy(key))
        if not self.copies[key].state.settled:
            self.end_copy(key, state, reason)

    def deliver(self, key: CopyKey) -> None:
        """The first copy of a task has ended well: its twins are not needed, its children may
        go."""
        task: TaskKey = key[:2]
        self.done = self.done.set(task, Delivery(site=self.book.site_of(key), at_s=self.now_s))
        for twin in self.book.copies[task]:
            if self.copies[twin].state == CopyState.RUNNING:
                self.stop_copy(twin, CopyState.CANCELLED, "another copy was first")
            elif self.copies[twin].state == CopyState.WAITING:
                self.end_copy(twin, CopyState.SKIPPED, "another copy was first")
        workflow = self.book.workflow(key)
        for child in workflow.children[key[1]]:
            if any((key[0], parent) not in self.done for parent in workflow.tasks[child].parents):
                continue
            for copy in self.book.copies.get((key[0], child), ()):
                self.touched.add(self.book.slot_of(copy))

    def _lose_if_last(self, task: TaskKey, reason: str) -> None:
        """A task of which no copy is left is lost, and everything that needs it."""
        pending = [(task, reason)]
        while pending:
            task, reason = pending.pop()
            copies = self.book.copies[task]
            if task in self.done or not all(self.copies[copy].state.settled for copy in copies):
                continue
            self.lost = self.lost.set(task, reason)
            heirs = f"its input from '{task[1]}' will never come"
            for child in self.book.snapshot.workflow_by_name[task[0]].children[task[1]]:
                waiting = [
                    copy
                    for copy in self.book.copies.get((task[0], child), ())
                    if self.copies[copy].state == CopyState.WAITING
                ]
                for copy in waiting:
                    given_up = replace(
                        self.copies[copy], state=CopyState.SKIPPED, end_s=self.now_s, reason=heirs
                    )
                    self.copies = self.copies.set(copy, given_up)
                    self.touched.add(self.book.slot_of(copy))
                if waiting:
                    pending.append(((task[0], child), heirs))

    def latest_start(self, key: CopyKey) -> float:
        """Last instant at which the copy can start and end before its slot and the deadline."""
        slot = self.book.slot_of(key)
        record, end_s = self.slots[slot], self.book.plan.deadline_s
        if record.ready_s is not None:
            end_s = min(end_s, record.ready_s + self.book.held_s(slot))
        return end_s - self.given_s(key) + SLACK_S

    def given_s(self, key: CopyKey) -> float:
        """The time that a copy is given: as planned, and more after failures of its own for which
        that is the rule."""
        return self.book.duration_s(key) * self.copies[key].time

    def inputs_at(self, key: CopyKey) -> float:
        """When the outputs of all parents are at the copy's site; ``inf`` while one is not done, or
        it is not released."""
        if self.book.released and not self.may_begin(key[:2]):
            return _INF
        workflow, site, latest_s = self.book.workflow(key), self.book.site_of(key), 0.0
        for parent in workflow.tasks[key[1]].parents:
            delivery = self.done.get((key[0], parent))
            if delivery is None:
                return _INF
            transfer_s = self.book.snapshot.transfer_s(
                workflow, parent, key[1], (delivery.site, site)
            )
            latest_s = max(latest_s, delivery.at_s + transfer_s)
        return latest_s

    def may_begin(self, task: TaskKey) -> bool:
        """True where a task of a released set was released."""
        leave = self.released.get(task)
        return leave is not None and not leave.used

    # slots

    def settle(self) -> None:
        """Open slots that are due, start what may start, give up what cannot, until nothing
        changes."""
        while self.touched:
            batch = [slot for slot in self.book.order if slot in self.touched]
            self.touched = set()
            for slot in batch:
                self._tend(slot)

    def _tend(self, slot: str) -> None:
        record = self.slots[slot]
        if record.closing or (record.state is not None and record.state.ended):
            self.slots = self.slots.set(slot, replace(record, wake_s=_INF))
            return
        wake_s = self._walk(slot)
        record = self.slots[slot]
        if record.next >= len(self.book.order[slot]) and record.used == 0:
            self._close(slot)
            return
        submit_s = self.book.uses[slot].submit_s
        if record.state is None and self.now_s >= submit_s:
            record = replace(record, state=SlotState.REQUESTED, asked_s=self.now_s)
            self.commands.append(OpenSlot(slot))
        if record.state is None:
            wake_s = min(wake_s, submit_s)
        elif record.state < SlotState.READY and self.book.overdue_s[slot] > self.now_s:
            wake_s = min(wake_s, self.book.overdue_s[slot])
        self.slots = self.slots.set(slot, replace(record, wake_s=wake_s))

    def _walk(self, slot: str) -> float:
        """Go along what waits, in its order, as :mod:`vgrads.planner.rules` says; when to look
        again if nothing is reported."""
        order, wake_s = self.book.order[slot], _INF
        position, in_front, looked = self.slots[slot].next, True, 0
        passed, horizon_s = (
            0,
            _INF,
        )  # processors that wait in front; the first planned start among them
        while position < len(order) and looked < LOOK_AHEAD:
            key = order[position]
            position += 1
            if self.copies[key].state == CopyState.WAITING:
                record, planned = self.slots[slot], self.book.placements[key]
                ready = record.state == SlotState.READY
                if not ready and in_front and record.wake_s > self.now_s:
                    return record.wake_s  # nothing is due before
                latest_s, here_s = self.latest_start(key), self.inputs_at(key)
                able = ready and here_s <= self.now_s + 1e-9
                room = self.book.uses[slot].slot.procs - record.used
                ends_s = self.now_s + self.given_s(key)
                if latest_s < self.now_s:
                    self.end_copy(key, CopyState.SKIPPED, "too late to end in time")
                elif ready and planned.procs > room and (able or room == 0):
                    wake_s = min(wake_s, latest_s + SLACK_S / 2)
                    break
                elif able and _MAY_PASS(ends_s, planned.procs, horizon_s, passed, room):
                    self.begin_copy(key)
                else:
                    unreleased = self.book.released and here_s == _INF
                    looked, in_front, passed = (
                        looked + (not unreleased),
                        False,
                        passed + planned.procs,
                    )
                    wake_s = min(
                        wake_s, latest_s + SLACK_S / 2, horizon_s + SLACK_S if able else _INF
                    )
                    if ready and here_s > self.now_s:
                        wake_s = min(wake_s, here_s)
                    if planned.start_s + SLACK_S > self.now_s:
                        horizon_s = min(horizon_s, planned.start_s)
            if in_front:
                self.slots = self.slots.set(slot, replace(self.slots[slot], next=position))
        return wake_s

    def _close(self, slot: str) -> None:
        record = self.slots[slot]
        if record.state is None:  # never asked for, nothing to give back
            ended = replace(
                record,
                state=SlotState.RELEASED,
                ended_s=self.now_s,
                reason="not needed",
                wake_s=_INF,
            )
            self.slots = self.slots.set(slot, ended)
            return
        self.slots = self.slots.set(slot, replace(record, closing=True, wake_s=_INF))
        self.commands.append(CloseSlot(slot))
