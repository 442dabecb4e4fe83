"""The order by which an engine runs a replica of a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vgrads.workflows.task_environment import PLAIN, TaskEnvironment

if TYPE_CHECKING:
    from vgrads.planner.snapshot import ReplicaKey
    from vgrads.workflows.remote import RemoteFile


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrder:
    """A replica to run: slot, command, files, expected run time.

    The container engine is one that its site has.
    """

    key: ReplicaKey
    site: str
    slot: str
    procs: int
    command: str
    runtime_s: float
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attempt: int = 0
    memory_mib: float = 0.0
    environment: TaskEnvironment = PLAIN
    fetches: tuple[RemoteFile, ...] = ()
    sends: tuple[RemoteFile, ...] = ()
