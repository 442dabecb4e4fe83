"""Rules of Makeflow, in both of its languages, as tasks: a file that one writes and another reads
is an edge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from vgrads.kernel.errors import InputError
from vgrads.workflows.formats.reading import MOST_EDGES, MOST_TASKS, Reading
from vgrads.workflows.runtimes import Runtimes, timed
from vgrads.workflows.task import Task
from vgrads.workflows.task_environment import TaskEnvironment

_SETTING = re.compile(r"[A-Za-z_]\w*=")
_MIB_OF_MB = 1e6 / 2**20
NOT_HONOURED = ("disk", "gpus", "mpi-processes")
"""Resources that a task of vgrads has no field for."""


@dataclass(slots=True, kw_only=True)
class Rule:
    """A rule: a command, or a workflow of its own (``nested``). ``resources``: cores, memory in MB,
    wall-time in seconds; ``name``: of its task."""

    name: str
    place: str
    outputs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    command: str = ""
    category: str = ""
    resources: Mapping[str, float] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    nested: Sequence[Task] | None = None


def read_rules(rules: Sequence[Rule], runtimes: Runtimes, reading: Reading) -> list[Task]:
    """Return the tasks of rules; InputError if two write one file."""
    makers: dict[str, Sequence[str]] = {}
    for rule in rules:
        ends = [rule.name] if rule.nested is None else list(_last(rule.nested))
        for name in rule.outputs:
            if name in makers:
                first = ", ".join(makers[name][:1])
                raise InputError(f"'{name}' is written by {first} too", where=rule.place)
            makers[name] = ends
    tasks: list[Task] = []
    edges = 0
    for rule in rules:
        parents = tuple(
            dict.fromkeys(maker for name in rule.inputs for maker in makers.get(name, ()))
        )
        new = [_task(rule, parents, runtimes, reading)] if rule.nested is None else rule.nested
        tasks += new if rule.nested is None else _after(rule.nested, parents)
        edges += len(parents) * len(new)
        if len(tasks) > MOST_TASKS or edges > MOST_EDGES:
            raise InputError(
                f"describes more than {MOST_TASKS:,} tasks or {MOST_EDGES:,} edges",
                where=rule.place,
            )
    return tasks


def _task(rule: Rule, parents: tuple[str, ...], runtimes: Runtimes, reading: Reading) -> Task:
    program = _find_program(rule.command)
    for name in NOT_HONOURED:
        if rule.resources.get(name):
            reading.list("not honoured", name)
    inputs, outputs = (tuple(_keep_relative(n, reading)) for n in (rule.inputs, rule.outputs))
    return Task(
        id=rule.name,
        kind=rule.category or program,
        procs=max(1, int(rule.resources.get("cores", 1))),
        memory_mib=rule.resources.get("memory", 0.0) * _MIB_OF_MB,
        parents=parents,
        command=rule.command,
        inputs=inputs,
        outputs=outputs,
        environment=TaskEnvironment(env=tuple(rule.env.items())),
        **timed(runtimes, (rule.category, program), None, rule.resources.get("wall-time")),
    )


def _keep_relative(names: Iterable[str], reading: Reading) -> Iterator[str]:
    """Return the files that are carried between tasks: those with absolute paths, such as
    ``/usr/bin/convert``, are on the nodes."""
    for name in names:
        if name.startswith("/"):
            reading.list("taken to be on every node", name)
        else:
            yield name


def _find_program(command: str) -> str:
    """Return the name of the program of a command, after assignments and redirections."""
    words = iter(command.split())
    for word in words:
        if word in ("<", ">", ">>"):
            next(words, "")
        elif word[0] not in "<>!" and not _SETTING.match(word):
            return PurePath(word).name
    return ""


def _last(tasks: Sequence[Task]) -> Iterator[str]:
    """Return the tasks that no other one waits for."""
    with_children = {parent for task in tasks for parent in task.parents}
    return (task.id for task in tasks if task.id not in with_children)


def _after(tasks: Sequence[Task], parents: tuple[str, ...]) -> list[Task]:
    """Return the tasks with parents for those that have none."""
    return [task if task.parents else replace(task, parents=parents) for task in tasks]
