"""The one loop that acts: collects events, journals them, steps the core, carries out commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from vgrads.drivers.api import Driver, SlotState
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.endings import over
from vgrads.execmgr.core.journal import Journal, LeaseLost
from vgrads.execmgr.core.states import (
    CancelCopy,
    Cancelled,
    CloseSlot,
    Command,
    CommitCopy,
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
from vgrads.execmgr.engines.base import Engine, Reach, TaskOrder
from vgrads.execmgr.mailbox import Answer, Mailbox, Releases, added_to
from vgrads.execmgr.orders import task_order
from vgrads.execmgr.own_work import OwnWork
from vgrads.execmgr.sites import Sites
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import InputError
from vgrads.planner.snapshot import CopyKey
from vgrads.workflows.task import Task

Watcher = Callable[[Book, RunState, list[Event]], None]
"""Is told the book that rules, what the run has come to, and what has just happened."""
Replanner = Callable[[Book, RunState], tuple[Book | None, str]]
"""What is left → the book that does it better (kept wherever books are kept), or None, and why."""
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
    """Carries out one plan. ``watch`` is called after every step, for progress and pictures."""

    def __init__(
        self, run: str, book: Book, around: Surroundings, watch: Watcher | None = None
    ) -> None:
        self.run_id, self.book, self.around = run, book, around
        self.state = begin(book)
        self._watch, self._due_s = watch, 0.0
        self.own_work = OwnWork(around.clock)
        self._releases = Releases(around.mailbox, around.clock)
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
        engine.recover(self._orders(key for key in running if key not in committing))
        engine.commit(self._orders(committing))
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
        mail = self._releases.take(self.state.heard)
        if mail is not None:
            refused = self._grow(mail.added)
            told = Told(
                at_s=self.around.clock.now(),
                upto=mail.upto,
                released=mail.released,
                given_up=mail.given_up,
            )
            self._handle([told])
            self._releases.answer(refused)
        self._releases.tell(self.book, self.state)

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
        found = self._sites.news(self.book)
        found += self.own_work.shared(self.around.engine.poll())
        reason = ""
        if not self.state.cancelled:
            reason = self.around.asked_to_stop() or self._releases.left_alone()
        if reason:
            found.append(Cancelled(at_s=self.around.clock.now(), reason=reason))
        # what ended at the instant at which its slot did has ended
        found.sort(key=lambda event: (event.at_s, isinstance(event, SlotNews)))
        now = self.around.clock.now()
        due = now >= self._due_s if self.around.clock.virtual else now >= self.state.wake_s
        if found or not due:
            return found
        return [Tick(at_s=now)]

    def _act(self, commands: list[Command]) -> list[Event]:
        found: list[Event] = []
        starts = self._orders(c.key for c in commands if isinstance(c, StartCopy))
        commits = self._orders(c.key for c in commands if isinstance(c, CommitCopy))
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

    def _orders(self, keys: Iterable[CopyKey]) -> list[TaskOrder]:
        return [task_order(self.book, self.state, key) for key in keys]

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
