"""The core of execution: ``step(book, state, event) → (state, commands)``, pure.

A copy starts when its slot is ready, its inputs are at the site, processors are free, the slot
lives and the deadline lies far enough ahead, and nothing that stands before it in the slot's order
is kept beyond its plan by it (:mod:`vgrads.planner.rules`). What can no longer happen is given up
with a reason, and everything that needs it with it, so no pending queue stays stuck: slots and the
deadline end, and with them everything that still waits.

A copy that fails tries once more where no other copy of its task is left, or as the rules for its
exit codes say (:mod:`vgrads.execmgr.core.growth`). What is not needed any more is withdrawn. Where
fewer workflows are left than are needed, or a slot is overdue, the planner is asked about the
remainder; its answer comes as an event.
"""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.endings import alike
from vgrads.execmgr.core.retries import give_up, tries_again
from vgrads.execmgr.core.slot_order import settle
from vgrads.execmgr.core.states import (
    AskedAgain,
    Cancelled,
    Command,
    CommitCopy,
    CopyEnded,
    CopyRecord,
    CopyState,
    Event,
    Replan,
    Replanned,
    RunState,
    SiteSilent,
    SlotNews,
    SlotRecord,
    Told,
)
from vgrads.execmgr.core.triggers import beyond_help, overdue, shortfall
from vgrads.execmgr.core.turn import Turn
from vgrads.execmgr.core.withdrawal import withdrawn
from vgrads.planner.snapshot import CopyKey, TaskKey

_MOST_REPLANS = 20


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
    turn = _Step(book, state, max(event.at_s, state.now_s))
    if isinstance(event, SlotNews):
        turn.slot_news(event)
    elif isinstance(event, AskedAgain):
        turn.asked_again(event)
    elif isinstance(event, CopyEnded):
        turn.copy_ended(event)
    elif isinstance(event, Replanned):
        turn.replanned(event)
    elif isinstance(event, Cancelled):
        turn.cancel(event.reason)
    elif isinstance(event, Told):
        turn.told(event)
    elif isinstance(event, SiteSilent):
        turn.note(event.reason)
    settle(turn)
    turn.withdraw()
    turn.consider_replan()
    return turn.freeze(), turn.commands


class _Step(Turn):
    """What each kind of event does."""

    surer = False  # a slot has come, or a workflow is done: more may be superfluous than before

    def slot_news(self, news: SlotNews) -> None:
        self._move_slot(news)
        if news.permanent:  # asked no more: the others would be refused in turn
            for slot in alike(self.book, self.slots, news.slot):
                self._move_slot(replace(news, slot=slot))

    def _move_slot(self, news: SlotNews) -> None:
        record = self.slots[news.slot]
        if record.state is not None and (record.state.ended or news.state <= record.state):
            return  # late news
        self.surer |= news.state == SlotState.READY
        said = news.reason or ("" if news.state.ended else record.reason)
        ready_s = news.at_s if news.state == SlotState.READY else record.ready_s
        granted_s = news.at_s if news.state == SlotState.GRANTED else record.granted_s
        self.set_slot(
            news.slot,
            state=news.state,
            granted_s=granted_s,
            ready_s=ready_s,
            reason=said,
            permanent=news.permanent,
            ended_s=news.at_s if news.state.ended else None,
        )
        if news.state.ended:
            self._lose_slot(news.slot, news.reason or news.state.name.lower())

    def _lose_slot(self, slot: str, reason: str) -> None:
        for waited, ending in (
            (CopyState.WAITING, CopyState.SKIPPED),
            (CopyState.RUNNING, CopyState.FAILED),
        ):
            for key in self.book.order[slot]:
                if self.copies[key].state == waited:
                    self.stop_copy(key, ending, f"slot lost: {reason}")

    def asked_again(self, event: AskedAgain) -> None:
        """What runs in the slot waits for it once more; what has run is committed without it."""
        record = self.slots[event.slot]
        if record.state is None or record.state.ended:
            return
        for key in self.book.order[event.slot]:
            copy = self.copies[key]
            if copy.state == CopyState.RUNNING and not copy.committing:
                again = replace(
                    copy, state=CopyState.WAITING, attempt=copy.attempt + 1, reason=event.reason
                )
                self.await_again(key, again)
        held = self.slots[event.slot]
        fresh = SlotRecord(state=SlotState.REQUESTED, asked_s=self.now_s, reason=event.reason)
        self.slots = self.slots.set(
            event.slot, replace(fresh, used=held.used, next=held.next, again=held.again + 1)
        )
        self.touched.add(event.slot)
        self.note(f"slot {event.slot} {event.reason}")

    def copy_ended(self, event: CopyEnded) -> None:
        if self.copies[event.key].state != CopyState.RUNNING:
            return  # late news
        task: TaskKey = event.key[:2]
        if event.ok and not event.committed:
            self._commit(event.key)
            return
        if not event.ok and task not in self.done and tries_again(self, event):
            return
        record = replace(self.copies[event.key], code=event.code)
        self.copies = self.copies.set(event.key, record)
        ending = CopyState.DONE if event.ok else CopyState.FAILED
        said = self.faulty.get(task, "") if self.book.snapshot.task(task).manner.errors else ""
        self.end_copy(event.key, ending, event.reason if event.ok else said or event.reason)
        if event.ok and task not in self.done:
            self.deliver(event.key)
            order = self.book.workflow(event.key).order
            if all((task[0], other) in self.done for other in reversed(order)):
                self.state = replace(self.state, whole=self.state.whole + 1)
                self.surer = True

    def _commit(self, key: CopyKey) -> None:
        """The first copy that has run is to count; a second one is too late while the first
        commits."""
        record, twins = self.copies[key], self.book.copies[key[:2]]
        if key[:2] in self.done or any(self.copies[t].committing for t in twins if t != key):
            self.end_copy(key, CopyState.CANCELLED, "another copy was first")
        elif not record.committing:
            self.copies = self.copies.set(key, replace(record, committing=True))
            self.commands.append(CommitCopy(key))

    def told(self, event: Told) -> None:
        """Tasks may begin, or are given up; what is unknown here, or done, is passed over."""
        for task, release in event.released:
            if task in self.book.copies and task not in self.done:
                self.released = self.released.set(task, release)
                self.touched.update(self.book.slot_of(copy) for copy in self.book.copies[task])
        for task, reason in event.given_up:
            if task in self.book.copies and task not in self.done:
                give_up(self, task, reason)
        self.state = replace(self.state, heard=event.upto)

    def replanned(self, event: Replanned) -> None:
        """Take the new book's orders over; what runs or has ended stays."""
        asked = self.state.replans + self.state.replanning  # what grows is planned unasked
        self.state = replace(self.state, replanning=False, replans=asked)
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
        self.touched.update(self.book.order)
        for slot, order in self.book.order.items():
            fresh = [key for key in order if key not in self.copies]
            before = self.slots.get(slot, SlotRecord())
            self.slots = self.slots.set(slot, replace(before, next=len(order) - len(fresh)))
            for key in fresh:
                self.copies = self.copies.set(key, CopyRecord())
                if key[:2] in self.lost:
                    self.lost = self.lost.delete(key[:2])

    def cancel(self, reason: str) -> None:
        """Stop what runs, give up what waits; the slots then have nothing left and are given
        back."""
        self.state = replace(self.state, cancelled=reason, replanning=False)
        self.note(f"stopped: {reason}")
        for key, record in self.copies.items():  # what waits first: nothing is to be begun instead
            if record.state == CopyState.WAITING:
                given_up = replace(
                    record, state=CopyState.CANCELLED, end_s=self.now_s, reason=reason
                )
                self.copies = self.copies.set(key, given_up)
                if key[:2] not in self.done:
                    self.lost = self.lost.set(key[:2], reason)
        for key in self.copies:
            self.stop_copy(key, CopyState.CANCELLED, reason)
        self.touched.update(self.slots)

    # what follows

    def withdraw(self) -> None:
        """Give up what the promise does not need any more, where something has made it surer."""
        if not self.surer or self.state.cancelled or self.book.released:
            return
        spare, words = withdrawn(self.book, self, self.state.whole)
        for key in spare:
            self.stop_copy(key, CopyState.CANCELLED, "withdrawn: enough is sure without it")
        if spare:
            self.note(words)
            settle(self)

    def consider_replan(self) -> None:
        """Ask the planner where too few workflows are left, or a slot is overdue; once for each
        state of affairs."""
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
