"""The one loop that acts: collects events, journals them, steps the core, carries out commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from vgrads.drivers.api import Driver, SlotState
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.endings import over
from vgrads.execmgr.core.growth import grown
from vgrads.execmgr.core.journal import Journal, LeaseLost
from vgrads.execmgr.core.states import (
    CancelCopy,
    Cancelled,
    CloseSlot,
    Command,
    CommitCopy,
    CopyEnded,
    CopyState,
    Event,
    OpenSlot,
    Replanned,
    RunState,
    SlotNews,
    StartCopy,
    Tick,
    Told,
)
from vgrads.execmgr.core.step import begin, step
from vgrads.execmgr.core.times import Times, with_own
from vgrads.execmgr.engines.base import Engine, Reach, TaskOrder
from vgrads.execmgr.mailbox import Answer, Answers, Mailbox, added_to
from vgrads.execmgr.sites import Sites
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import InputError
from vgrads.planner.snapshot import CopyKey, TaskKey
from vgrads.workflows.manner import Manner, with_env
from vgrads.workflows.task import Task

Watcher = Callable[[Book, RunState, list[Event]], None]
"""Is told the book that rules, what the run has come to, and what has just happened."""
Replanner = Callable[[Book, RunState], tuple[Book | None, str]]
"""What is left → the book that does it better (kept wherever books are kept), or None, and why."""
SILENCE_S = 600.0
"""After which a run whose tasks are released one by one is given up: whoever releases them says
something each minute."""
POLL_S = 0.5  # longest wait of the loop in real time; ends of tasks are noticed at once


Grower = Callable[[Book, RunState, Sequence[tuple[str, Task]]], tuple[Book | None, str]]
"""The same with tasks that were added to workflows."""


def no_replanner(_: Book, __: RunState) -> tuple[Book | None, str]:
    """Go on as planned, whatever happens."""
    return None, "nobody plans here"


def _no_grower(_: Book, __: RunState, ___: Sequence[tuple[str, Task]]) -> tuple[Book | None, str]:
    return None, "nothing can be added here"


def _nobody() -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a run acts on: a driver for each site, an engine, a clock, a journal.

    ``replan`` is asked where too few workflows are left; ``asked_to_stop`` returns a reason when
    somebody has cancelled the run; ``mailbox``: from whom releases the tasks, if they are released;
    ``grow`` is asked where that adds tasks; ``poll_s``: how long the loop waits at most; ``reach``:
    what is particular to a site.
    """

    drivers: Mapping[str, Driver]
    engine: Engine
    clock: Clock
    journal: Journal
    replan: Replanner = no_replanner
    grow: Grower = _no_grower
    mailbox: Mailbox | None = None
    asked_to_stop: Callable[[], str] = _nobody
    poll_s: float = POLL_S
    reach: Mapping[str, Reach] = field(default_factory=dict)


class Runner:
    """Carries out one plan. ``watch`` is called after every step, for progress and pictures;
    ``spent``: where the time of all attempts went that ended while it looked."""

    def __init__(
        self, run: str, book: Book, around: Surroundings, watch: Watcher | None = None
    ) -> None:
        self.run_id, self.book, self.around = run, book, around
        self.state = begin(book)
        self._watch, self._due_s = watch, 0.0
        self._worked_s, self._answers = time.thread_time(), Answers()
        self._heard_s = around.clock.now()
        self.spent = Times()
        self._sites = Sites(run, around.drivers, around.clock, around.reach)

    def run(self) -> RunState:
        """Work until everything is settled; slots and tasks are given back whatever happens."""
        return self._look_after(lambda: self._handle([Tick(at_s=self.around.clock.now())]))

    def resume(self, state: RunState) -> RunState:
        """Go on where a journal ends: open slots and running tasks are found again, or done
        without.

        ``state`` is its fold, and this runner's book the one that rules it. What was commanded
        after the last event may have happened or not; asking again is asking once.
        """
        self.state = state
        return self._look_after(self._recover)

    def cancel(self, state: RunState, reason: str) -> RunState:
        """Give back what a run holds whose manager is gone: nothing is planned, asked for or
        begun."""
        self.state = state
        return self._look_after(lambda: self._give_back(reason))

    def _take_slots(self, take: Callable[[str, SlotState], list[Event]]) -> list[Event]:
        """Take the slots that are open over from an earlier manager; what it was giving back goes
        on being so."""
        found: list[Event] = []
        for slot, record in self.state.slots.items():
            if record.state is not None and not record.state.ended:
                self._sites.rename(self.book, slot, record.again)
                found += take(slot, record.state)
                if record.closing:
                    found += self._sites.close(self.book, slot)
        return found

    def _give_back(self, reason: str) -> None:
        found = self._take_slots(self._sites.know)
        self.around.engine.recover([])
        self._handle([*found, Cancelled(at_s=self.around.clock.now(), reason=reason)])

    def _look_after(self, begin_with: Callable[[], None]) -> RunState:
        """Work to the end and give everything back; an interrupted run keeps its slots, to be
        resumed.

        A manager whose run was taken over lets go of everything: nothing of it is its own any more.
        """
        try:
            begin_with()
            while not over(self.state):
                self._wait()
                self._handle(self._collect())
                self._read_mail()
        except LeaseLost:  # all of it is somebody else's now, or may be, and goes on
            self._sites.forget()
            self.around.engine.abandon()
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                self._sites.forget()
            self._leave()
            raise
        self._leave()
        return self.state

    def _recover(self) -> None:
        found = self._take_slots(partial(self._sites.find, self.book))
        running = [
            k for k, record in self.state.copies.items() if record.state == CopyState.RUNNING
        ]
        committing = [key for key in running if self.state.copies[key].committing]
        engine = self.around.engine
        engine.recover([self._order(key) for key in running if key not in committing])
        engine.commit([self._order(key) for key in committing])
        self._handle([*found, Tick(at_s=self.around.clock.now())])

    def _leave(self) -> None:
        self.around.engine.close()
        self._sites.leave()

    def _handle(self, events: list[Event]) -> None:
        """Journal, step, act; what acting brings about is handled in turn, a new plan last of all.

        So the state that the planner sees is the state that its answer meets. That a plan is
        awaited stands in the state: what cancels the run takes the question back.
        """
        while events or self.state.replanning:
            events = events or [self._replan()]
            self.around.journal.append(events)
            found: list[Event] = []
            self.around.journal.confirm()
            for event in events:
                self.state, commands = step(self.book, self.state, event)
                found += self._act(commands)
            if self._watch:
                self._watch(self.book, self.state, events)
            events = found

    def _read_mail(self) -> None:
        """Hear who releases the tasks, and tell how they stand."""
        box = self.around.mailbox
        if box is None:
            return
        mail = box.take(self.state.heard)
        if mail is not None:
            self._heard_s = self.around.clock.now()
            refused = self._grow(mail.added)
            told = Told(
                at_s=self.around.clock.now(),
                upto=mail.upto,
                released=mail.released,
                given_up=mail.given_up,
            )
            self._handle([told])
            box.answer(refused)
        box.answer(self._answers.news(self.book, self.state))

    def _left_alone(self) -> str:
        """Whoever was to release tasks is gone: what is held is given back."""
        if self.around.mailbox is None or self.around.clock.now() - self._heard_s < SILENCE_S:
            return ""
        return f"nobody has released a task, or given a sign, for {SILENCE_S / 60:.0f} minutes"

    def _grow(self, added: Sequence[tuple[str, Task]]) -> list[Answer]:
        """Plan with tasks that were added; those that cannot be are told so."""
        fresh = list(added_to(self.book, added))
        if not fresh:
            return []
        try:
            if self.state.cancelled:
                raise InputError(f"the run is stopped: {self.state.cancelled}")
            book, reason = self.around.grow(self.book, self.state, fresh)
        except InputError as error:
            book, reason = None, str(error)
        if book is None:
            return [
                Answer(task=(workflow, task.id), state="lost", reason=reason)
                for workflow, task in fresh
            ]
        self.book = book
        self._handle(
            [Replanned(at_s=self.around.clock.now(), version=self.state.version + 1, reason=reason)]
        )
        return []

    def _collect(self) -> list[Event]:
        found: list[Event] = [*self._sites.news(self.book), *self._ends()]
        reason = "" if self.state.cancelled else self.around.asked_to_stop() or self._left_alone()
        if reason:
            found.append(Cancelled(at_s=self.around.clock.now(), reason=reason))
        # what ended at the instant at which its slot did has ended
        found.sort(key=lambda event: (event.at_s, isinstance(event, SlotNews)))
        now = self.around.clock.now()
        due = now >= self._due_s if self.around.clock.virtual else now >= self.state.wake_s
        if found or not due:
            return found
        return [Tick(at_s=now)]

    def _ends(self) -> list[CopyEnded]:
        """What the engine tells; each end with its part of what this manager has worked since the
        last ones."""
        ended = self.around.engine.poll()
        if not ended or self.around.clock.virtual:
            return ended
        before_s, self._worked_s = self._worked_s, time.thread_time()
        own_s = max(0.0, self._worked_s - before_s) / len(ended)
        found = [replace(one, times=with_own(one.times, own_s)) for one in ended]
        for one in found:
            self.spent = self.spent.and_then(one.times)
        return found

    def _act(self, commands: list[Command]) -> list[Event]:
        found: list[Event] = []
        starts = [self._order(c.key) for c in commands if isinstance(c, StartCopy)]
        commits = [self._order(c.key) for c in commands if isinstance(c, CommitCopy)]
        for command in commands:
            if isinstance(command, OpenSlot):
                found += self._sites.open(self.book, command.slot)
            elif isinstance(command, CloseSlot):
                found += self._sites.close(self.book, command.slot)
            elif isinstance(command, CancelCopy):
                self.around.engine.cancel(command.key)
        if commits:
            self.around.engine.commit(commits)
        if starts:
            self.around.engine.start(starts)
        return found

    def _replan(self) -> Event:
        """Ask the planner; the book changes together with the event that says so."""
        book, reason = self.around.replan(self.book, self.state)
        version = self.state.version
        if book is not None:
            self.book, version = book, version + 1
        return Replanned(at_s=self.around.clock.now(), version=version, reason=reason)

    def _order(self, key: CopyKey) -> TaskOrder:
        placement = self.book.placements[key]
        task_key: TaskKey = placement.task_key
        task = self.book.snapshot.task(task_key)
        leave = self.state.released.get(task_key)
        if leave is not None:
            task = replace(task, command=leave.command, memory_mib=leave.memory_mib)
        more = grown(self.book, self.state.copies, key)
        return TaskOrder(
            key=key,
            site=self.book.site_of(key),
            slot=placement.slot,
            procs=task.threads or task.procs,
            command=task.command,
            inputs=task.inputs,
            outputs=task.outputs,
            runtime_s=self.book.median_s(key) * more.time,
            attempt=self.state.copies[key].attempt,
            memory_mib=task.memory_mib * more.memory,
            manner=self._manner(key, task),
            fetches=tuple(file.of(*task_key) for file in task.fetches),
            sends=tuple(file.of(*task_key) for file in task.sends),
        )

    def _manner(self, key: CopyKey, task: Task) -> Manner:
        """How a task runs where it is planned: a container that any engine may run by the first
        that its site has."""
        manner = with_env(task.manner, self.book.snapshot.wanted.env)
        box = manner.boxed
        if box is None or box.engine:
            return manner
        engines = self.book.uses[self.book.slot_of(key)].slot.containers
        return replace(manner, container=replace(box, engine=engines[0]))

    def _wait(self) -> None:
        """Let time pass until news is due: a jump in virtual time, a wait for the engine in real
        time."""
        clock, engine = self.around.clock, self.around.engine
        now = clock.now()
        due = min(self.state.wake_s, engine.wake_at(), self._sites.wake_at(self.book))
        if clock.virtual:
            self._due_s = min(due, max(self.book.plan.deadline_s, now) + 1.0)
            clock.advance_to(self._due_s)
        else:
            engine.wait(min(max(0.0, due - now), self.around.poll_s))
