"""A task: one command, its requirements, and its run time."""

from __future__ import annotations

from dataclasses import dataclass

from vgrads.workflows.needs import Needs
from vgrads.workflows.remote import RemoteFile
from vgrads.workflows.spread import RuntimeSpread
from vgrads.workflows.task_environment import PLAIN, TaskEnvironment

UNSTATED = float("nan")
"""Run time of a task for which none is stated: it is predicted before planning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One command on ``procs`` cores for ``runtime_s`` seconds (the median) on a machine of speed
    1.

    ``kind``: the group of tasks that are learned from together, such as a program or a rule;
    ``spread``: uncertainty of its run time, None: that of its set; ``environment``: how it runs;
    ``resources``: units of resources of machines other than processors, by name. ``threads``:
    processors that are announced to the command if it occupies more of them, for its share of such
    units; 0: all. ``fetches``: remote inputs; ``sends``: remote outputs.
    """

    id: str
    runtime_s: float
    procs: int = 1
    parents: tuple[str, ...] = ()
    command: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    memory_mib: float = 0.0
    kind: str = ""
    spread: RuntimeSpread | None = None
    environment: TaskEnvironment = PLAIN
    resources: tuple[tuple[str, int], ...] = ()
    threads: int = 0
    fetches: tuple[RemoteFile, ...] = ()
    sends: tuple[RemoteFile, ...] = ()

    @property
    def needs(self) -> Needs:
        """Requirements on its slot."""
        box = self.environment.boxed
        return Needs(
            self.procs, self.memory_mib, "" if box is None else box.engine or "any", self.resources
        )

    @property
    def stated(self) -> bool:
        """True if its run time is stated or predicted."""
        return self.runtime_s == self.runtime_s
