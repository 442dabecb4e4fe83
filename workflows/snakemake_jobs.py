"""Snakemake's graph as tasks. Nothing of Snakemake is imported: what is handed in comes from its own process.

A task is what Snakemake begins at once: a job, or the jobs of a group together. Its id is made of the rule, the
wildcards and, where these do not tell jobs apart, a digest of the outputs: the same whenever Snakemake is started,
unlike Snakemake's own numbers of jobs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

_ODD = re.compile(r"[^A-Za-z0-9_.,=+@-]+")
_LONGEST = 120
_MIB_PER_MB = 1e6 / 2**20

Json = dict[str, Any]


def task_id(job: Any) -> str:
    """The id of a job's, or a group's, task."""
    outputs = (
        sorted(map(str, job.output))
        if not job.is_group()
        else sorted(str(f) for one in job.jobs for f in one.output)
    )
    if job.is_group():
        return f"{_plain(str(job.groupid))[:_LONGEST]}.{_digest(outputs or sorted(one.rule.name for one in job.jobs))}"
    wildcards = ",".join(f"{name}={value}" for name, value in sorted(job.wildcards_dict.items()))
    text = f"{job.rule.name}.{wildcards}" if wildcards else str(job.rule.name)
    plain = _plain(text)
    return (
        plain
        if plain == text and len(plain) <= _LONGEST
        else f"{plain[:_LONGEST]}.{_digest(outputs or [text])}"
    )


def _plain(text: str) -> str:
    return _ODD.sub("_", text)


def _digest(names: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:10]


def tasks_of(dag: Any) -> list[Json]:
    """The tasks of all jobs that are to be run, as documents of a workflow set, parents by id.

    Jobs that run where Snakemake itself does (local rules, as ``all``) are left out: what needs them needs what they need.
    """
    needed = [job for job in dag.needrun_jobs()]
    unit = {job: _unit(dag, job) for job in needed}
    direct = {job: [up for up in dag.dependencies[job] if up in unit] for job in needed}
    found: dict[str, Json] = {}
    ids = {job: task_id(unit[job]) for job in needed if not unit[job].is_local}
    for job, name in ids.items():
        row = found.get(name)
        if row is None:
            row = found[name] = _task(name, unit[job])
        parents = (ids[up] for up in _remote(job, direct, ids))
        row["parents"] = [*dict.fromkeys((*row["parents"], *(p for p in parents if p != name)))]
    return list(found.values())


def _unit(dag: Any, job: Any) -> Any:
    """What is begun at once with a job."""
    return job if job.group is None else (dag.get_job_group(job) or job)


def _remote(job: Any, direct: Mapping[Any, list[Any]], ids: Mapping[Any, str]) -> Iterable[Any]:
    """The nearest jobs upstream that are tasks."""
    pending, seen = list(direct[job]), set()
    while pending:
        up = pending.pop()
        if up in seen:
            continue
        seen.add(up)
        if up in ids:
            yield up
        else:
            pending += direct[up]


def _task(name: str, unit: Any) -> Json:
    task: Json = {
        "id": name,
        "kind": _kind(unit),
        "procs": max(1, _number(_threads(unit)) or 1),
        "parents": [],
    }
    resources = unit.resources
    memory = (
        _number(resources.get("mem_mib")) or (_number(resources.get("mem_mb")) or 0) * _MIB_PER_MB
    )
    if memory:
        task["memory_mib"] = float(memory)
    stated_s = _number(resources.get("vgrads_s"))
    if stated_s:
        task["runtime_s"] = float(stated_s)
    return task


def limit_s(job: Any) -> float | None:
    """How long a job may take at most (its resource ``runtime``, in minutes); None where that is not said."""
    minutes = _number(job.resources.get("runtime"))
    return None if minutes is None else minutes * 60.0


def _kind(unit: Any) -> str:
    if not unit.is_group():
        return str(unit.rule.name)[:200]
    return f"{unit.groupid}:{'+'.join(sorted({one.rule.name for one in unit.jobs}))}"[:200]


def _threads(unit: Any) -> Any:
    try:
        return unit.threads
    except Exception:  # of a group whose layers are not known yet
        return max((_number(one.threads) or 1 for one in unit.jobs), default=1)


def _number(value: Any) -> Any:
    """A number as it is; None for what is not known before inputs exist (``TBDString``) and for texts."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
