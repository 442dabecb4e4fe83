"""The one loop that acts: collects events, journals them, steps the core, carries out commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from drivers.api import Driver, SlotState
from execmgr.book import Book, spec_id
from execmgr.core import begin, over, step
from execmgr.engine import Engine, TaskOrder
from execmgr.journal import Journal
from execmgr.states import (
    CancelCopy,
    CloseSlot,
    Command,
    Event,
    OpenSlot,
    RunState,
    SlotNews,
    StartCopy,
    Tick,
)
from kernel.clock import Clock
from planner.snapshot import TaskKey

Watcher = Callable[[RunState, list[Event]], None]
POLL_S = 0.5  # how often real sites are asked; ends of tasks are noticed at once


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a run acts on: a driver for each site, an engine, a clock, a journal."""

    drivers: Mapping[str, Driver]
    engine: Engine
    clock: Clock
    journal: Journal


class Runner:
    """Carries out one plan. ``watch`` is called after every step, for progress and pictures."""

    def __init__(
        self, run: str, book: Book, around: Surroundings, watch: Watcher | None = None
    ) -> None:
        self.run_id, self.book, self.around = run, book, around
        self.state = begin(book)
        self._watch = watch
        self._seen: dict[str, SlotState] = {}

    def run(self) -> RunState:
        """Work until everything is settled; slots and tasks are given back whatever happens."""
        try:
            self._handle([Tick(at_s=self.around.clock.now())])
            while not over(self.state):
                self._wait()
                self._handle(self._collect())
        finally:
            self.around.engine.close()
            for driver in self.around.drivers.values():
                driver.close()
        return self.state

    def _handle(self, events: list[Event]) -> None:
        self.around.journal.append(events)
        for event in events:
            self.state, commands = step(self.book, self.state, event)
            self._act(commands)
        if self._watch and events:
            self._watch(self.state, events)

    def _collect(self) -> list[Event]:
        found: list[Event] = [*self._slot_news(), *self.around.engine.poll()]
        found.sort(key=lambda event: event.at_s)
        return found or [Tick(at_s=self.around.clock.now())]

    def _open_slots(self, site: str) -> list[str]:
        """Slots asked of a site that are not known to have ended."""
        return [
            slot
            for slot, state in self._seen.items()
            if not state.ended and self.book.uses[slot].slot.site == site
        ]

    def _slot_news(self) -> list[Event]:
        """What moved on at the sites, one call each; a slot known to have ended is asked no more."""
        found: list[Event] = []
        for site, driver in self.around.drivers.items():
            asked = self._open_slots(site)
            if not asked:
                continue
            answers = driver.status([self._spec_id(slot) for slot in asked])
            for slot, status in zip(asked, answers, strict=True):
                if status.state > self._seen[slot]:
                    self._seen[slot] = status.state
                    news = SlotNews(
                        at_s=status.since_s, slot=slot, state=status.state, reason=status.reason
                    )
                    found.append(news)
        return found

    def _spec_id(self, slot: str) -> str:
        return spec_id(slot, self.run_id)

    def _act(self, commands: list[Command]) -> None:
        starts = [self._order(c) for c in commands if isinstance(c, StartCopy)]
        for command in commands:
            if isinstance(command, OpenSlot):
                self._open(command.slot)
            elif isinstance(command, CloseSlot):
                self._driver(command.slot).cancel(self._spec_id(command.slot))
            elif isinstance(command, CancelCopy):
                self.around.engine.cancel(command.key)
        if starts:
            self.around.engine.start(starts)

    def _open(self, slot: str) -> None:
        self._driver(slot).submit(self.book.spec(slot, self.run_id))
        self._seen[slot] = SlotState.REQUESTED

    def _driver(self, slot: str) -> Driver:
        return self.around.drivers[self.book.uses[slot].slot.site]

    def _order(self, command: StartCopy) -> TaskOrder:
        placement = self.book.placements[command.key]
        key: TaskKey = placement.task_key
        task = self.book.snapshot.task(key)
        return TaskOrder(
            key=command.key, slot=placement.slot, procs=task.procs, command=task.command, inputs=task.inputs,
            outputs=task.outputs, runtime_s=self.book.duration_s(command.key),
        )  # fmt: skip

    def _wait(self) -> None:
        """Let time pass until news is due: a jump in virtual time, a wait for the engine in real time."""
        clock, engine = self.around.clock, self.around.engine
        now = clock.now()
        sites = [
            driver.wake_at()
            for site, driver in self.around.drivers.items()
            if self._open_slots(site)
        ]
        due = min([self.state.wake_s, engine.wake_at(), *sites])
        if clock.virtual:
            clock.advance_to(min(due, max(self.book.plan.deadline_s, now) + 1.0))
        else:
            engine.wait(min(due - now, POLL_S))
