"""The protocol of engines, which run tasks inside ready slots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from vgrads.workflows.task_environment import PLAIN, TaskEnvironment

if TYPE_CHECKING:
    from vgrads.execmgr.core.states import ReplicaEnded
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


def _no_variables(_slot: str, _name: str) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """The program that must run in a slot so that an engine can reach it.

    ``of_slot``: further variables, of a slot with this name at its site.
    """

    command: str
    environment: Mapping[str, str]
    of_slot: Callable[[str, str], Mapping[str, str]] = _no_variables


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePolling:
    """Treatment of a site by a run, in addition to its driver: polling interval, and pilot of its
    slots.

    ``reports``: whether the pilot of a slot accepts tasks; ``patience_s``: how long the pilot may
    take to start after its site reports the slot as ready. ``dismiss``: tells the pilot of a slot
    to end by itself, so that its job exits with 0; False where it cannot be told.
    """

    poll_s: float = 0.0
    pilot: Callable[[], Pilot] | None = None
    reports: Callable[[str], bool] | None = None
    patience_s: float = 180.0
    dismiss: Callable[[str], bool] | None = None

    def new_pilot(self) -> Pilot | None:
        """Return the pilot of a slot that is requested now; None for a site without pilots."""
        return self.pilot() if self.pilot else None


class Engine(Protocol):
    """An engine: accepts orders in bundles, reports completions; makes no decisions."""

    def start(self, orders: Sequence[TaskOrder]) -> None:
        """Start these replicas now."""

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        """Recover after the manager was killed: these replicas and no others should be running.

        Replicas that still run are found, those that have ended are reported, those that never
        started or were lost with the manager are started, and any others that run are cancelled.
        """

    def commit(self, orders: Sequence[TaskOrder]) -> None:
        """Commit the outputs of these replicas, which have run; reported as committed ends.

        The call is repeated after a manager was killed, also for a replica that is committed
        already.
        """

    def cancel(self, key: ReplicaKey) -> None:
        """Cancel a replica, without waiting for it; one that has ended is no error and is not
        reported."""

    def poll(self) -> list[ReplicaEnded]:
        """Return the replicas that ended since the last call."""

    def stored(self) -> None:
        """Note that the journal has all events that :meth:`poll` returned."""

    def wake_at(self) -> float:
        """Return when the next event is due in virtual time; ``inf`` if that is not known."""

    def wait(self, timeout_s: float) -> None:
        """Return after ``timeout_s`` of real time, or sooner if there is an event."""

    def close(self) -> None:
        """Cancel all running replicas, and return when they are gone."""

    def detach(self) -> None:
        """Detach from running replicas and leave them running, for a later recovery."""
