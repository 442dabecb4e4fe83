"""A user's bag: many independent tasks, one command each, and what they need of a host.

A task is a number from 0 on. What is the same for all stands once; a pending task has nothing of
its own, so a bag of a million costs what its parameters cost.
"""

from __future__ import annotations

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
"""``{x:raw}`` puts a parameter into the command as it stands; ``{x}`` as one word of the shell."""


TASK = "task"
"""A parameter that every task has: its number."""


class Lines(Protocol):
    """A sequence of texts that need not all be in memory."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> str: ...


@dataclass(frozen=True, slots=True)
class Axis:
    """Parameters that change together: their names, and a row of texts for each value."""

    names: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


class Commands(Protocol):
    """The tasks of a bag, each by its number."""

    def __len__(self) -> int: ...

    def command(self, task: int) -> str:
        """What a task runs."""

    def filled(self, texts: Sequence[str], task: int) -> list[str]:
        """Names of files in which parameters stand, with those of a task put in as they are."""

    def values(self, task: int) -> dict[str, str]:
        """A task's parameters."""


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
        return parts_of(self.text)

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
        found = {TASK: str(task)}
        for axis in reversed(self.axes):
            task, row = divmod(task, len(axis.rows))
            found.update(zip(axis.names, axis.rows[row], strict=True))
        return found


@dataclass(frozen=True)
class Listed:
    """Commands one by one."""

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
    """Texts with the parameters in them as they are."""
    return [
        "".join(before + values.get(name, "") for before, name, _ in parts_of(t)) for t in texts
    ]


def parts_of(text: str) -> list[tuple[str, str, bool]]:
    """A template in pieces: (text before, name of the parameter or "", whether it goes in as it
    stands)."""
    return [(before, name or "", form == RAW) for before, name, form, _ in Formatter().parse(text)]


@dataclass(frozen=True, kw_only=True)
class Bag:
    """Tasks and their rules. Times in seconds, memory in MiB, ``procs`` processors for each task.

    ``retries``: how often a task that failed is tried again; ``limit_s``: after so long it is
    killed (0: never); ``estimate_s``: how long a task takes, where the user says so; ``inputs`` and
    ``outputs``: files that go to a host and come back, in which parameters may stand. ``policy``:
    what its user wrote (docs/policies.md); ``learns``: copies of late tasks by what is learned of
    them; ``most_copies``: hosts that may have a task at once; ``tail_below``: so few waiting tasks
    are its tail; ``failover``: sites where tasks go that have failed; ``pass_env``: variables of
    its owner that tasks are passed; ``order``: which tasks are ready when, where not all are at
    once.
    """

    name: str
    commands: Commands
    owner: str = ""
    weight: float = 1.0
    procs: int = 1
    memory_mib: float = 0.0
    limit_s: float = 0.0
    retries: int = 2
    estimate_s: float | None = None
    deadline_s: float | None = None
    sites: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    output_bytes: int = 4096
    policy: Policy | None = None
    learns: bool = False
    most_copies: int = 4
    tail_below: int | None = None
    tail_latched: bool = True
    failover: tuple[str, ...] = ()
    order: Lazy | None = None

    @property
    def executable(self) -> str:
        """The first word of its first command."""
        words = self.commands.command(0).split() if len(self.commands) else []
        return words[0] if words else ""
