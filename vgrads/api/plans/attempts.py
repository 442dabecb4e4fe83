"""Attempts at tasks, from a run's journal; and their printed text, from the run's folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.journal import advance
from vgrads.execmgr.core.states import (
    Event,
    ReplicaEnded,
    ReplicaRecord,
    ReplicaState,
    RunState,
    SlotRequestedAgain,
)
from vgrads.execmgr.core.step import begin
from vgrads.execmgr.core.times import Times
from vgrads.execmgr.tasks.folder import AWAY, HERE, TaskFolder
from vgrads.execmgr.tasks.output import STDERR, STDOUT, read_tail
from vgrads.planner.snapshot import ReplicaKey, TaskKey

Json = dict[str, Any]
_STARTED = (ReplicaState.RUNNING, ReplicaState.DONE, ReplicaState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttempt:
    """One attempt of one replica of a task; ``end_s`` is None while it runs, ``code`` if its
    command returned none."""

    key: ReplicaKey
    number: int
    state: ReplicaState
    start_s: float
    end_s: float | None
    site: str
    slot: str
    reason: str = ""
    code: int | None = None
    times: Times | None = None


def list_attempts(
    executions: Sequence[ExecutionPlan], events: Iterable[Event]
) -> tuple[list[TaskAttempt], RunState]:
    """Return every started attempt, in the order of their starts, and the state of the run."""
    state, ended = begin(executions[0]), []
    payload: dict[tuple[ReplicaKey, int], Times] = {}
    for event in events:
        before, state = state, advance(executions, state, event)
        if isinstance(event, ReplicaEnded) and event.key in before.replicas:
            old = before.replicas[event.key]
            if event.times is not None:
                payload[event.key, old.attempt] = event.times.and_then(
                    payload.get((event.key, old.attempt))
                )
            if state.replicas[event.key].attempt > old.attempt:  # it will be retried
                ended.append(_make_skipped(executions, state, event.key, old, event))
        elif isinstance(event, SlotRequestedAgain):
            # the tasks of a slot that is requested again begin anew
            for key in executions[state.version].order[event.slot]:
                old = before.replicas[key]
                if state.replicas[key].attempt > old.attempt:
                    ended.append(_make_skipped(executions, state, key, old, event))
    last = list_last_attempts(executions[state.version], state)
    attempts = [
        replace(attempt, times=payload.get((attempt.key, attempt.number)))
        for attempt in (*ended, *last)
    ]
    return sorted(
        attempts, key=lambda attempt: (attempt.start_s, attempt.key, attempt.number)
    ), state


def list_last_attempts(execution: ExecutionPlan, state: RunState) -> list[TaskAttempt]:
    """Return the last started attempt of every replica; their phases (``times``) are not known."""
    return [
        _make_attempt(execution, key, record)
        for key, record in state.replicas.items()
        if _find_begin(record)
    ]


def _make_skipped(
    executions: Sequence[ExecutionPlan],
    state: RunState,
    key: ReplicaKey,
    record: ReplicaRecord,
    event: ReplicaEnded | SlotRequestedAgain,
) -> TaskAttempt:
    """Return an attempt that ended, and is followed by another."""
    reason = event.reason if isinstance(event, ReplicaEnded) else f"its slot {event.reason}"
    code = event.code if isinstance(event, ReplicaEnded) else None
    end = record._replace(state=ReplicaState.FAILED, end_s=event.at_s, reason=reason, code=code)
    return _make_attempt(executions[state.version], key, end)


def _find_begin(record: ReplicaRecord) -> bool:
    return record.state in _STARTED or (
        record.state == ReplicaState.CANCELLED and record.start_s > 0
    )


def _make_attempt(execution: ExecutionPlan, key: ReplicaKey, record: ReplicaRecord) -> TaskAttempt:
    return TaskAttempt(
        key=key,
        number=record.attempt,
        state=record.state,
        start_s=record.start_s,
        end_s=record.end_s if record.state.settled else None,
        site=execution.site_of(key),
        slot=execution.slot_of(key),
        reason=record.reason,
        code=0 if record.state == ReplicaState.DONE else record.code,
    )


def read_printed(folder: Path, attempt: TaskAttempt, most: int) -> tuple[str, str, Path | None]:
    """Return the ends of an attempt's printed text (stdout, stderr), and the folder of the whole;
    None if nothing was kept."""
    path = place_of(folder, attempt)
    return (
        ("", "", None)
        if path is None
        else (read_tail(path / STDOUT, most), read_tail(path / STDERR, most), path)
    )


def place_of(folder: Path, attempt: TaskAttempt) -> Path | None:
    """Return the scratch folder of an attempt in its run's folder; None if it does not exist."""
    folders = (
        TaskFolder(folder, folder, kind).place_of(attempt.key, attempt.number)
        for kind in (HERE, AWAY)
    )
    return next((path for path in folders if path.is_dir()), None)


def attempts_json(attempts: Iterable[TaskAttempt], folder: Path, most: int) -> Iterator[Json]:
    """Return ``vgrads logs --json``: a row for each attempt; ``most``: bytes of the ends of its
    printed text."""
    for attempt in attempts:
        out, err, path = read_printed(folder, attempt, most) if most else ("", "", None)
        row: Json = {
            "workflow": attempt.key[0],
            "task": attempt.key[1],
            "copy": attempt.key[2],
            "attempt": attempt.number,
            "state": attempt.state.value,
            "exit": attempt.code,
            "reason": attempt.reason or None,
            "started_s": attempt.start_s,
            "seconds": None if attempt.end_s is None else attempt.end_s - attempt.start_s,
            "site": attempt.site,
            "slot": attempt.slot,
        }
        row["times"] = attempt.times.as_json() if attempt.times else None
        yield row | {"stdout": out, "stderr": err, "folder": str(path) if path else None}


def about(attempts: Iterable[TaskAttempt], task: str) -> list[TaskAttempt]:
    """Return the attempts at a task: ``WORKFLOW/TASK``, or ``TASK`` in every workflow."""
    workflow, _, name = task.rpartition("/")
    return [
        attempt
        for attempt in attempts
        if attempt.key[1] == name and workflow in ("", attempt.key[0])
    ]


def find_troubles(state: RunState) -> list[tuple[TaskKey, str]]:
    """Return tasks that were lost by themselves, not because of a missing input, and the reason;
    the first of each reason."""
    skipped: dict[str, tuple[TaskKey, str]] = {}
    for task, reason in sorted(state.lost.items()):
        if not reason.startswith("its input from"):
            skipped.setdefault(reason, (task, reason))
    return list(skipped.values())
