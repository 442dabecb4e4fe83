"""Makeflows in JX: an object with ``rules``, each with command, inputs and outputs.

Run times come from the set's ``runtimes``, by category or by the name of the program; otherwise a
rule's ``wall-time`` is the limit that a run time is guessed from.
https://cctools.readthedocs.io/en/latest/jx-workflow/
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.jx import JxEvaluator, entry_of, parse_jx
from vgrads.workflows.formats.makeflow_rules import MakeflowRule, read_rules
from vgrads.workflows.formats.reading import Reading
from vgrads.workflows.runtimes import Runtimes
from vgrads.workflows.task import Task

Json = Mapping[str, Any]
_RESOURCES = ("cores", "memory", "disk", "gpus", "mpi-processes", "wall-time")
_KEYS = frozenset(
    (
        *("command", "workflow", "args", "inputs", "outputs", "category", "resources"),
        *("environment", "local_job", "allocation"),
    )
)


def read_makeflow_jx(
    text: str, runtimes: Runtimes, reading: Reading, definitions: Path | None = None
) -> Workflow:
    """Read the workflow of a Makeflow in JX; InputError names the wrong line or rule.

    ``definitions``: a file with values of names, as for ``makeflow --jx-args``.
    """
    names: Mapping[str, Any] = {}
    if definitions is not None:
        place = str(definitions)
        tree = parse_jx(reading.text(definitions, place), place)
        names = JxEvaluator(place).defined(tree, {})
    tasks = _read(text, reading.path, "", names, (runtimes, reading))
    return make_workflow(reading.path.stem, tasks, where=str(reading.path))


def _read(
    text: str, path: Path, prefix: str, names: Mapping[str, Any], how: tuple[Runtimes, Reading]
) -> list[Task]:
    """Return the tasks of one file; their names begin with ``prefix``."""
    where = str(path)
    tree, jx = parse_jx(text, where), JxEvaluator(where)
    definitions = entry_of(tree, "define")
    if definitions is not None:
        names = jx.defined(definitions, names)
    document = jx.value(tree, names)
    rules = document.get("rules") if isinstance(document, dict) else None
    if not isinstance(rules, list) or not rules:
        raise InputError("has no list of rules", where=where)
    read = [
        _read_rule(f"{prefix}rule{number}", rule, document, f"{where}: rule {number}", how)
        for number, rule in enumerate(rules, 1)
    ]
    return read_rules(read, *how)


def _read_rule(
    name: str, rule: Any, document: Json, place: str, how: tuple[Runtimes, Reading]
) -> MakeflowRule:
    reading = how[1]
    if not isinstance(rule, dict) or ("command" in rule) == ("workflow" in rule):
        raise InputError(
            "has no command", where=place, fix="each rule needs a 'command' or a 'workflow'"
        )
    if not isinstance(rule.get("command", ""), str):
        raise InputError("its command is not text", where=place)
    for key in rule:
        if key not in _KEYS:
            reading.list("not known", f"'{key}' of {place.rpartition(': ')[2]}")
    category = str(rule.get("category") or document.get("default_category") or "")
    general = _require_object(
        _require_object(document.get("categories"), place).get(category), place
    )
    resources, env = (
        {**_require_object(general.get(what), place), **_require_object(rule.get(what), place)}
        for what in ("resources", "environment")
    )
    for key in resources:
        if key not in _RESOURCES:
            reading.list("not known", f"resource '{key}' of {place.rpartition(': ')[2]}")
    if rule.get("local_job") is True:
        reading.count("local rule", "are", "placed as any other")
    if rule.get("allocation"):
        reading.list("not honoured", "allocation")
    return MakeflowRule(
        name=name,
        place=place,
        inputs=_list_files(rule.get("inputs"), place, reading),
        outputs=_list_files(rule.get("outputs"), place, reading),
        command=rule.get("command", ""),
        category=category,
        resources={
            key: _read_number(resources, key, place) for key in _RESOURCES if key in resources
        },
        env={
            key: str(v)
            for key, v in {**_require_object(document.get("environment"), place), **env}.items()
        },
        nested=_read_nested(name, rule, place, how) if "workflow" in rule else None,
    )


def _read_nested(name: str, rule: Json, place: str, how: tuple[Runtimes, Reading]) -> list[Task]:
    """Read the workflow that a rule runs, with the names that it defines for it."""
    path = how[1].path.parent / str(rule["workflow"])
    with how[1].follow(path, place) as text:
        return _read(text, path, f"{name}+", _require_object(rule.get("args"), place), how)


def _require_object(value: object, place: str) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError("must be an object: resources, categories", where=place)
    return value


def _read_number(resources: Json, name: str, place: str) -> float:
    value = resources[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise InputError(f"'{name}' is not a number", where=place)
    return float(value)


def _list_files(value: object, place: str, reading: Reading) -> tuple[str, ...]:
    """Return the names of files in the workflow; some have another name for the task."""
    items = value if isinstance(value, list) else [] if value is None else None
    if items is None:
        raise InputError("inputs and outputs must be lists", where=place)
    return tuple(dict.fromkeys(_read_file(item, place, reading) for item in items))


def _read_file(item: object, place: str, reading: Reading) -> str:
    name = item.get("dag_name") if isinstance(item, dict) else item
    if isinstance(item, dict) and item.get("task_name") not in (None, name):
        reading.count("file", "are", "not renamed for the task")
    if not isinstance(name, str):
        raise InputError(f"{item!r} is not a file", where=place)
    return name
