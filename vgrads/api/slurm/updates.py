"""What ``scontrol update`` changes of a submission, in the words of scontrol where it cannot.

Source: scontrol(1) of Slurm 22.05, "SPECIFICATIONS FOR UPDATE COMMAND - JOBS".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vgrads.api.slurm.records import JobRecord, StoredSubmission, without_controls
from vgrads.api.slurm.shapes import Partitions
from vgrads.slurm.dependencies import format_dependency, parse_dependency
from vgrads.slurm.errors import SlurmError
from vgrads.slurm.job import JobState
from vgrads.slurm.scontrol import JobChanges, LimitChange

BEFORE_START = frozenset({"partition", "dependency", "begin_s"})
"""Fields of a submission that change only before any of its jobs starts."""
_DIRECT = ("name", "comment", "account", "begin_s", "deadline_s", "requeue", "array_limit")
NOT_PENDING = "Job is no longer pending execution"
_DENIED = "Access/permission denied"
_NO_LIMIT = "Requested time limit is invalid (missing or exceeds some limit)"
_NO_NODE = "Requested node configuration is not available"
_NO_PARTITION = "Invalid partition name specified"


def updated_fields(
    records: Sequence[JobRecord], changes: JobChanges, partitions: Partitions
) -> dict[str, Any]:
    """Return the fields of a submission that change; ``records`` are its jobs. Raise SlurmError
    with the reason where that cannot be."""
    submission = records[0].submission
    started = any(record.state is not JobState.PENDING for record in records)
    fields: dict[str, Any] = {
        name: without_controls(value) if isinstance(value, str) else value
        for name in _DIRECT
        if (value := getattr(changes, name)) is not None
    }
    if changes.limit:
        fields["limit_s"] = _limit_s(submission, started, submission.limit_s, changes.limit)
    if changes.least_limit:
        least_s = _limit_s(submission, started, submission.least_limit_s, changes.least_limit)
        fields["least_limit_s"] = least_s
    if changes.dependency is not None:
        fields["dependency"] = format_dependency(parse_dependency(changes.dependency))
    if changes.partition is not None:
        if changes.partition not in partitions.sites:
            raise SlurmError(_NO_PARTITION)
        fields["partition"] = changes.partition
    _check(records, fields)
    _check_size(replace(submission, **fields), partitions)
    return fields


def _limit_s(
    submission: StoredSubmission, has_started: bool, current_s: float | None, new: LimitChange
) -> float | None:
    if not new.sign or new.seconds is None:
        return new.seconds
    if submission.indices and has_started:
        raise SlurmError("TimeLimit increment/decrement not supported for job arrays")
    if current_s is None:
        return None
    if new.sign < 0 and new.seconds > current_s:
        minutes = f"({new.seconds / 60:.0f} > {current_s / 60:.0f})"
        raise SlurmError(f"TimeLimit decrement larger than current time limit {minutes}")
    # for Slurm a limit of zero means no limit
    return current_s + new.sign * new.seconds or None


def _check(records: Sequence[JobRecord], fields: dict[str, Any]) -> None:
    """Raise SlurmError where the state of the jobs does not permit a change."""
    submission = records[0].submission
    if fields.keys() & BEFORE_START and any(r.state is not JobState.PENDING for r in records):
        raise SlurmError(NOT_PENDING)
    if fields.get("array_limit", 0) < 0:
        raise SlurmError("Invalid ArrayTaskThrottle value")
    if not submission.indices:
        fields.pop("array_limit", None)  # Slurm accepts it too
    runs = any(record.state is JobState.RUNNING for record in records)
    if "limit_s" in fields and runs and _is_longer(fields["limit_s"], submission.limit_s):
        raise SlurmError(_DENIED)


def _is_longer(new_s: float | None, current_s: float | None) -> bool:
    """Return True where a limit is longer than the current one; None is no limit."""
    return current_s is not None and (new_s is None or new_s > current_s)


def _check_size(new: StoredSubmission, partitions: Partitions) -> None:
    try:
        partitions.check(new)
    except SlurmError as error:
        reason = _NO_LIMIT if _NO_LIMIT in error.what else _NO_NODE
        raise SlurmError(reason) from error
