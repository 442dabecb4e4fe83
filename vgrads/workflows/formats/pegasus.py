"""Pegasus 5 workflows (YAML): jobs with the files that they use, and their dependencies.

The format has no run times: they are read from ``metadata: {runtime: seconds}`` of a job, otherwise
from its profile ``pegasus: {runtime: …}``, otherwise from the table of the set. Sub-workflows are
read from the files that they name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vgrads.kernel.errors import InputError
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.dagman import read_dag_tasks
from vgrads.workflows.formats.pegasus_jobs import (
    JobGraph,
    find_file,
    parse_number,
    read_profiles,
)
from vgrads.workflows.formats.reading import Reading, with_line
from vgrads.workflows.runtimes import Runtimes, find_runtime
from vgrads.workflows.task import Task

_MIB = 1024 * 1024
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KEYS = frozenset(
    (
        *("pegasus", "x-pegasus", "name", "jobs", "jobDependencies", "metadata", "profiles"),
        *("siteCatalog", "replicaCatalog", "transformationCatalog"),
    )
)


def read_pegasus(text: str, runtimes: Runtimes, reading: Reading) -> Workflow:
    """Read the workflow of a Pegasus 5 document; InputError names the job and the missing item."""
    graph = JobGraph()
    name = _read(text, reading.path, "", graph, (runtimes, reading))
    where = str(reading.path)
    return make_workflow(name, graph.tasks(where, reading), graph.file_mib, where)


def _read(
    text: str, path: Path, prefix: str, graph: JobGraph, how: tuple[Runtimes, Reading]
) -> str:
    """Read the jobs of one file into a graph, and return its name."""
    where = str(path)
    try:
        document = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise InputError(f"is not valid YAML: {error}".replace("\n", " "), where=where) from error
    jobs = document.get("jobs") if isinstance(document, Mapping) else None
    if not isinstance(jobs, list) or not all(isinstance(job, Mapping) for job in jobs):
        raise InputError("has no list of jobs", where=where)
    for key in document:
        if key not in _KEYS:
            how[1].list("not used", with_line(str(key), rf"^{re.escape(str(key))}\s*:", text))
    parents = _list_parents(document, where, prefix)
    for job in jobs:
        task_id = prefix + str(job.get("id", ""))
        kind = job.get("type", "job")
        if kind == "job":
            try:
                graph.jobs.append(_make_task(job, prefix, parents, graph.file_mib, (where, *how)))
            except (AttributeError, TypeError) as error:
                place = f"{where}: job '{job.get('id', '')}'"
                raise InputError(f"is not a valid job: {error}", where=place) from error
            continue
        if kind not in ("pegasusWorkflow", "condorWorkflow"):
            place = f"{where}: job '{job.get('id', '')}'"
            raise InputError(f"is a {kind}; jobs and sub-workflows can be planned", where=place)
        _follow(job, document, path, prefix, graph, how)
        names = tuple(dict.fromkeys(parents[task_id]))
        graph.jobs.append(Task(id=task_id, runtime_s=0.0, parents=names))
    return str(document.get("name") or "pegasus")


def _follow(
    job: Mapping[str, Any],
    document: Mapping[str, Any],
    path: Path,
    prefix: str,
    graph: JobGraph,
    how: tuple[Runtimes, Reading],
) -> None:
    """Read the file of a sub-workflow."""
    task_id = prefix + str(job.get("id", ""))
    place = f"{path}: job '{job.get('id', '')}'"
    if not job.get("file"):
        raise InputError("is a sub-workflow that names no file", where=place)
    file = find_file(str(job["file"]), path.parent, _index_replicas(document))
    with how[1].follow(file, place) as text:
        if job["type"] == "condorWorkflow":
            graph.put_dag(task_id, read_dag_tasks(text, file, f"{task_id}+", *how))
            return
        inner = JobGraph()
        _read(text, file, f"{task_id}+", inner, how)
    graph.put(task_id, inner, place, how[1])


def _index_replicas(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the physical names of files by their logical ones."""
    catalog = document.get("replicaCatalog")
    listed = catalog.get("replicas") if isinstance(catalog, Mapping) else None
    result: dict[str, list[str]] = {}
    for replica in listed if isinstance(listed, list) else ():
        pfns = replica.get("pfns") if isinstance(replica, Mapping) else None
        if isinstance(pfns, list):
            names = [str(pfn.get("pfn", "")) for pfn in pfns if isinstance(pfn, Mapping)]
            result.setdefault(str(replica.get("lfn", "")), []).extend(names)
    return result


def _list_parents(
    document: Mapping[str, Any], where: str, prefix: str
) -> defaultdict[str, list[str]]:
    results: defaultdict[str, list[str]] = defaultdict(list)
    for entry in document.get("jobDependencies") or ():
        try:
            for child in entry["children"]:
                results[f"{prefix}{child}"].append(f"{prefix}{entry['id']}")
        except (TypeError, KeyError) as error:
            raise InputError(
                "every entry needs an id and children", where=f"{where}: jobDependencies"
            ) from error
    return results


def _make_task(
    job: Mapping[str, Any],
    prefix: str,
    parents: Mapping[str, list[str]],
    sizes: dict[str, float],
    source: tuple[str, Runtimes, Reading],
) -> Task:
    where, runtimes, reading = source
    own, name = str(job.get("id", "")), str(job.get("name", "?"))
    place = f"{where}: job '{own}' ({name})"
    links: dict[str, list[str]] = {"input": [], "output": []}
    for use in job.get("uses") or ():
        file, link = str(use.get("lfn", "")), use.get("type")
        for way in ("input", "output"):
            if file and link in (way, "inout"):
                links[way].append(file)
                size = parse_number(
                    (use.get("metadata") or {}).get("size", use.get("size", 0)),
                    f"{place}: size of {file}",
                )
                # a job that states no size must not replace that of another
                sizes[file] = max(sizes.get(file, 0.0), size / _MIB)
    fields = read_profiles(job.get("profiles") or {}, place, reading)
    runtime = (job.get("metadata") or {}).get("runtime")
    if runtime is not None:
        fields["runtime_s"] = parse_number(runtime, f"{place}: runtime")
    fields.setdefault("runtime_s", find_runtime(runtimes, (own, name)))
    return Task(
        id=prefix + own,
        kind=name,
        parents=tuple(dict.fromkeys(parents.get(prefix + own, ()))),
        inputs=tuple(links["input"]),
        outputs=tuple(links["output"]),
        **fields,
    )
