"""``vgrads logs --follow``: output and state of the tasks of a run, in real time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from vgrads.api.plans.attempts import TaskAttempt, about, list_attempts, place_of
from vgrads.execmgr.tasks.output import STDERR, STDOUT, read_since
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_duration
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store

_LOOK_S = 0.3


def follow(
    run_id: str, task: str | None, pause: Callable[[float], None] = time.sleep
) -> Iterator[str]:
    """Yield lines about a run, or about one task of it, until the run is terminal; earlier output
    comes first."""
    with Store() as store:
        store.get_run(run_id)
        observed = _LogPosition(RunRecord(store.engine, run_id), task)
        while True:
            # before the news: what a run stores as it ends must still be shown
            goes_on = store.get_run(run_id).state in GOES_ON
            yield from observed.news()
            if not goes_on:
                yield f"{run_id}: {store.get_run(run_id).state}"
                return
            pause(_LOOK_S)


class _LogPosition:
    """The reported states of a run's attempts, and the position up to which their output was
    read."""

    def __init__(self, record: RunRecord, task: str | None) -> None:
        self._record, self._task = record, task
        self._states: dict[tuple[object, ...], str] = {}
        self._read: dict[Path, int] = {}
        self._attempts: list[TaskAttempt] = []
        self._events = -1

    def news(self) -> Iterator[str]:
        """Return the news since the last call."""
        self._look()
        for attempt in self._attempts:
            if self._states.get((attempt.key, attempt.number)) == "over":
                continue
            name = f"{attempt.key[0]}/{attempt.key[1]}"
            yield from self._state(attempt, name)
            yield from self._printed(attempt, name)

    def _look(self) -> None:
        executions = self._record.executions()
        if not executions:
            return
        events = self._record.events()
        if len(events) == self._events:
            return
        self._events = len(events)
        attempts, _ = list_attempts(executions, events)
        if self._task is not None:
            tasks = {f"{w}/{t}" for execution in executions for w, t in execution.replicas}
            if not any(self._task in (name, name.partition("/")[2]) for name in tasks):
                raise InputError(
                    f"no task '{self._task}' in this run", where="TASK", fix=f"as {min(tasks)}"
                )
            attempts = about(attempts, self._task)
        self._attempts = attempts

    def _state(self, attempt: TaskAttempt, name: str) -> Iterator[str]:
        text = f"{attempt.state.value} at {attempt.slot}"
        if attempt.end_s is not None:
            text = f"{attempt.state.value} after {format_duration(attempt.end_s - attempt.start_s)}"
        if self._states.get((attempt.key, attempt.number)) != text:
            self._states[attempt.key, attempt.number] = text
            why = f": {attempt.reason}" if attempt.reason else ""
            yield f"{name} (attempt {attempt.number + 1}): {text}{why}"

    def _printed(self, attempt: TaskAttempt, name: str) -> Iterator[str]:
        folder = place_of(self._record.setup().options.folder, attempt)
        for file in (folder / STDOUT, folder / STDERR) if folder is not None else ():
            while True:
                before = self._read.get(file, 0)
                text, self._read[file] = read_since(file, before, whole_lines=attempt.end_s is None)
                if not text:
                    break
                for line in text.splitlines():
                    yield f"{name} | {line}"
        if attempt.end_s is not None:
            self._states[attempt.key, attempt.number] = "over"
