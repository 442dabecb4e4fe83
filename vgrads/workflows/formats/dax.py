"""Pegasus DAX (XML, versions 2 and 3): jobs with run times and files, and their dependencies.

Run times and sizes are attributes of the generated research workflows; a production DAX has none
and is rejected with the job's name. Entities and document types are rejected: they are only a risk.
"""

from __future__ import annotations

from collections import defaultdict
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from vgrads.kernel.errors import InputError
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.task import UNSTATED, Task

_MIB = 1024 * 1024


def read_dax(text: str, where: str) -> Workflow:
    """Read the workflow of a DAX document; InputError names the wrong job or line."""
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
    parents = _parents(root)
    sizes: dict[str, float] = {}
    tasks = [_task(job, parents, sizes, where) for job in root if _tag(job) == "job"]
    return make_workflow(root.get("name") or "dax", tasks, sizes, where)


def _tag(element: Element) -> str:
    return element.tag.rsplit("}", 1)[-1]


def _parents(root: Element) -> dict[str, list[str]]:
    results: defaultdict[str, list[str]] = defaultdict(list)
    for child in root:
        if _tag(child) == "child":
            results[child.get("ref", "")] += [parent.get("ref", "") for parent in child]
    return results


def _task(job: Element, parents: dict[str, list[str]], sizes: dict[str, float], where: str) -> Task:
    job_id = job.get("id", "")
    place = f"{where}: job '{job_id}' ({job.get('name', '?')})"
    stated = job.get("runtime")
    links: dict[str, list[str]] = {"input": [], "output": []}
    for uses in job:
        name = uses.get("file") or uses.get("name")
        if _tag(uses) == "uses" and name and uses.get("link") in links:
            links[uses.get("link", "")].append(name)
            sizes[name] = _number(uses.get("size", "0"), f"{place}: size of {name}") / _MIB
    return Task(
        id=job_id,
        kind=job.get("name", ""),
        runtime_s=UNSTATED if stated is None else _number(stated, f"{place}: runtime"),
        procs=int(_number(job.get("cores", "1"), f"{place}: cores")),
        parents=tuple(dict.fromkeys(parents.get(job_id, ()))),
        inputs=tuple(links["input"]),
        outputs=tuple(links["output"]),
    )


def _number(text: str, place: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"'{text}' is not a number", where=place) from error
