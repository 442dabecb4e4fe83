"""Pegasus 5 workflows (YAML): jobs with the files that they use, and their dependencies.

The format has no run times: they are read from ``metadata: {runtime: seconds}`` of a job, otherwise
from the table of the set. Cores are those of the profile ``pegasus: {cores: n}``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import yaml

from vgrads.kernel.errors import InputError
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.runtimes import Runtimes, runtime_of
from vgrads.workflows.task import Task

_MIB = 1024 * 1024


def read_pegasus(text: str, where: str, runtimes: Runtimes) -> Workflow:
    """Read the workflow of a Pegasus 5 document; InputError names the job and the missing item."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"is not valid YAML: {error}".replace("\n", " "), where=where) from error
    jobs = document.get("jobs") if isinstance(document, Mapping) else None
    if not isinstance(jobs, list) or not all(isinstance(job, Mapping) for job in jobs):
        raise InputError("has no list of jobs", where=where)
    parents, sizes = _parents(document, where), dict[str, float]()
    tasks = [_task(job, parents, sizes, runtimes, where) for job in jobs]
    return make_workflow(str(document.get("name") or "pegasus"), tasks, sizes, where)


def _parents(document: Mapping[str, Any], where: str) -> dict[str, list[str]]:
    results: defaultdict[str, list[str]] = defaultdict(list)
    for entry in document.get("jobDependencies") or ():
        try:
            for child in entry["children"]:
                results[str(child)].append(str(entry["id"]))
        except (TypeError, KeyError) as error:
            raise InputError(
                "every entry needs an id and children", where=f"{where}: jobDependencies"
            ) from error
    return results


def _task(
    job: Mapping[str, Any],
    parents: Mapping[str, list[str]],
    sizes: dict[str, float],
    runtimes: Runtimes,
    where: str,
) -> Task:
    job_id, name = str(job.get("id", "")), str(job.get("name", "?"))
    place = f"{where}: job '{job_id}' ({name})"
    kind = job.get("type", "job")
    if kind != "job":
        raise InputError(f"is a {kind}; only plain jobs can be planned", where=place)
    links: dict[str, list[str]] = {"input": [], "output": []}
    for use in job.get("uses") or ():
        file, link = str(use.get("lfn", "")), use.get("type")
        if link in links and file:
            links[link].append(file)
            size = _number(
                (use.get("metadata") or {}).get("size", use.get("size", 0)),
                f"{place}: size of {file}",
            )
            sizes[file] = max(sizes.get(file, 0.0), size / _MIB)
    stated = (job.get("metadata") or {}).get("runtime")
    seconds = (
        runtime_of(runtimes, (job_id, name))
        if stated is None
        else _number(stated, f"{place}: runtime")
    )
    cores = ((job.get("profiles") or {}).get("pegasus") or {}).get("cores", 1)
    return Task(
        id=job_id,
        kind=name,
        runtime_s=seconds,
        procs=int(_number(cores, f"{place}: cores")),
        parents=tuple(dict.fromkeys(parents.get(job_id, ()))),
        inputs=tuple(links["input"]),
        outputs=tuple(links["output"]),
    )


def _number(value: Any, place: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"'{value}' is not a number", where=place) from error
