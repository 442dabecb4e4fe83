"""A user's bag: many independent tasks, one command each, and their requirements on a node.

A task is a number from 0 on. Common values are stored once; a pending task has no storage of its
own, so a bag of a million tasks costs as much as its parameters.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from string import Formatter
from typing import Protocol

from vgrads.policies.policy import Policy
from vgrads.workflows.generated.lazy import Lazy

RAW = "raw"
"""``{x:raw}`` inserts a parameter into the command unchanged; ``{x}`` as one word of the shell."""


TASK = "task"
"""Parameter of every task: its number."""


class Lines(Protocol):
    """A sequence of texts that need not all be in memory."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> str: ...


@dataclass(frozen=True, slots=True)
class Axis:
    """Parameters that change together: their names, and a row of texts for each value."""

    names: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


class TaskCommands(Protocol):
    """The commands of a bag's tasks, by number."""

    def __len__(self) -> int: ...

    def command(self, task: int) -> str:
        """Return the command of a task."""

    def filled(self, texts: Sequence[str], task: int) -> list[str]:
        """Return file names with the parameters of a task inserted unchanged."""

    def values(self, task: int) -> dict[str, str]:
        """Return a task's parameters."""


@dataclass(frozen=True)
class Template:
    """A command template over the product of its axes; the last one changes fastest."""

    text: str
    axes: tuple[Axis, ...]

    def __len__(self) -> int:
        return self._count

    @cached_property
    def _count(self) -> int:
        return prod(len(axis.rows) for axis in self.axes)

    @cached_property
    def _parts(self) -> list[tuple[str, str, bool]]:
        return split_template(self.text)

    def command(self, task: int) -> str:
        values = self.values(task)
        return "".join(
            before + (values[name] if raw else shlex.quote(values[name]) if name else "")
            for before, name, raw in self._parts
        )

    def filled(self, texts: Sequence[str], task: int) -> list[str]:
        return fill(texts, self.values(task)) if texts else []

    def values(self, task: int) -> dict[str, str]:
        if not 0 <= task < self._count:
            raise IndexError(task)
        result = {TASK: str(task)}
        # the last axis changes fastest, so its row is the remainder of the first division
        for axis in reversed(self.axes):
            task, row = divmod(task, len(axis.rows))
            result.update(zip(axis.names, axis.rows[row], strict=True))
        return result


@dataclass(frozen=True)
class Listed:
    """A list of commands."""

    lines: Lines

    def __len__(self) -> int:
        return len(self.lines)

    def command(self, task: int) -> str:
        return self.lines[task]

    def filled(self, texts: Sequence[str], task: int) -> list[str]:
        return fill(texts, self.values(task))

    def values(self, task: int) -> dict[str, str]:
        return {TASK: str(task)}


def fill(texts: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return texts with the parameters inserted unchanged."""
    return [
        "".join(before + values.get(name, "") for before, name, _ in split_template(t))
        for t in texts
    ]


def split_template(text: str) -> list[tuple[str, str, bool]]:
    """Split a template into pieces: (text before, name of the parameter or "", whether it is
    inserted unchanged)."""
    return [(before, name or "", form == RAW) for before, name, form, _ in Formatter().parse(text)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BagGoal:
    """What must be done ``deadline_s`` after a bag's submission: ``at_least`` tasks or this
    ``fraction`` of them; ``these``: the first by number, otherwise any. ``probability`` with which
    it is to be kept; ``budget_usd``: the most that nodes may cost."""

    deadline_s: float
    fraction: float = 1.0
    at_least: int | None = None
    these: bool = True
    probability: float = 0.95
    budget_usd: float | None = None

    def required(self, tasks: int) -> int:
        """Return how many of a number of tasks must be done."""
        if self.at_least is not None:
            return min(tasks, self.at_least)
        # 0.07 × 100 is slightly above 7 in binary fractions
        return math.ceil(self.fraction * tasks - 1e-9)


@dataclass(frozen=True, kw_only=True)
class BagSpec:
    """Tasks and their rules. Times in seconds, memory in MiB, ``procs`` processors for each task.

    ``retries``: maximum number of retries of a failed task; ``limit_s``: time after which it is
    killed (0: never); ``estimate_s``: run time stated by the user; ``inputs`` and ``outputs``:
    files sent to a node and back, whose names may contain parameters. ``policy``: the user's
    dispatch policy (docs/policies.md); ``learns``: replicate late tasks by learned run times;
    ``most_replicas``: maximum number of agents per task at once; ``tail_below``: the tail begins
    with this many waiting tasks; ``failover``: sites for tasks that have failed; ``pass_env``:
    variables of its owner that tasks are passed; ``order``: the order in which tasks become ready,
    where not all are at once; ``account``: number of the account of its tasks on nodes where agents
    run as root (0: that of the agents). ``python``: for calls of functions: the shell command of
    their Python, the digests of the program that it runs (:mod:`vgrads.agent.functions`) and of its
    setup. ``notes``: what of its files is not used.
    """

    name: str
    commands: TaskCommands
    owner: str = ""
    weight: float = 1.0
    procs: int = 1
    memory_mib: float = 0.0
    limit_s: float = 0.0
    retries: int = 2
    estimate_s: float | None = None
    deadline_s: float | None = None
    goal: BagGoal | None = None
    sites: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    output_bytes: int = 4096
    policy: Policy | None = None
    learns: bool = False
    most_replicas: int = 4
    tail_below: int | None = None
    tail_latched: bool = True
    failover: tuple[str, ...] = ()
    order: Lazy | None = None
    account: int = 0
    python: tuple[str, str, str] | None = None
    notes: tuple[str, ...] = ()

    def label(self, task: int) -> str:
        """Return a task's command as people read it: of a call, what it calls."""
        command = self.commands.command(task)
        return command.partition("\t")[0] if self.python else command

    @property
    def executable(self) -> str:
        """Return the first word of its first command."""
        words = self.label(0).split() if len(self.commands) else []
        return words[0] if words else ""
