"""The Gantt chart of a group's current run: nodes as lanes, jobs as bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vgrads.api.slurm.groups import GroupStatus
from vgrads.api.slurm.records import JobRecord
from vgrads.slurm.job import JobState

Json = dict[str, Any]
_STATES = {
    JobState.RUNNING: "running",
    JobState.COMPLETED: "done",
    JobState.CANCELLED: "cancelled",
}


def group_chart(status: GroupStatus, run: Sequence[JobRecord], now_s: float) -> Json:
    """Return the document of the chart (as for runs of sets): times are seconds since the first
    submission; the names of jobs take the place of workflows."""
    began_s = min(record.submission.submit_s for record in run)
    started = [record for record in run if record.start_s is not None]
    over = all(record.state.is_terminal for record in run)
    end_s = max((r.end_s or now_s for r in run), default=now_s) if over else now_s
    return {
        "name": status.name,
        "deadline_s": status.deadline_s - began_s,
        "now_s": end_s - began_s,
        "needed": len(run),
        "promise": {"probability": status.promise, "standard_error": 0.0},
        "cost_usd": 0.0,
        "decisions": [],
        "workflows": sorted({record.submission.name for record in run}),
        "done": [],
        "slots": [_make_lane(node, started, began_s, end_s) for node in _list_nodes(started)],
        "placements": [_make_bar(record, began_s) for record in started],
    }


def _list_nodes(started: Sequence[JobRecord]) -> list[str]:
    return sorted({record.node for record in started})


def _make_lane(node: str, started: Sequence[JobRecord], began_s: float, end_s: float) -> Json:
    here = [record for record in started if record.node == node]
    first_s = min(record.start_s or 0.0 for record in here) - began_s
    last_s = max(record.end_s or end_s for record in here) - began_s
    return {
        "id": node,
        "site": here[0].submission.partition,
        "kind": "batch",
        "procs": _find_most_together(here, end_s),
        "submit_s": 0.0,
        "start_s": first_s,
        "end_s": last_s,
        "probability": 1.0,
        "cost_usd": 0.0,
        "state": "ready",
        "actual": {"ready_s": first_s, "ended_s": last_s, "reason": ""},
    }


def _find_most_together(records: Sequence[JobRecord], end_s: float) -> int:
    """Return the most processors that jobs of a node used at once."""
    changes = [(record.start_s or 0.0, record.submission.cpus) for record in records]
    changes += [(record.end_s or end_s, -record.submission.cpus) for record in records]
    used, most = 0, 1
    # at equal times ends come first, because they are negative: a successor takes the same place
    for _, change in sorted(changes):
        used += change
        most = max(most, used)
    return most


def _make_bar(record: JobRecord, began_s: float) -> Json:
    start_s = (record.start_s or 0.0) - began_s
    end_s = None if record.end_s is None else record.end_s - began_s
    index = "" if record.index is None else f"_{record.index}"
    return {
        "workflow": record.submission.name,
        "task": f"{record.submission.id}{index}",
        "copy": 0,
        "slot": record.node,
        "procs": record.submission.cpus,
        "start_s": start_s,
        "end_s": start_s if end_s is None else end_s,
        "probability": 1.0,
        "state": _STATES.get(record.state, "failed"),
        "actual": {"start_s": start_s, "end_s": end_s},
        "reason": "" if record.reason == "None" else record.reason,
    }
