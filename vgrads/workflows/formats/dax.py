"""Pegasus DAX (XML, versions 2 and 3): jobs with run times and files, and their dependencies.

Run times and sizes are attributes of the generated research workflows; a production DAX has
profiles. Sub-workflows are read from the files that they name. Entities and document types are
rejected: they are only a risk.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

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

_SUB_WORKFLOWS = ("dax", "dag", "adag")
_WITHOUT_EFFECT = frozenset(
    (
        *("child", "job", *_SUB_WORKFLOWS, "filename", "file", "executable", "transformation"),
        *("metadata", "profile", "part"),
    )
)
"""Elements of which the graph does not depend, or that are read."""


def read_dax(text: str, runtimes: Runtimes, reading: Reading) -> Workflow:
    """Read the workflow of a DAX document; InputError names the wrong job or line."""
    graph = JobGraph()
    name = _read(text, reading.path, "", graph, (runtimes, reading))
    where = str(reading.path)
    return make_workflow(name or "dax", graph.tasks(where, reading), graph.file_mib, where)


def _read(
    text: str, path: Path, prefix: str, graph: JobGraph, how: tuple[Runtimes, Reading]
) -> str:
    """Read the jobs of one file into a graph, and return its name."""
    where = str(path)
    # entities may expand without bound, or name other files
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InputError(
            "contains a document type or entities, which are not accepted in a DAX", where=where
        )
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise InputError(f"is not valid XML: {error}", where=where) from error
    if _tag(root) != "adag":
        raise InputError(f"is no DAX: its root is <{_tag(root)}>", where=where)
    parents = _list_parents(root, prefix)
    for element in root:
        tag = _tag(element)
        if tag == "job":
            graph.jobs.append(_make_task(element, prefix, parents, graph.file_mib, (where, *how)))
        elif tag in _SUB_WORKFLOWS:
            _follow(element, path, prefix, graph, how)
            task_id = prefix + element.get("id", "")
            graph.jobs.append(
                Task(id=task_id, runtime_s=0.0, parents=tuple(dict.fromkeys(parents[task_id])))
            )
        elif tag not in _WITHOUT_EFFECT:
            how[1].list("not used", with_line(f"<{tag}>", rf"<(\w+:)?{tag}\b", text))
    return root.get("name") or ""


def _follow(
    element: Element, path: Path, prefix: str, graph: JobGraph, how: tuple[Runtimes, Reading]
) -> None:
    """Read the file of a sub-workflow."""
    task_id = prefix + element.get("id", "")
    place = f"{path}: job '{element.get('id', '')}'"
    if not element.get("file"):
        raise InputError("is a sub-workflow that names no file", where=place)
    file = find_file(element.get("file", ""), path.parent, {})
    with how[1].follow(file, place) as text:
        if _tag(element) == "dag":
            graph.put_dag(task_id, read_dag_tasks(text, file, f"{task_id}+", *how))
            return
        inner = JobGraph()
        _read(text, file, f"{task_id}+", inner, how)
    graph.put(task_id, inner, place, how[1])


def _tag(element: Element) -> str:
    # ElementTree puts the namespace in braces before the name
    return element.tag.rsplit("}", 1)[-1]


def _list_parents(root: Element, prefix: str) -> defaultdict[str, list[str]]:
    results: defaultdict[str, list[str]] = defaultdict(list)
    for child in root:
        if _tag(child) == "child":
            refs = [prefix + parent.get("ref", "") for parent in child]
            results[prefix + child.get("ref", "")] += refs
    return results


def _make_task(
    job: Element,
    prefix: str,
    parents: defaultdict[str, list[str]],
    sizes: dict[str, float],
    source: tuple[str, Runtimes, Reading],
) -> Task:
    where, runtimes, reading = source
    own, name = job.get("id", ""), job.get("name", "")
    place = f"{where}: job '{own}' ({name or '?'})"
    links: dict[str, list[str]] = {"input": [], "output": []}
    profiles: dict[str, dict[str, str]] = {}
    for part in job:
        if _tag(part) == "profile":
            space = profiles.setdefault(part.get("namespace", ""), {})
            space[part.get("key", "")] = "".join(part.itertext()).strip()
        file = part.get("file") or part.get("name")
        if _tag(part) == "uses" and file:
            link = part.get("link", "")
            for way in ("input", "output"):
                if link in (way, "inout"):
                    links[way].append(file)
            size = parse_number(part.get("size", "0"), f"{place}: size of {file}") / 2**20
            # a job that states no size must not replace that of another
            sizes[file] = max(sizes.get(file, 0.0), size)
    if job.get("cores"):
        profiles.setdefault("pegasus", {})["cores"] = job.get("cores", "")
    fields = read_profiles(profiles, place, reading)
    if job.get("runtime") is not None:
        fields["runtime_s"] = parse_number(job.get("runtime"), f"{place}: runtime")
    fields.setdefault("runtime_s", find_runtime(runtimes, (own, name)))
    return Task(
        id=prefix + own,
        kind=name,
        parents=tuple(dict.fromkeys(parents[prefix + own])),
        inputs=tuple(links["input"]),
        outputs=tuple(links["output"]),
        **fields,
    )
