"""Attempts at the tasks of a stored run. Few imports: the command that lists them must be fast."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vgrads.api.plans.attempts import about, attempts_json, list_attempts
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.kernel.errors import InputError
from vgrads.portal.records.reader import RecordReader
from vgrads.portal.records.reading.opening import open_reader
from vgrads.portal.records.reading.runs import RunReader

Json = dict[str, Any]
LOGGED = 64 * 1024
"""Bytes at the end of an attempt's output that are shown."""


def read_attempts_at(
    reader: RecordReader, run_id: str, task: str | None = None, most: int = LOGGED
) -> list[Json]:
    """Return every attempt of a run, or at a task, with ``most`` bytes of each output. Raise
    InputError where there is none."""
    record = RunReader(reader, run_id)
    executions = record.executions()
    attempts, _ = list_attempts(executions, record.events()) if executions else ([], None)
    result = attempts if task is None else about(attempts, task)
    if task is not None and not result:
        begun = sorted({"/".join(attempt.key[:2]) for attempt in attempts})
        _refer_to_earlier(executions, task)
        raise InputError(
            f"no attempt of task '{task}' in {run_id}",
            where="TASK",
            fix=f"started tasks: {', '.join(begun[:8])}{' …' if len(begun) > 8 else ''}"
            if begun
            else "no task has started",
        )
    folder = record.setup().options.folder if executions else Path()
    return list(attempts_json(result, folder, most))


def _refer_to_earlier(executions: Sequence[ExecutionPlan], task: str) -> None:
    """Raise InputError with the earlier run in which a task was done, if any."""
    workflow, _, name = task.rpartition("/")
    for done in executions[0].plan.done if executions else ():
        if done.task == name and workflow in ("", done.workflow):
            raise InputError(
                f"was done before, in {done.run}",
                where=f"task '{task}'",
                fix=f"vgrads logs {done.run} {task}",
            )


def read_recorded_attempts(url: str, run_id: str) -> list[Json]:
    """Return every attempt of a run of the database at ``url``, without output."""
    with open_reader(url) as reader:
        return read_attempts_at(reader, run_id, None, 0)
