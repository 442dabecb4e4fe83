"""Makeflows in JX: an object with ``rules``, each with command, inputs and outputs.

Run times come from the set's ``runtimes``, by category or by the name of the program; otherwise a
rule's ``wall-time`` is the limit that a run time is guessed from. A file written by one rule and
read by another is an edge. https://cctools.readthedocs.io/en/latest/jx-workflow/
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.jx import JxEvaluator, entry_of, parse_jx
from vgrads.workflows.runtimes import Runtimes, timed
from vgrads.workflows.task import Task

_MIB_OF_MB = 1e6 / 2**20
Json = Mapping[str, Any]


def read_makeflow_jx(text: str, where: str, runtimes: Runtimes) -> Workflow:
    """Read the workflow of a Makeflow in JX; InputError names the wrong line or rule."""
    tree, jx = parse_jx(text, where), JxEvaluator(where)
    definitions = entry_of(tree, "define")
    names = {} if definitions is None else jx.defined(definitions, {})
    document = jx.value(tree, names)
    rules = document.get("rules") if isinstance(document, dict) else None
    if not isinstance(rules, list) or not rules:
        raise InputError("has no list of rules", where=where)
    makers: dict[str, str] = {}
    for number, rule in enumerate(rules, 1):
        place = f"{where}: rule {number}"
        if not isinstance(rule, dict) or not isinstance(rule.get("command"), str):
            why = "names another workflow" if "workflow" in rule else "has no command"
            raise InputError(why, where=place, fix="each rule needs a 'command'")
        makers |= dict.fromkeys(_files(rule.get("outputs"), place), f"rule{number}")
    tasks = [
        _task(number, rule, makers, document, (where, runtimes))
        for number, rule in enumerate(rules, 1)
    ]
    return make_workflow(Path(where).stem, tasks, where=where)


def _task(
    number: int, rule: Json, makers: Mapping[str, str], document: Json, source: tuple[str, Runtimes]
) -> Task:
    where, runtimes = source
    place, name = f"{where}: rule {number}", f"rule{number}"
    category = str(rule.get("category") or document.get("default_category") or "")
    general = _object(_object(document.get("categories"), place).get(category), place)
    resources = {
        **_object(general.get("resources"), place),
        **_object(rule.get("resources"), place),
    }
    words = rule["command"].split()
    program = PurePath(words[0]).name if words else ""
    inputs = _files(rule.get("inputs"), place)
    return Task(
        id=name,
        kind=category or program,
        procs=max(1, int(_number(resources, "cores", place) or 1)),
        memory_mib=(_number(resources, "memory", place) or 0.0) * _MIB_OF_MB,
        parents=tuple(dict.fromkeys(makers[f] for f in inputs if makers.get(f, name) != name)),
        command=rule["command"],
        inputs=inputs,
        outputs=_files(rule.get("outputs"), place),
        **timed(runtimes, (category, program), None, _number(resources, "wall-time", place)),
    )


def _object(value: object, place: str) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError("must be an object: resources, categories", where=place)
    return value


def _number(resources: Json, name: str, place: str) -> float | None:
    value = resources.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise InputError(f"'{name}' is not a number", where=place)
    return float(value)


def _files(value: object, place: str) -> tuple[str, ...]:
    """Return the names of files in the workflow; some have another name for the task."""
    items = value if isinstance(value, list) else [] if value is None else None
    if items is None:
        raise InputError("inputs and outputs must be lists", where=place)
    return tuple(dict.fromkeys(_file(item, place) for item in items))


def _file(item: object, place: str) -> str:
    name = item.get("dag_name") if isinstance(item, dict) else item
    if not isinstance(name, str):
        raise InputError(f"{item!r} is not a file", where=place)
    return name
