"""Between a run and whoever releases its tasks one by one: what was told, and what is answered.

A workflow engine that knows only when a task is ready what exactly it is to run (as Snakemake)
hands over a set that is ``released``: it is planned as a whole, its slots are held, and a task
begins in its turn as soon as it was released. The graph may grow while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.states import CopyState, Release, RunState
from vgrads.kernel.clock import Clock
from vgrads.planner.snapshot import TaskKey
from vgrads.workflows.task import Task

SILENCE_S = 600.0
"""After which a run whose tasks are released one by one is given up: whoever releases them says
something each minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """What was told since the mailbox was read last; ``added``: (workflow, task), parents before
    children."""

    upto: int
    released: tuple[tuple[TaskKey, Release], ...] = ()
    given_up: tuple[tuple[TaskKey, str], ...] = ()
    added: tuple[tuple[str, Task], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a task stands: running, done, failed (it may be released again) or lost (never in this
    run).

    ``release``: the number of the release that it answers, 0 where there was none; ``code``: the
    exit code that its command chose.
    """

    task: TaskKey
    state: str
    release: int = 0
    site: str = ""
    slot: str = ""
    reason: str = ""
    code: int | None = None


class Mailbox(Protocol):
    """Kept where it survives both ends."""

    def take(self, after: int) -> Mail | None:
        """What was told behind this number; None where there is nothing."""

    def answer(self, answers: Sequence[Answer]) -> None:
        """Tell these, in this order."""


class Releases:
    """What whoever releases the tasks of a run tells, and is told; says nothing where nobody
    does."""

    def __init__(self, box: Mailbox | None, clock: Clock) -> None:
        self._box, self._clock, self._heard_s = box, clock, clock.now()
        self._told: dict[TaskKey, Answer] = {}

    def take(self, after: int) -> Mail | None:
        """What was told behind this number; None where there is nothing."""
        mail = self._box.take(after) if self._box is not None else None
        if mail is not None:
            self._heard_s = self._clock.now()
        return mail

    def answer(self, answers: Sequence[Answer]) -> None:
        """Tell these, in this order."""
        if self._box is not None:
            self._box.answer(answers)

    def tell(self, book: Book, state: RunState) -> None:
        """Tell how tasks stand now, where that has changed since the last call."""
        if self._box is not None:
            self._box.answer(self._news(book, state))

    def left_alone(self) -> str:
        """Why the run is to stop: whoever was to release tasks is gone, so what is held is given
        back."""
        if self._box is None or self._clock.now() - self._heard_s < SILENCE_S:
            return ""
        return f"nobody has released a task, or given a sign, for {SILENCE_S / 60:.0f} minutes"

    def _news(self, book: Book, state: RunState) -> list[Answer]:
        """Nothing while a plan is awaited, which may change it again."""
        if state.replanning:
            return []
        found = []
        for task in chain(state.released, state.lost):
            before = self._told.get(task)
            if before is None or before.state != "done":
                one = _answer(book, state, task)
                if one is not None and one != before:
                    self._told[task] = one
                    found.append(one)
        return found


def _answer(book: Book, state: RunState, task: TaskKey) -> Answer | None:
    leave = state.released.get(task)
    number = leave.number if leave is not None else 0
    if task in state.done:
        return Answer(task=task, state="done", release=number, site=state.done[task].site)
    if task in state.lost:
        return Answer(task=task, state="lost", release=number, reason=state.lost[task])
    records = {key: state.copies[key] for key in book.copies[task]}
    for key, record in records.items():
        if record.state == CopyState.RUNNING:
            site, slot = book.site_of(key), book.slot_of(key)
            return Answer(task=task, state="running", release=number, site=site, slot=slot)
    if leave is not None and leave.used:
        last = max(records.values(), key=lambda one: (one.code is not None, one.attempt))
        return Answer(task=task, state="failed", release=number, reason=last.reason, code=last.code)
    return None


def added_to(book: Book, added: Sequence[tuple[str, Task]]) -> Iterator[tuple[str, Task]]:
    """Those of the added tasks that the book does not know yet, as they can stand in it."""
    known = book.snapshot.workflow_by_name
    for workflow, task in added:
        if workflow in known and task.id not in known[workflow].tasks:
            yield workflow, replace(task, command="")
