"""A submission of sbatch as it is stored: checked against the partitions, with absolute paths."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vgrads.api.slurm.records import StoredSubmission, without_controls
from vgrads.api.slurm.shapes import Partitions
from vgrads.slurm import sbatch
from vgrads.slurm.dependencies import format_dependency
from vgrads.slurm.environment import ArrayShape, TaskPlace, task_environment
from vgrads.slurm.job import Job, JobState
from vgrads.slurm.patterns import default_output
from vgrads.slurm.sbatch import BatchSubmission

_OF_ALL = re.compile(r"%%|%\d*([ux])")

_STEP_PROGRAM = str(Path(sbatch.__file__).with_name("step_program.py"))


@dataclass(frozen=True)
class Caller:
    """Who submits, and from where."""

    user: str
    uid: int
    gid: int
    group: str
    host: str
    folder: str
    umask: int
    environment: Mapping[str, str]


def this_user() -> tuple[str, int, int, str]:
    """Return name, uid, gid and group of the user of this process."""
    uid, gid = os.getuid(), os.getgid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    try:
        group = grp.getgrgid(gid).gr_name
    except KeyError:
        group = str(gid)
    return user, uid, gid, group


def stored_submission(
    batch: BatchSubmission, caller: Caller, partitions: Partitions, request: str, now_s: float
) -> StoredSubmission:
    """Return what is stored of a submission; its id is inserted later. Raise SlurmError."""
    output = batch.stdout or default_output(is_array=batch.array is not None)
    stored = StoredSubmission(
        id=0,
        request=request,
        submit_s=now_s,
        name=without_controls(batch.name),
        user=caller.user,
        uid=caller.uid,
        gid=caller.gid,
        group=caller.group,
        host=caller.host,
        folder=batch.folder,
        submit_folder=caller.folder,
        umask=caller.umask,
        command=batch.command,
        kind=hashlib.sha256(batch.script.encode("utf-8", "surrogateescape")).hexdigest()[:16],
        partition=partitions.chosen(batch.partition),
        account=without_controls(batch.account),
        tasks=batch.tasks,
        cpus_per_task=batch.cpus_per_task,
        memory_mib=batch.memory_mib or 0,
        limit_s=batch.limit_s,
        stdin=_expand_path(batch.stdin or "/dev/null", batch.folder),
        stdout=_expand_path(output, batch.folder),
        stderr=_expand_path(batch.stderr, batch.folder) if batch.stderr else "",
        indices=batch.array.indices if batch.array else (),
        array_limit=(batch.array.limit or 0) if batch.array else 0,
        dependency=format_dependency(batch.dependency),
        kill_on_invalid=bool(batch.kill_on_invalid_dependency),
        requeue=batch.requeue is not False,
        hold=batch.hold,
        comment=without_controls(batch.comment),
        deadline_s=batch.deadline_s,
        begin_s=batch.begin_s,
        least_limit_s=batch.least_limit_s,
    )
    partitions.check(stored)
    return stored


def _expand_path(pattern: str, folder: str) -> str:
    """Return an absolute pattern; a backslash turns its placeholders off."""
    if "\\" in pattern:
        pattern = pattern.replace("\\", "").replace("%", "%%")
    # a percent sign in the name of the folder is no placeholder
    return pattern if pattern.startswith("/") else f"{folder.replace('%', '%%')}/{pattern}"


def job_spec(job: StoredSubmission, batch: BatchSubmission, caller: Caller) -> dict[str, Any]:
    """Return what the program on the node reads: environment, files, limits."""
    indices = job.indices
    array = ArrayShape(len(indices), indices[0], indices[-1]) if batch.array else None
    if array and batch.array:
        array = replace(array, step=batch.array.step)
    place = TaskPlace(
        submit_host=caller.host,
        submit_folder=caller.folder,
        array=array,
        memory_per_cpu_mib=batch.memory_per_cpu_mib,
    )
    view = Job(
        id=job.id,
        name=job.name,
        user=job.user,
        uid=job.uid,
        gid=job.gid,
        state=JobState.RUNNING,
        submit_s=job.submit_s,
        partition=job.partition,
        account=job.account,
        array_id=job.id if indices else None,
        tasks=job.tasks,
        cpus_per_task=job.cpus_per_task,
        memory_mib=job.memory_mib,
        folder=job.folder,
    )
    signal = batch.signal
    return {
        "id": job.id,
        "indices": list(indices),
        "environment": task_environment(view, caller.environment, batch.export, place),
        "folder": job.folder,
        "umask": job.umask,
        "arguments": list(batch.script_arguments),
        "stdin": _fill_pattern(job.stdin, job),
        "stdout": _fill_pattern(job.stdout, job),
        "stderr": _fill_pattern(job.stderr, job),
        "append": batch.open_mode == "append",
        "limit_s": job.limit_s,
        "requeue": job.requeue,
        "step_program": _STEP_PROGRAM,
        "signal": signal
        and {
            "number": signal.number,
            "before_s": signal.before_s,
            "batch": signal.batch_shell,
        },
    }


def _fill_pattern(pattern: str, job: StoredSubmission) -> str:
    """Insert what is the same for all jobs of a submission."""
    values = {"u": job.user, "x": job.name}

    def insert(match: re.Match[str]) -> str:
        return values[match[1]].replace("%", "%%") if match[1] else match[0]

    return _OF_ALL.sub(insert, pattern)
