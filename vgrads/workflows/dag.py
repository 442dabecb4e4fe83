"""A workflow: tasks, their dependencies, and the data transferred between them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import LONGEST_S
from vgrads.workflows.shape import Shape
from vgrads.workflows.task import Task

_LONGEST_COMMAND = 120_000  # of one argument; Linux accepts up to 128 KiB
_LONGEST_NAME = 255
_MOST_PROCS = 100_000_000
_RESERVED = (
    ".task",
    ".workdir",
    ".staging",
    ".staged",
    ".out",
    ".copy",
    ".stop",
    ".over",
    "stdout.txt",
    "stderr.txt",
)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.#+-]")


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """A directed acyclic graph of tasks; build it with :func:`make_workflow`, which checks it.

    ``notes``: information for planning, such as that more tasks will become known.
    """

    name: str
    tasks: Mapping[str, Task]
    file_mib: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @cached_property
    def shape(self) -> Shape:
        """Arrays derived from the tasks alone."""
        return Shape(self.tasks, self.file_mib)

    @property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """Task id → ids of the tasks that need it."""
        return self.shape.children

    @property
    def order(self) -> tuple[str, ...]:
        """Task ids in an order with every parent before its children."""
        return self.shape.order

    def transfer_mib(self, parent: str, child: str) -> float:
        """Return the data that ``child`` reads from ``parent``."""
        return self.shape.edge_mib[parent, child]

    @cached_property
    def width(self) -> int:
        """Cores of the widest task."""
        return max(task.procs for task in self.tasks.values())

    def critical_path_s(self, bandwidth_mib_s: float = float("inf")) -> float:
        """Return the longest chain of run times at speed 1, with transfers at this bandwidth
        between all tasks."""
        ends: dict[str, float] = {}
        for task_id in self.order:
            task = self.tasks[task_id]
            arrivals = [
                ends[p] + self.transfer_mib(p, task_id) / bandwidth_mib_s for p in task.parents
            ]
            ends[task_id] = max(arrivals, default=0.0) + task.runtime_s
        return max(ends.values())

    def renamed(self, name: str) -> Workflow:
        """Return the same workflow under another name."""
        return self._with_shape(replace(self, name=name))

    def noted(self, *notes: str) -> Workflow:
        """Return the same workflow with further notes."""
        return self._with_shape(replace(self, notes=(*self.notes, *notes)))

    def _with_shape(self, other: Workflow) -> Workflow:
        other.__dict__["shape"] = self.shape  # where the cached property stores it
        return other


def make_safe_name(name: str) -> str:
    """Return the spelling of a workflow's name that plans, runs and requests use."""
    return _UNSAFE.sub("_", name)


def make_workflow(
    name: str,
    tasks: Iterable[Task],
    file_mib: Mapping[str, float] | None = None,
    where: str = "",
    notes: tuple[str, ...] = (),
) -> Workflow:
    """Build a checked workflow; InputError names the wrong task and field."""
    by_id: dict[str, Task] = {}
    for task in tasks:
        if task.id in by_id:
            raise InputError(f"two tasks have the id '{task.id}'", where=where)
        by_id[task.id] = task
    if not by_id:
        raise InputError(f"workflow '{name}' has no tasks", where=where)
    for task in by_id.values():
        _check_task(task, by_id, where)
    workflow = Workflow(
        name=make_safe_name(name), tasks=by_id, file_mib=dict(file_mib or {}), notes=notes
    )
    # tasks on a cycle, and those behind one, never come into the order
    if len(workflow.order) < len(by_id):
        raise InputError(f"the tasks form a cycle: {_find_cycle(by_id)}", where=where)
    return workflow


def _check_task(task: Task, by_id: Mapping[str, Task], where: str) -> None:
    place = f"{where}: task '{task.id}'" if where else f"task '{task.id}'"
    if task.stated and not 0 <= task.runtime_s <= LONGEST_S:
        raise InputError(
            f"invalid runtime_s {task.runtime_s}",
            where=place,
            fix=f"give seconds, 0 to {LONGEST_S:g}",
        )
    if not 1 <= task.procs <= _MOST_PROCS:
        raise InputError(
            f"invalid procs {task.procs}",
            where=place,
            fix=f"give a number from 1 to {_MOST_PROCS:,}",
        )
    if len(set(task.parents)) < len(task.parents):
        raise InputError("names a parent twice", where=place)
    for parent in task.parents:
        if parent not in by_id:
            raise InputError(f"unknown parent '{parent}'", where=place)
    _check_orders(task, place)


def _check_orders(task: Task, place: str) -> None:
    """Check that a task's command and transfers can be passed to a system, and stay in its
    folder."""
    for what, text, check in (
        ("id", task.id, check_text),
        ("command", task.command, check_command),
    ):
        try:
            check(text)
        except InputError as error:
            raise error.within(f"{place}: {what}") from None
    inputs = (*task.inputs, *(file.name for file in task.fetches))
    outputs = (*task.outputs, *(file.name for file in task.sends))
    for what, names in (("inputs", inputs), ("outputs", outputs)):
        for name in names:
            _check_name(name, f"{place}: {what}")
    for what, names, elsewhere in (
        ("inputs", inputs, task.fetches),
        ("outputs", outputs, task.sends),
    ):
        for file in elsewhere:
            if names.count(file.name) > 1:
                raise InputError(f"names '{file.name}' twice", where=f"{place}: {what}")


def _check_name(name: str, place: str) -> None:
    try:
        check_text(name)
    except InputError as error:
        raise error.within(place) from None
    parts = name.split("/")
    if not name or name.startswith("/") or ".." in parts or name.strip("/.") == "":
        raise InputError(
            f"'{name}' is outside the task's folder",
            where=place,
            fix="use a name below it, e.g. out/a.txt",
        )
    if max(len(part.encode()) for part in parts) > _LONGEST_NAME or parts[0] in _RESERVED:
        raise InputError(f"'{name[:80]}' cannot be the name of a file there", where=place)


def check_command(text: str) -> None:
    """Raise InputError if a command cannot be passed to a shell."""
    check_text(text)
    if len(text.encode()) > _LONGEST_COMMAND:
        raise InputError(
            f"is longer than {_LONGEST_COMMAND} bytes", fix="write the command to a file"
        )


def check_text(text: str) -> None:
    """Raise InputError if a text cannot be passed to a system: it has a NUL, or is not Unicode."""
    if "\0" in text:
        raise InputError("has a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError("is not valid text") from error


def _find_cycle(by_id: Mapping[str, Task]) -> str:
    import networkx as nx  # noqa: PLC0415 late: most sets have no cycle

    graph = nx.DiGraph((parent, task.id) for task in by_id.values() for parent in task.parents)
    edges = nx.find_cycle(graph)
    return " → ".join([edge[0] for edge in edges] + [edges[-1][1]])
