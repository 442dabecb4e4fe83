"""A task: one command, what it needs, and how long it takes."""

from __future__ import annotations

from dataclasses import dataclass

from vgrads.workflows.manner import PLAIN, Manner
from vgrads.workflows.needs import Needs
from vgrads.workflows.remote import RemoteFile
from vgrads.workflows.spread import RuntimeSpread

UNSTATED = float("nan")
"""The run time of a task of which nobody has said how long it takes: it is predicted before
planning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One command on ``procs`` cores for ``runtime_s`` seconds (the median) on a machine of speed
    1.

    ``kind``: what is alike in tasks that are learned from together, as a program or a rule;
    ``spread``: how far its run time may be from the median, None: as its set says; ``manner``: how
    it runs; ``resources``: units of what machines have beside processors, by name. ``threads``:
    processors that the command is told of where it takes up more of them, for its share of such
    units; 0: all. ``fetches``: inputs that lie elsewhere; ``sends``: outputs that go elsewhere.
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
    manner: Manner = PLAIN
    resources: tuple[tuple[str, int], ...] = ()
    threads: int = 0
    fetches: tuple[RemoteFile, ...] = ()
    sends: tuple[RemoteFile, ...] = ()

    @property
    def needs(self) -> Needs:
        """What a slot must have for it."""
        box = self.manner.boxed
        return Needs(
            self.procs, self.memory_mib, "" if box is None else box.engine or "any", self.resources
        )

    @property
    def stated(self) -> bool:
        """True where somebody has said, or predicted, how long it takes."""
        return self.runtime_s == self.runtime_s
