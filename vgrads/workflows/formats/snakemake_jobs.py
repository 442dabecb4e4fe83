"""A Snakemake DAG as plain dictionaries in the shape of
:class:`vgrads.workflows.sets.TaskDocument`.

Runs inside Snakemake's own interpreter, which need not have the rest of vgrads, so this file
imports only the standard library and is shipped unchanged. It does not import Snakemake either:
jobs are used as its executor interface describes them
(https://snakemake.github.io/snakemake-plugin-catalog); further members of ``dag`` are listed below.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SnakemakeDag = Any
"""Type of :mod:`snakemake.dag`, in Snakemake's interpreter; ours need not have it."""
SnakemakeJob = Any
"""Type of :mod:`snakemake.jobs`: a job, or a group of jobs."""

ABOUT = "snakemake"
"""Key of data without a field in :class:`vgrads.workflows.sets.TaskDocument`; remove it to get one.
"""

_MIB_OF_MB = 1e6 / 2**20
_ODD = re.compile(r"[^A-Za-z0-9_+=.-]+")
_PLAIN = re.compile(r"[A-Za-z0-9_+.-]+")  # no '=', to distinguish values from wildcard names
_LONGEST = 150
_LONGEST_KIND = 200
_MOST_PROCS = 100_000_000  # Snakemake uses sys.maxsize for "all"


def make_tasks(dag: SnakemakeDag) -> list[dict[str, Any]]:
    """Return all jobs that are still to be run, as tasks; dependencies on finished jobs are
    removed.

    Jobs that never reach an executor (``all``, ``localrules``) are omitted, and their edges are
    connected. A group is one task. Every dictionary has id, kind, procs, memory_mib and parents;
    runtime_s only if the user states it (``resources: vgrads_s``). :data:`ABOUT` has ``limit_s``
    (``runtime``, at which a job is stopped, not an estimate; None: no limit), ``gpus`` and
    ``checkpoint`` (more tasks become known when it has ended).

    Used of ``dag``: ``needrun_jobs()``, ``dependencies`` and, if there are, ``get_job_group(job)``
    and the limit of threads of its ``workflow``, which jobs evaluated before it was set lack.
    """
    waiting = list(dag.needrun_jobs())
    group_of = getattr(dag, "get_job_group", lambda _: None)
    units = {job: group_of(job) or job for job in waiting}
    ids: dict[Any, str] = {}  # of units; all members of a group have the same
    for unit in units.values():
        if unit not in ids and not _is_local(unit):
            ids[unit] = derive_task_id(unit)
    parents: dict[str, dict[str, None]] = {name: {} for name in ids.values()}
    through: dict[Any, tuple[str, ...]] = {}
    for job, unit in units.items():
        if unit in ids:
            own = ids[unit]
            texts = _list_parents(dag, job, units, ids, through)
            parents[own].update((name, None) for name in texts if name != own)
    settings = getattr(getattr(dag, "workflow", None), "resource_settings", None)
    cores = getattr(settings, "max_threads", None) or _MOST_PROCS
    matching_tasks = [
        _make_task(unit, name, sorted(parents[name]), cores) for unit, name in ids.items()
    ]
    return sorted(matching_tasks, key=lambda task: str(task["id"]))  # Snakemake stores them in sets


def derive_task_id(job: SnakemakeJob) -> str:
    """Return the name of a job's task: its rule and wildcards; the same at every start, unlike
    ``job.jobid``.

    If wildcards have characters that are unsafe in file names, or are long, a digest of them
    distinguishes jobs. A group is named after the last of its jobs: others of it may be done, or
    join it, before a next start.
    """
    if job.is_group():
        return f"group.{min(map(derive_task_id, list(job.toposorted)[-1]))}"
    wildcards = {str(name): str(value) for name, value in dict(job.wildcards_dict).items()}
    name = ".".join([str(job.rule.name), *(f"{key}={value}" for key, value in wildcards.items())])
    if len(name) <= _LONGEST and all(map(_PLAIN.fullmatch, wildcards.values())):
        return name
    text = json.dumps([str(job.rule.name), wildcards], sort_keys=True)
    return f"{_ODD.sub('_', name)[:_LONGEST]}.{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def notes_of(tasks: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return limitations of a plan of these tasks."""
    open_ = sorted(str(task["kind"]) for task in tasks if task[ABOUT]["checkpoint"])
    if not open_:
        return ()
    named = f"checkpoint {open_[0]}" + (f" and {len(open_) - 1} more" if len(open_) > 1 else "")
    return (
        (
            f"covers only the jobs known before {named} has ended; the jobs that follow are not "
            "known until then"
        ),
    )


def _is_local(unit: SnakemakeJob) -> bool:
    """True for jobs that Snakemake runs itself, without the executor."""
    return bool(unit.is_local)


def _list_parents(
    dag: SnakemakeDag,
    job: SnakemakeJob,
    units: Mapping[Any, Any],
    ids: Mapping[Any, str],
    through: dict[Any, tuple[str, ...]],
) -> Iterable[str]:
    """Return the tasks that a job needs, with local jobs replaced by their own parents; ``through``
    caches those of local jobs."""
    needed = [dependency for dependency in dag.dependencies[job] if dependency in units]
    open_ = [
        dependency
        for dependency in needed
        if units[dependency] not in ids and dependency not in through
    ]
    while open_:  # no recursion: a chain of local rules may be long
        last = open_[-1]
        before = [dependency for dependency in dag.dependencies[last] if dependency in units]
        missing = [
            dependency
            for dependency in before
            if units[dependency] not in ids and dependency not in through
        ]
        if missing:
            open_.extend(missing)
            continue
        through[open_.pop()] = _name_jobs(before, units, ids, through)
    return _name_jobs(needed, units, ids, through)


def _name_jobs(
    jobs: Iterable[Any],
    units: Mapping[Any, Any],
    ids: Mapping[Any, str],
    through: Mapping[Any, tuple[str, ...]],
) -> tuple[str, ...]:
    xes: dict[str, None] = {}
    for job in jobs:
        unit = units[job]
        xes.update(dict.fromkeys((ids[unit],) if unit in ids else through[job]))
    return tuple(xes)


def _make_task(unit: SnakemakeJob, name: str, parents: Iterable[str], cores: int) -> dict[str, Any]:
    resources = unit.resources
    mib, mb = _parse_number(resources.get("mem_mib")), _parse_number(resources.get("mem_mb"))
    minutes = _parse_number(resources.get("runtime"))
    gpus = _parse_number(resources.get("gpu")) or _parse_number(resources.get("gpus")) or 0.0
    task: dict[str, Any] = {
        "id": name,
        "kind": _find_kind(unit),
        "procs": max(1, min(cores, _MOST_PROCS, int(_parse_number(unit.threads) or 1))),
        "memory_mib": mib if mib is not None else (mb or 0.0) * _MIB_OF_MB,
        "parents": list(parents),
        ABOUT: {
            "limit_s": None if minutes is None else minutes * 60,
            "gpus": int(gpus),
            "checkpoint": bool(unit.is_checkpoint),
        },
    }
    present = _find_stated_s(unit)
    return task if present is None else task | {"runtime_s": present}


def _find_kind(unit: SnakemakeJob) -> str:
    """Return the kind of tasks whose run times are learned together."""
    if not unit.is_group():
        return str(unit.rule.name)
    rules = sorted({str(job.rule.name) for job in unit.jobs})
    return f"group {'+'.join(rules)}"[:_LONGEST_KIND]


def _find_stated_s(unit: SnakemakeJob) -> float | None:
    """Return the seconds that the user states; for a group layer by layer, as Snakemake combines
    ``runtime``."""
    if not unit.is_group():
        return _parse_number(unit.resources.get("vgrads_s"))
    total = 0.0
    for layer in unit.toposorted:
        runtimes_s = [_parse_number(job.resources.get("vgrads_s")) for job in layer]
        present = [seconds for seconds in runtimes_s if seconds is not None]
        # one unknown run time makes that of the group unknown
        if len(present) < len(runtimes_s):
            return None
        total += max(present)
    return total


def _parse_number(value: object) -> float | None:
    """Return a resource as a number; None if missing, for ``<TBD>`` (known only when inputs exist)
    and for text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
