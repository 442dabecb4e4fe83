"""Mailbox of a run: changes of its request, and, where a program releases its tasks one by one,
messages and answers.

A workflow engine that knows the command of a task only when it is ready (such as Snakemake) submits
a set that is ``released``: it is planned as a whole, its slots are held, and a task starts in order
once it is released. The graph may grow while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import Release, ReplicaState, RequestChange, RunState
from vgrads.kernel.clock import Clock
from vgrads.planner.snapshot import TaskKey
from vgrads.workflows.task import Task

_READ_S = 1.0  # between readings of a mailbox that gets changes alone
SILENCE_S = 600.0
"""Silence after which a run whose tasks are released one by one is cancelled: the releasing program
sends a message each minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """Messages since the last read of the mailbox; ``added``: (workflow, task), parents before
    children; ``changes``: of the request, with the numbers of their messages;
    ``acknowledged``: up to which alarm, by whom."""

    upto: int
    released: tuple[tuple[TaskKey, Release], ...] = ()
    abandoned: tuple[tuple[TaskKey, str], ...] = ()
    added: tuple[tuple[str, Task], ...] = ()
    changes: tuple[tuple[int, RequestChange], ...] = ()
    acknowledged: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUpdate:
    """State of a task: running, done, failed (it may be released again) or lost (never in this
    run).

    ``release``: the number of the release that it answers, 0 if there was none; ``code``: the exit
    code of its command.
    """

    task: TaskKey
    state: str
    release: int = 0
    site: str = ""
    slot: str = ""
    reason: str = ""
    code: int | None = None


class Mailbox(Protocol):
    """Storage that survives both ends."""

    def take(self, after: int) -> Mail | None:
        """Return the messages after this number; None if there are none."""

    def answer(self, answers: Sequence[TaskUpdate]) -> None:
        """Send these updates, in this order."""


class RunMailbox:
    """Messages to a run, and updates to the program that releases its tasks (``released``);
    empty without a mailbox."""

    def __init__(self, box: Mailbox | None, clock: Clock, released: bool) -> None:
        self._box, self._clock, self._last_message_s = box, clock, clock.now()
        self._released, self._read_s = released, float("-inf")
        self._sent_updates: dict[TaskKey, TaskUpdate] = {}

    def take(self, after: int) -> Mail | None:
        """Return the messages after this number; None if there are none, or, of a run whose tasks
        are not released, within a second of the last reading."""
        now_s = self._clock.now()
        if self._box is None or (not self._released and now_s - self._read_s < _READ_S):
            return None
        self._read_s = now_s
        mail = self._box.take(after)
        if mail is not None:
            self._last_message_s = self._clock.now()
        return mail

    def answer(self, answers: Sequence[TaskUpdate]) -> None:
        """Send these updates, in this order."""
        if self._box is not None:
            self._box.answer(answers)

    def report(self, execution: ExecutionPlan, state: RunState) -> None:
        """Send the states of tasks that changed since the last call."""
        if self._box is not None and self._released:
            self._box.answer(self._news(execution, state))

    def left_alone(self) -> str:
        """Return why the run is to be cancelled: the releasing program is gone, so all resources
        are released."""
        silent_s = self._clock.now() - self._last_message_s
        if self._box is None or not self._released or silent_s < SILENCE_S:
            return ""
        return (
            f"no task was released, and no heartbeat was received, for {SILENCE_S / 60:.0f} minutes"
        )

    def _news(self, execution: ExecutionPlan, state: RunState) -> list[TaskUpdate]:
        """Return no updates while a plan is pending, which may change them again."""
        if state.replanning:
            return []
        updates = []
        for task in chain(state.released, state.lost):
            before = self._sent_updates.get(task)
            # done is final; a task in any other state may be released or planned again
            if before is None or before.state != "done":
                update = _answer(execution, state, task)
                if update is not None and update != before:
                    self._sent_updates[task] = update
                    updates.append(update)
        return updates


def _answer(execution: ExecutionPlan, state: RunState, task: TaskKey) -> TaskUpdate | None:
    leave = state.released.get(task)
    number = leave.number if leave is not None else 0
    if task in state.done:
        return TaskUpdate(task=task, state="done", release=number, site=state.done[task].site)
    if task in state.lost:
        return TaskUpdate(task=task, state="lost", release=number, reason=state.lost[task])
    records = {key: state.replicas[key] for key in execution.replicas[task]}
    for key, record in records.items():
        if record.state == ReplicaState.RUNNING:
            site, slot = execution.site_of(key), execution.slot_of(key)
            return TaskUpdate(task=task, state="running", release=number, site=site, slot=slot)
    if leave is not None and leave.used:
        # the attempt that says most: one with an exit code, of these the latest
        last = max(
            records.values(),
            key=lambda replica_record: (replica_record.code is not None, replica_record.attempt),
        )
        return TaskUpdate(
            task=task, state="failed", release=number, reason=last.reason, code=last.code
        )
    return None


def added_to(
    execution: ExecutionPlan, added: Sequence[tuple[str, Task]]
) -> Iterator[tuple[str, Task]]:
    """Return the added tasks that the execution plan does not contain yet, in the form it needs."""
    by_name = execution.snapshot.workflow_by_name
    for workflow, task in added:
        if workflow in by_name and task.id not in by_name[workflow].tasks:
            # a released task gets its command with its release
            yield workflow, replace(task, command="")
