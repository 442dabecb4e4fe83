"""Histories in JSON: ``sacct --json`` (also of ``slurmrestd``) and ``condor_history -json``, in one
document or one job in each line. Where a report names a line, it is the number of the job."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.traces.condor_history import read_condor_json
from vgrads.traces.reading_options import ReadingOptions
from vgrads.traces.records import JobLog
from vgrads.traces.sacct import SlurmJob, SlurmJobs

Json = Mapping[str, Any]
_EMPTY: Json = {}
_JOBS = re.compile(r'"(QDate|ClusterId|JobStatus)"\s*:|"jobs"\s*:\s*\[')


def is_json_jobs(head: str) -> bool:
    """Return whether the beginning of a JSON document is that of jobs of Slurm or HTCondor."""
    return bool(_JOBS.search(head)) and '"workflow"' not in head and '"pbs_version"' not in head


def read_json_jobs(lines: Iterable[str], name: str, options: ReadingOptions) -> JobLog:
    """Read the jobs of a document of Slurm or HTCondor; those that cannot be used are counted by
    reason."""
    jobs = _parse_jobs("".join(lines), name)
    sample = next((job for job in jobs if isinstance(job, dict)), _EMPTY)
    if "QDate" in sample or "ClusterId" in sample:
        return read_condor_json(enumerate(map(_parse_object, jobs), 1), name, options)
    if "job_id" not in sample or "time" not in sample:
        raise InputError(
            "has no jobs as 'sacct --json' or 'condor_history -json' write them", where=name
        )
    return _read_slurm(jobs, name, options)


def _parse_object(value: object) -> Json:
    return value if isinstance(value, dict) else _EMPTY


def _parse_jobs(text: str, name: str) -> list[Any]:
    """Return the jobs of a JSON document, a list of them, or one in each line."""
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise InputError("is not valid JSON: nested too deeply", where=name) from error
    except json.JSONDecodeError as error:
        jobs = _read_lines(text)
        if jobs is None:
            place = f"{name}: line {error.lineno}"
            raise InputError(f"is not valid JSON: {error.msg}", where=place) from error
        return jobs
    if isinstance(document, dict):
        document = document.get("jobs", [document])
    return document if isinstance(document, list) else []


def _read_lines(text: str) -> list[Any] | None:
    try:
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except (json.JSONDecodeError, RecursionError):
        return None


def _read_slurm(jobs: Iterable[Any], name: str, options: ReadingOptions) -> JobLog:
    collected = SlurmJobs(name, "sacct", options)
    collected.has_eligible = True
    for number, job in enumerate(jobs, 1):
        collected.builder.report.lines += 1
        try:
            record = _read_slurm_job(_parse_object(job), number)
        except (TypeError, ValueError, KeyError, AttributeError):
            collected.builder.report.skip("with fields that are not those of a job", number)
        else:
            collected.add(record)
    return collected.log()


def _read_slurm_job(job: Json, number: int) -> SlurmJob:
    times, association = job["time"], _parse_object(job.get("association"))
    state = _parse_object(job.get("state")).get("current", "")
    limit = _parse_number(times.get("limit"))
    return SlurmJob(
        line=number,
        id=_make_id(job),
        cluster=str(job.get("cluster") or association.get("cluster") or ""),
        user=str(job.get("user") or association.get("user") or ""),
        queue=str(job.get("partition") or ""),
        # newer versions write a list of states
        state=str(state[0] if isinstance(state, list) and state else state or ""),
        submit=_parse_instant(times.get("submission")),
        eligible=_parse_instant(times.get("eligible")),
        start=_parse_instant(times.get("start")),
        end=_parse_instant(times.get("end")),
        procs=_count_procs(job),
        request_s=-1.0 if limit is None else limit * 60.0,
    )


def _make_id(job: Json) -> str:
    """Return the id as ``sacct`` writes it: ``1_2`` an array task, ``1_[3-9]`` those that did not
    start, ``1+1`` a component of a heterogeneous job."""
    array, het = _parse_object(job.get("array")), _parse_object(job.get("het"))
    parent, task = _parse_number(array.get("job_id")), _parse_number(array.get("task_id"))
    if parent and array.get("task"):
        return f"{parent:.0f}_[{array['task']}]"
    if parent and task is not None:
        return f"{parent:.0f}_{task:.0f}"
    whole, component = _parse_number(het.get("job_id")), _parse_number(het.get("job_offset"))
    if whole and component is not None:
        return f"{whole:.0f}+{component:.0f}"
    return str(job["job_id"])


def _parse_number(value: object) -> float | None:
    """Return a number, which newer versions write as ``{"set": true, "number": 60}``."""
    if isinstance(value, dict):
        is_stated = value.get("set") and not value.get("infinite")
        return _parse_number(value.get("number")) if is_stated else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _parse_instant(value: object) -> float:
    number = _parse_number(value)
    # 0 stands for an instant that has not come
    return number if number else math.nan


def _count_procs(job: Json) -> int:
    """Return allocated processors, else requested ones; 0 if none are stated."""
    tres = _parse_object(job.get("tres"))
    for key in ("allocated", "requested"):
        for item in tres.get(key) or ():
            if item.get("type") == "cpu" and item.get("count"):
                return int(item["count"])
    return int(_parse_number(_parse_object(job.get("required")).get("CPUs")) or 0)
