"""What became of a job: its own report, else what the agent saw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from vgrads.api.bags.open_calls import Ended
from vgrads.api.slurm.folders import JobFolders
from vgrads.api.slurm.records import JobRecord

OUT_OF_MEMORY = 125
"""The signal that Slurm reports of a job that used too much memory."""
_STORED = ("state", "start_s", "end_s", "node", "code", "signal", "cancelled_by")
_USED = ("max_rss_kib", "cpu_s", "lost", "why")
_REASONS = {
    "DEADLINE": "DeadLine",
    "FAILED": "NonZeroExitCode",
    "OUT_OF_MEMORY": "OutOfMemory",
    "TIMEOUT": "TimeLimit",
}
Outcome = dict[str, Any]


def place_of(record: JobRecord) -> tuple[int, int, int]:
    """Return submission, position and generation of a job: the names of its files."""
    return record.submission.id, record.position, record.restarts


def outcome_of(folders: JobFolders, record: JobRecord, ended: Ended, now_s: float) -> Outcome:
    """Return what became of a job whose task has ended."""
    lines = ended.out.strip().splitlines()
    with suppress(ValueError, IndexError):
        # the program on the node prints its report last
        return dict(json.loads(lines[-1]))
    return folders.outcome(*place_of(record)) or _read_observed(folders, record, ended, now_s)


def _read_observed(folders: JobFolders, record: JobRecord, ended: Ended, now_s: float) -> Outcome:
    """Return what an agent saw of a job that could not report."""
    started = folders.started(*place_of(record))
    state, code, signal = "NODE_FAIL", 0, 0
    if "out of memory" in ended.err:
        state, signal = "OUT_OF_MEMORY", OUT_OF_MEMORY
    elif "time limit" in ended.err:
        state = "TIMEOUT"
    elif ended.code:
        state, code, signal = "FAILED", max(ended.code, 0), max(-ended.code, 0)
    return {
        "state": state,
        "code": code,
        "signal": signal,
        "start_s": started.get("start_s"),
        "end_s": now_s,
        "node": started.get("node", ""),
    }


def changes_of(outcome: Mapping[str, Any]) -> Outcome:
    """Return how a job changes that has ended so. One that never started keeps the reason why it
    waited, as in Slurm."""
    changes = {name: outcome[name] for name in (*_STORED, *_USED) if name in outcome}
    if "start_s" in outcome:
        changes["reason"] = _REASONS.get(outcome["state"], "None")
    return changes
