"""One step in the making: what a run has come to, under change, and the commands to give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.states import (
    CancelCopy,
    Command,
    CopyRecord,
    CopyState,
    Delivery,
    RunState,
    StartCopy,
)
from vgrads.planner.rules import SLACK_S
from vgrads.planner.snapshot import CopyKey, TaskKey

_INF = float("inf")


class Turn:
    """Maps under change. ``touched``: slots for which something may have changed; they are walked
    by :func:`vgrads.execmgr.core.slot_order.settle`."""

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
