"""What runs tasks inside slots that are there: the protocol of engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vgrads.execmgr.core.states import CopyEnded
from vgrads.planner.snapshot import CopyKey
from vgrads.workflows.manner import PLAIN, Manner
from vgrads.workflows.remote import RemoteFile


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrder:
    """One copy to run: in which slot, what, with which files, for about how long.

    The engine of its container is one that its site has.
    """

    key: CopyKey
    site: str
    slot: str
    procs: int
    command: str
    runtime_s: float
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attempt: int = 0
    memory_mib: float = 0.0
    manner: Manner = PLAIN
    fetches: tuple[RemoteFile, ...] = ()
    sends: tuple[RemoteFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """What must run in a slot so that an engine can reach it."""

    command: str
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How a run deals with a site beside its driver: how often it asks, and what its slots must
    run.

    ``reports``: whether the pilot of a slot is there for tasks; ``patience_s``: how long it may
    take to come once its site says that the slot is ready.
    """

    poll_s: float = 0.0
    pilot: Callable[[], Pilot] | None = None
    reports: Callable[[str], bool] | None = None
    patience_s: float = 180.0


class Engine(Protocol):
    """Takes orders in bundles, tells of ends; never decides anything."""

    def start(self, orders: Sequence[TaskOrder]) -> None:
        """Start these copies now."""

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        """After the manager was killed: these and no others should be running.

        What still runs is found again, what has ended meanwhile is told, what never began or was
        lost with the manager begins now, and what runs although it should not is stopped.
        """

    def commit(self, orders: Sequence[TaskOrder]) -> None:
        """Put the outputs of these copies, which have run, where they belong; told as ends that are
        committed.

        Asked for again after a manager was killed, also of one that is committed already.
        """

    def cancel(self, key: CopyKey) -> None:
        """Stop a copy, without waiting for it; one that has ended is no error and brings no
        news."""

    def poll(self) -> list[CopyEnded]:
        """Copies that ended since the last call."""

    def wake_at(self) -> float:
        """When news is due in virtual time; ``inf`` where that cannot be known."""

    def wait(self, timeout_s: float) -> None:
        """Return after ``timeout_s`` of real time, or sooner when there is news."""

    def close(self) -> None:
        """Stop everything that still runs, and return when it is gone."""

    def abandon(self) -> None:
        """Look after it no more and let it run on, to be found again."""
