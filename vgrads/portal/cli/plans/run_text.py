"""Text from the record of a run: what it holds, its errors, every attempt and its output."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from vgrads.api.plans.attempts import attempts_json, find_troubles, list_attempts, read_printed
from vgrads.api.wiring import uses_real_site
from vgrads.execmgr.core.alarms import alarms_json
from vgrads.execmgr.core.completion import find_done_workflows
from vgrads.execmgr.core.delays import describe_delays
from vgrads.execmgr.core.journal import fold
from vgrads.execmgr.core.promise_record import promise_json
from vgrads.kernel.units import format_count
from vgrads.portal.records.reader import RecordReader
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.reading.runs import RunReader

if TYPE_CHECKING:
    from vgrads.api.plans.execution import RunOutcome
    from vgrads.portal.records.run_record import RunRecord

Json = dict[str, Any]
_MOST_NAMED, _OUTPUT_BYTES = 3, 2000  # listed failed tasks, and bytes of output of each


def open_slots(record: RunRecord | RunReader) -> list[str]:
    """Return what a run holds at real sites, a line each; nothing of simulated sites, which end
    with their manager."""
    executions = record.executions()
    if not executions or not uses_real_site(record.setup().catalog, executions[0].plan):
        return []
    state = fold(executions, record.events())
    execution = executions[state.version]
    return [
        (
            f"{slot}: {format_count(execution.uses[slot].slot.procs, 'processor')} "
            f"at {execution.uses[slot].slot.site}, {record.state.name.lower()}"
        )
        + (f" ({record.reason})" if record.reason else "")
        for slot, record in state.slots.items()
        # a slot that was not requested yet holds nothing
        if record.state is not None
        and not record.state.ended
        and execution.uses[slot].slot.kind != "local"
    ]


def name_troubles(
    outcome: RunOutcome, record: RunRecord | RunReader, folder: Path, out: Console
) -> None:
    """Print, for a run with a broken promise, the failed tasks, their errors, and the location of
    their output."""
    result = find_troubles(outcome.state) if outcome.verdict == "broken" else []
    if not result:
        return
    attempts, _ = list_attempts(record.executions(), record.events())
    for (workflow, task), reason in result[:_MOST_NAMED]:
        out.print(f"  {workflow}/{task}: {reason}", style="red", highlight=False, markup=False)
        tried = [attempt for attempt in attempts if attempt.key[:2] == (workflow, task)]
        if tried:
            _, err, path = read_printed(folder, tried[-1], _OUTPUT_BYTES)
            for line in err.splitlines()[-5:]:
                out.print(f"      {line}", highlight=False, markup=False)
            if path is not None:
                out.print(f"    full output: {path}", highlight=False, markup=False)
    out.print(f"all attempts: vgrads logs {record.run_id}", highlight=False)


def details_of(reader: RecordReader, row: Json) -> Json:
    """Return the additions of one run's journal to its row: progress, the current promise,
    errors."""
    record = RunReader(reader, row["run"])
    executions = record.executions()
    if not executions:
        return row
    attempts, state = list_attempts(executions, record.events())
    execution = executions[state.version]
    began = datetime.fromisoformat(row["started"])
    more: Json = {
        "tasks": {
            "done": len(state.done),
            "of": len({p.task_key for p in execution.plan.placements}),
            "before": len(execution.plan.done),
        },
        "workflows_done": len(find_done_workflows(execution, state)),
        "delays": describe_delays(execution, state),
        "alarms": alarms_json(state, lambda at_s: (began + timedelta(seconds=at_s)).isoformat()),
        "slots": open_slots(record) if row["state"] in GOES_ON else [],
    }
    if row["state"] in GOES_ON:
        end_s = state.promise.end_s
        end = None if end_s is None else began + timedelta(seconds=end_s)
        more |= promise_json(execution, state, state.now_s) | {
            "expected_end": end.isoformat() if end else None
        }
    folder = record.setup().options.folder
    last = {attempt.key[:2]: attempt for attempt in attempts}
    failed = [
        next(attempts_json([last[task]], folder, _OUTPUT_BYTES)) | {"reason": reason}
        for task, reason in find_troubles(state)[:_MOST_NAMED]
        if task in last
    ]
    return row | more | {"troubles": failed}
