"""Rules of Makeflow, in both of its languages, as tasks: a file that one writes and another reads
is an edge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from vgrads.kernel.errors import InputError
from vgrads.workflows.formats.nested import put_in_place
from vgrads.workflows.formats.reading import Reading
from vgrads.workflows.runtimes import Runtimes, timed
from vgrads.workflows.task import Task
from vgrads.workflows.task_environment import TaskEnvironment

_SETTING = re.compile(r"[A-Za-z_]\w*=")
_MIB_OF_MB = 1e6 / 2**20
NOT_HONOURED = ("disk", "gpus", "mpi-processes")
"""Resources that a task of vgrads has no field for."""


@dataclass(slots=True, kw_only=True)
class MakeflowRule:
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


def read_rules(rules: Sequence[MakeflowRule], runtimes: Runtimes, reading: Reading) -> list[Task]:
    """Return the tasks of rules; InputError if two write one file."""
    makers: dict[str, str] = {}
    for rule in rules:
        for name in rule.outputs:
            if name in makers:
                raise InputError(f"'{name}' is written by {makers[name]} too", where=rule.place)
            makers[name] = rule.name
    tasks = [_make_task(rule, makers, runtimes, reading) for rule in rules]
    nested = {rule.name: rule.nested for rule in rules if rule.nested is not None}
    return put_in_place(tasks, nested, str(reading.path), reading)


def _make_task(
    rule: MakeflowRule, makers: Mapping[str, str], runtimes: Runtimes, reading: Reading
) -> Task:
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
        parents=tuple(dict.fromkeys(makers[name] for name in rule.inputs if name in makers)),
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
