"""The core of execution: ``step(book, state, event) → (state, commands)``, pure.

A copy starts when its slot is ready, everything planned before it there has started or been given
up, its inputs are at the site, processors are free, and the slot lives and the deadline lies far
enough ahead. What can no longer happen is given up with a reason, so no pending queue stays stuck:
slots and the deadline end, and with them everything that still waits.

A copy that fails tries once more where no other copy of its task is left. Where fewer workflows are left
than are needed, or a slot is overdue, the planner is asked about the remainder; its answer comes as an event.
"""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from drivers.api import SlotState
from execmgr.book import Book
from execmgr.endings import alike, fault_of
from execmgr.states import (
    CancelCopy,
    Cancelled,
    CloseSlot,
    Command,
    CommitCopy,
    CopyEnded,
    CopyRecord,
    CopyState,
    Delivery,
    Event,
    OpenSlot,
    Replan,
    Replanned,
    RunState,
    SiteSilent,
    SlotNews,
    SlotRecord,
    StartCopy,
)
from execmgr.triggers import beyond_help, overdue, shortfall
from planner.snapshot import CopyKey, TaskKey

_ATTEMPTS = 2  # of one copy, where no other copy of its task is left
_MOST_REPLANS = 20
_SLACK_S = 1.0  # plans are met to the second; rounding must not cost a task its turn


def begin(book: Book) -> RunState:
    """The state before anything happened."""
    return RunState(
        slots=Map({slot: SlotRecord() for slot in book.uses}),
        copies=Map({key: CopyRecord() for key in book.placements}),
        done=Map(),
        lost=Map(),
    )


def step(book: Book, state: RunState, event: Event) -> tuple[RunState, list[Command]]:
    """What an event changes and what is to be done about it. O(slots + copies touched)."""
    turn = _Turn(book, state, max(event.at_s, state.now_s))
    if isinstance(event, SlotNews):
        turn.slot_news(event)
    elif isinstance(event, CopyEnded):
        turn.copy_ended(event)
    elif isinstance(event, Replanned):
        turn.replanned(event)
    elif isinstance(event, Cancelled):
        turn.cancel(event.reason)
    elif isinstance(event, SiteSilent):
        turn.note(event.reason)
    turn.settle()
    return turn.freeze(), turn.commands


class _Turn:
    """One step in the making: maps under change, commands to give."""

    def __init__(self, book: Book, state: RunState, now_s: float) -> None:
        self.book, self.now_s, self.state = book, now_s, state
        self.slots, self.copies = state.slots, state.copies
        self.done, self.lost, self.faulty = state.done, state.lost, state.faulty
        self.commands: list[Command] = []
        self.wake_s = float("inf")

    def freeze(self) -> RunState:
        return replace(
            self.state, now_s=self.now_s, slots=self.slots, copies=self.copies, done=self.done, lost=self.lost,
            faulty=self.faulty, wake_s=self.wake_s,
        )  # fmt: skip

    # what came in

    def slot_news(self, news: SlotNews) -> None:
        self._move_slot(news)
        if news.permanent:  # asked no more: the others would be refused in turn
            for slot in alike(self.book, self.slots, news.slot):
                self._move_slot(replace(news, slot=slot))

    def _move_slot(self, news: SlotNews) -> None:
        record = self.slots[news.slot]
        if record.state is not None and (record.state.ended or news.state <= record.state):
            return  # late news
        said = news.reason or ("" if news.state.ended else record.reason)
        ready_s = news.at_s if news.state == SlotState.READY else record.ready_s
        granted_s = news.at_s if news.state == SlotState.GRANTED else record.granted_s
        self.slots = self.slots.set(
            news.slot,
            replace(
                record, state=news.state, granted_s=granted_s, ready_s=ready_s, reason=said,
                permanent=news.permanent, ended_s=news.at_s if news.state.ended else None,
            ),
        )  # fmt: skip
        if news.state.ended:
            self._lose_slot(news.slot, news.reason or news.state.name.lower())

    def _lose_slot(self, slot: str, reason: str) -> None:
        for key in self.book.order[slot]:
            state = self.copies[key].state
            if state == CopyState.RUNNING:
                self.commands.append(CancelCopy(key))
                self._end_copy(key, CopyState.FAILED, f"slot lost: {reason}")
            elif state == CopyState.WAITING:
                self._end_copy(key, CopyState.SKIPPED, f"slot lost: {reason}")

    def copy_ended(self, event: CopyEnded) -> None:
        if self.copies[event.key].state != CopyState.RUNNING:
            return  # late news
        task: TaskKey = event.key[:2]
        if event.ok and not event.committed:
            self._commit(event.key)
            return
        if not event.ok and task not in self.done and self._tries_again(event):
            return
        record = replace(self.copies[event.key], code=event.code)
        self.copies = self.copies.set(event.key, record)
        self._end_copy(event.key, CopyState.DONE if event.ok else CopyState.FAILED, event.reason)
        if not event.ok or task in self.done:
            return
        self.done = self.done.set(
            task, Delivery(site=self.book.site_of(event.key), at_s=self.now_s)
        )
        for twin in self.book.copies[task]:
            if self.copies[twin].state == CopyState.RUNNING:
                self.commands.append(CancelCopy(twin))
                self._end_copy(twin, CopyState.CANCELLED, "another copy was first")

    def _commit(self, key: CopyKey) -> None:
        """The first copy that has run is to count; a second one is too late while the first commits."""
        record, twins = self.copies[key], self.book.copies[key[:2]]
        if key[:2] in self.done or any(self.copies[t].committing for t in twins if t != key):
            self._end_copy(key, CopyState.CANCELLED, "another copy was first")
        elif not record.committing:
            self.copies = self.copies.set(key, replace(record, committing=True))
            self.commands.append(CommitCopy(key))

    def note(self, words: str) -> None:
        """Keep what was decided, for people."""
        self.state = replace(self.state, notes=(*self.state.notes, (self.now_s, words)))

    def _tries_again(self, event: CopyEnded) -> bool:
        """A failed copy waits once more where it was, if no other copy can do its task, and time is left."""
        key, record = event.key, self.copies[event.key]
        fault = fault_of(self.book, self.copies, event)
        if fault:
            self._condemn(key[:2], fault)
            return False
        others = [twin for twin in self.book.copies[key[:2]] if twin != key]
        if record.attempt + 1 >= _ATTEMPTS or self._latest_start(key) < self.now_s:
            return False
        if any(not self.copies[twin].state.settled for twin in others):
            return False
        slot = self.book.slot_of(key)
        held = self.slots[slot]
        used = held.used - self.book.placements[key].procs
        self.slots = self.slots.set(slot, replace(held, used=used, again=(*held.again, key)))
        again = replace(
            record, state=CopyState.WAITING, attempt=record.attempt + 1, committing=False, code=event.code,
            reason=f"tried again after: {event.reason}",
        )  # fmt: skip
        self.copies = self.copies.set(key, again)
        return True

    def _condemn(self, task: TaskKey, fault: str) -> None:
        """A task that fails by itself is begun no more, anywhere; copies that run may still do it."""
        self.faulty = self.faulty.set(task, fault)
        self.note(f"{task[0]}/{task[1]}: {fault}")
        for twin in self.book.copies[task]:
            if self.copies[twin].state == CopyState.WAITING:
                self._end_copy(twin, CopyState.SKIPPED, fault)

    def replanned(self, event: Replanned) -> None:
        """Take the new book's orders over; what runs or has ended stays."""
        self.state = replace(self.state, replanning=False, replans=self.state.replans + 1)
        if event.version == self.state.version:
            self.note(f"the planner was asked: {event.reason}")
            return
        self.note(f"planned anew: {event.reason}")
        self.state = replace(self.state, version=event.version)
        for key, record in self.copies.items():
            if record.state == CopyState.WAITING:
                given_up = replace(
                    record, state=CopyState.SKIPPED, end_s=self.now_s, reason="planned anew"
                )
                self.copies = self.copies.set(key, given_up)
        for slot, order in self.book.order.items():
            fresh = [key for key in order if key not in self.copies]
            before = self.slots.get(slot, SlotRecord())
            self.slots = self.slots.set(
                slot, replace(before, next=len(order) - len(fresh), again=())
            )
            for key in fresh:
                self.copies = self.copies.set(key, CopyRecord())
                if key[:2] in self.lost:
                    self.lost = self.lost.delete(key[:2])

    def cancel(self, reason: str) -> None:
        """Stop what runs, give up what waits; the slots then have nothing left and are given back."""
        self.state = replace(self.state, cancelled=reason, replanning=False)
        self.note(f"stopped: {reason}")
        for key, record in self.copies.items():
            if record.state == CopyState.RUNNING:
                self.commands.append(CancelCopy(key))
            if not record.state.settled:
                self._end_copy(key, CopyState.CANCELLED, reason)

    # what follows

    def settle(self) -> None:
        """Open slots that are due, start what may start, give up what cannot, until nothing changes."""
        changed = True
        while changed:
            changed = False
            for slot in self.slots:
                changed |= self._tend(slot)
        self._consider_replan()
        for slot in self.slots:
            self._plan_wake(slot)

    def _consider_replan(self) -> None:
        """Ask the planner where too few workflows are left, or a slot is overdue; once for each state of affairs."""
        state = self.state
        if state.replanning or state.cancelled or state.replans >= _MOST_REPLANS:
            return
        if beyond_help(self.book, self.faulty):
            return
        late, short = overdue(self.book, self.slots, self.now_s), shortfall(self.book, self.lost)
        failed = sum(1 for record in self.slots.values() if record.state == SlotState.FAILED)
        how_bad = (len(self.lost), failed)
        nothing_new = not late and (not short or how_bad == state.tried)
        if nothing_new or self.now_s >= self.book.plan.deadline_s:
            return
        for slot in late:
            self.slots = self.slots.set(slot, replace(self.slots[slot], overdue=True))
        reason = short or f"slot {late[0]} is overdue"
        self.note(reason)
        self.state = replace(self.state, replanning=True, tried=how_bad)
        self.commands.append(Replan(reason))

    def _tend(self, slot: str) -> bool:
        record = self.slots[slot]
        if record.closing or (record.state is not None and record.state.ended):
            return False
        changed = self._walk(slot)
        record = self.slots[slot]
        if record.next >= len(self.book.order[slot]) and record.used == 0 and not record.again:
            return self._close(slot)
        if record.state is None and self.now_s >= self.book.uses[slot].submit_s:
            self.slots = self.slots.set(
                slot, replace(record, state=SlotState.REQUESTED, asked_s=self.now_s)
            )
            self.commands.append(OpenSlot(slot))
            return True
        return changed

    def _walk(self, slot: str) -> bool:
        """Go along the slot's order as far as copies are settled, start, or are given up."""
        order, moved = self.book.order[slot], self._walk_again(slot)
        while self.slots[slot].next < len(order):
            key = order[self.slots[slot].next]
            if self.copies[key].state == CopyState.WAITING and not self._start_or_give_up(key):
                break
            record = self.slots[slot]
            self.slots = self.slots.set(slot, replace(record, next=record.next + 1))
            moved = True
        return moved

    def _walk_again(self, slot: str) -> bool:
        """Copies that try once more go first, and hold nobody up."""
        waiting = self.slots[slot].again
        for key in waiting:
            if self.copies[key].state != CopyState.WAITING or self._start_or_give_up(key):
                record = self.slots[slot]
                left = tuple(one for one in record.again if one != key)
                self.slots = self.slots.set(slot, replace(record, again=left))
        return len(self.slots[slot].again) < len(waiting)

    def _start_or_give_up(self, key: CopyKey) -> bool:
        """True when the copy is out of the way of those behind it."""
        reason = self._hopeless(key)
        if reason:
            self._end_copy(key, CopyState.SKIPPED, reason)
            return True
        slot = self.book.slot_of(key)
        record, procs = self.slots[slot], self.book.placements[key].procs
        room = self.book.uses[slot].slot.procs - record.used
        if (
            record.state != SlotState.READY
            or procs > room
            or self._inputs_at(key) > self.now_s + 1e-9
        ):
            return False
        self.slots = self.slots.set(slot, replace(record, used=record.used + procs))
        running = replace(self.copies[key], state=CopyState.RUNNING, start_s=self.now_s)
        self.copies = self.copies.set(key, running)
        self.commands.append(StartCopy(key))
        return True

    def _hopeless(self, key: CopyKey) -> str:
        """Why a waiting copy need not or cannot run any more; empty if it can."""
        if key[:2] in self.done:
            return "another copy was first"
        for parent in self.book.workflow(key).tasks[key[1]].parents:
            if (key[0], parent) in self.lost:
                return f"its input from '{parent}' will never come"
        if self._latest_start(key) < self.now_s:
            return "too late to end in time"
        return ""

    def _latest_start(self, key: CopyKey) -> float:
        """Last instant at which the copy can start and end before its slot and the deadline."""
        slot = self.book.slot_of(key)
        record, end_s = self.slots[slot], self.book.plan.deadline_s
        if record.ready_s is not None:
            end_s = min(end_s, record.ready_s + self.book.held_s(slot))
        return end_s - self.book.duration_s(key) + _SLACK_S

    def _inputs_at(self, key: CopyKey) -> float:
        """When the outputs of all parents are at the copy's site; ``inf`` while one is not done."""
        workflow, site, latest_s = self.book.workflow(key), self.book.site_of(key), 0.0
        for parent in workflow.tasks[key[1]].parents:
            delivery = self.done.get((key[0], parent))
            if delivery is None:
                return float("inf")
            transfer_s = self.book.snapshot.transfer_s(
                workflow, parent, key[1], (delivery.site, site)
            )
            latest_s = max(latest_s, delivery.at_s + transfer_s)
        return latest_s

    def _end_copy(self, key: CopyKey, state: CopyState, reason: str) -> None:
        before = self.copies[key]
        if before.state == CopyState.RUNNING:
            slot = self.book.slot_of(key)
            used = self.slots[slot].used - self.book.placements[key].procs
            self.slots = self.slots.set(slot, replace(self.slots[slot], used=used))
        self.copies = self.copies.set(
            key, replace(before, state=state, end_s=self.now_s, reason=reason, committing=False)
        )
        task: TaskKey = key[:2]
        if task not in self.done and state != CopyState.DONE and self._all_settled(task):
            self.lost = self.lost.set(task, reason)

    def _all_settled(self, task: TaskKey) -> bool:
        return all(self.copies[copy].state.settled for copy in self.book.copies[task])

    def _close(self, slot: str) -> bool:
        record = self.slots[slot]
        if record.state is None:  # never asked for, nothing to give back
            ended = replace(
                record, state=SlotState.RELEASED, ended_s=self.now_s, reason="not needed"
            )
            self.slots = self.slots.set(slot, ended)
            return True
        self.slots = self.slots.set(slot, replace(record, closing=True))
        self.commands.append(CloseSlot(slot))
        return True

    def _plan_wake(self, slot: str) -> None:
        """When this slot needs another look even if nothing is reported."""
        record = self.slots[slot]
        if record.closing or (record.state is not None and record.state.ended):
            return
        if record.state is None:
            self._wake_at(self.book.uses[slot].submit_s)
        elif record.state < SlotState.READY and not record.overdue:
            self._wake_at(self.book.overdue_s[slot])
        for key in record.again:
            self._wake_at(self._latest_start(key) + _SLACK_S / 2)
        if record.next < len(self.book.order[slot]):
            key = self.book.order[slot][record.next]
            self._wake_at(self._inputs_at(key))
            self._wake_at(self._latest_start(key) + _SLACK_S / 2)

    def _wake_at(self, instant_s: float) -> None:
        if instant_s > self.now_s:
            self.wake_s = min(self.wake_s, instant_s)
