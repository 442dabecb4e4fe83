"""A Snakemake DAG as plain dictionaries in the shape of
:class:`vgrads.workflows.sets.TaskDocument`.

Runs inside Snakemake's own interpreter, where the rest of vgrads need not be, so this file imports
the standard library alone and is shipped as it is. Nothing of Snakemake is imported either: jobs
are taken as its executor interface describes them
(https://snakemake.github.io/snakemake-plugin-catalog), what ``dag`` has beyond that is said below.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SnakemakeDag = Any
"""Of :mod:`snakemake.dag`, in the interpreter of Snakemake, which ours need not have."""
SnakemakeJob = Any
"""Of :mod:`snakemake.jobs`: a job, or a group of jobs."""

ABOUT = "snakemake"
"""The key of what a :class:`vgrads.workflows.sets.TaskDocument` has no field for; drop it to get
one."""

_MIB_OF_MB = 1e6 / 2**20
_ODD = re.compile(r"[^A-Za-z0-9_+=.-]+")
_PLAIN = re.compile(r"[A-Za-z0-9_+.-]+")  # no '=': such values keep apart from names of wildcards
_LONGEST = 150
_LONGEST_KIND = 200
_MOST_PROCS = 100_000_000  # sys.maxsize stands for "all" with Snakemake


def tasks_of(dag: SnakemakeDag) -> list[dict[str, Any]]:
    """All jobs that are still to be run, as tasks; what they need of finished and of local jobs is
    gone.

    Jobs that never reach an executor (``all``, ``localrules``) are left out, their edges are passed
    through. A group is one task. Every dictionary has id, kind, procs, memory_mib and parents;
    runtime_s only where the user states it (``resources: vgrads_s``). Under :data:`ABOUT` stand
    ``limit_s`` (``runtime``, which is when a job is stopped and no estimate; None: no limit),
    ``gpus`` and ``checkpoint`` (more tasks become known when it has ended).

    Of ``dag``: ``needrun_jobs()``, ``dependencies`` and, where there are groups,
    ``get_job_group(job)``.
    """
    waiting = list(dag.needrun_jobs())
    group_of = getattr(dag, "get_job_group", lambda _: None)
    units = {job: group_of(job) or job for job in waiting}
    ids: dict[Any, str] = {}  # of units; a group's members all lead to it
    for unit in units.values():
        if unit not in ids and not _local(unit):
            ids[unit] = task_id(unit)
    parents: dict[str, dict[str, None]] = {name: {} for name in ids.values()}
    through: dict[Any, tuple[str, ...]] = {}
    for job, unit in units.items():
        if unit in ids:
            own = ids[unit]
            found = _parents(dag, job, units, ids, through)
            parents[own].update((name, None) for name in found if name != own)
    found_tasks = [_task(unit, name, sorted(parents[name])) for unit, name in ids.items()]
    return sorted(found_tasks, key=lambda task: str(task["id"]))  # Snakemake keeps them in sets


def task_id(job: SnakemakeJob) -> str:
    """The name of a job's task: its rule and wildcards; the same at every start, which
    ``job.jobid`` is not.

    Where wildcards have characters that are safe in no file name, or are long, a digest of them
    tells jobs apart. A group is called after the last of its jobs: others of it may be done, or
    join it, before a next start.
    """
    if job.is_group():
        return f"group.{min(map(task_id, list(job.toposorted)[-1]))}"
    wildcards = {str(name): str(value) for name, value in dict(job.wildcards_dict).items()}
    name = ".".join([str(job.rule.name), *(f"{key}={value}" for key, value in wildcards.items())])
    if len(name) <= _LONGEST and all(map(_PLAIN.fullmatch, wildcards.values())):
        return name
    told = json.dumps([str(job.rule.name), wildcards], sort_keys=True)
    return f"{_ODD.sub('_', name)[:_LONGEST]}.{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def notes_of(tasks: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What a plan of these tasks does not cover."""
    open_ = sorted(str(task["kind"]) for task in tasks if task[ABOUT]["checkpoint"])
    if not open_:
        return ()
    named = f"checkpoint {open_[0]}" + (f" and {len(open_) - 1} more" if len(open_) > 1 else "")
    return (
        (
            f"covers only what is known before {named} has ended: which jobs follow, nobody "
            "knows until then"
        ),
    )


def _local(unit: SnakemakeJob) -> bool:
    """True for what Snakemake runs itself, beside the executor."""
    return bool(unit.is_local)


def _parents(
    dag: SnakemakeDag,
    job: SnakemakeJob,
    units: Mapping[Any, Any],
    ids: Mapping[Any, str],
    through: dict[Any, tuple[str, ...]],
) -> Iterable[str]:
    """Tasks that a job needs, in place of local ones what those need; ``through`` remembers that of
    local ones."""
    needed = [one for one in dag.dependencies[job] if one in units]
    open_ = [one for one in needed if units[one] not in ids and one not in through]
    while open_:  # no recursion: a chain of local rules may be long
        last = open_[-1]
        before = [one for one in dag.dependencies[last] if one in units]
        missing = [one for one in before if units[one] not in ids and one not in through]
        if missing:
            open_.extend(missing)
            continue
        through[open_.pop()] = _names(before, units, ids, through)
    return _names(needed, units, ids, through)


def _names(
    jobs: Iterable[Any],
    units: Mapping[Any, Any],
    ids: Mapping[Any, str],
    through: Mapping[Any, tuple[str, ...]],
) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for job in jobs:
        unit = units[job]
        found.update(dict.fromkeys((ids[unit],) if unit in ids else through[job]))
    return tuple(found)


def _task(unit: SnakemakeJob, name: str, parents: Iterable[str]) -> dict[str, Any]:
    resources = unit.resources
    mib, mb = _number(resources.get("mem_mib")), _number(resources.get("mem_mb"))
    minutes = _number(resources.get("runtime"))
    gpus = _number(resources.get("gpu")) or _number(resources.get("gpus")) or 0.0
    task: dict[str, Any] = {
        "id": name,
        "kind": _kind(unit),
        "procs": max(1, min(_MOST_PROCS, int(_number(unit.threads) or 1))),
        "memory_mib": mib if mib is not None else (mb or 0.0) * _MIB_OF_MB,
        "parents": list(parents),
        ABOUT: {
            "limit_s": None if minutes is None else minutes * 60,
            "gpus": int(gpus),
            "checkpoint": bool(unit.is_checkpoint),
        },
    }
    stated = _stated_s(unit)
    return task if stated is None else task | {"runtime_s": stated}


def _kind(unit: SnakemakeJob) -> str:
    """What is alike in tasks that are learned from together."""
    if not unit.is_group():
        return str(unit.rule.name)
    rules = sorted({str(job.rule.name) for job in unit.jobs})
    return f"group {'+'.join(rules)}"[:_LONGEST_KIND]


def _stated_s(unit: SnakemakeJob) -> float | None:
    """Seconds that the user states; of a group layer after layer, as Snakemake folds
    ``runtime``."""
    if not unit.is_group():
        return _number(unit.resources.get("vgrads_s"))
    total = 0.0
    for layer in unit.toposorted:
        known = [_number(job.resources.get("vgrads_s")) for job in layer]
        stated = [seconds for seconds in known if seconds is not None]
        if len(stated) < len(known):
            return None
        total += max(stated)
    return total


def _number(value: object) -> float | None:
    """A resource as a number; None for none, for ``<TBD>`` (known only when inputs are there) and
    for words."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
