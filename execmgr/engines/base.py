"""The protocol of engines, which run tasks inside ready slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from vgrads.execmgr.tasks.order import TaskOrder

if TYPE_CHECKING:
    from vgrads.execmgr.core.states import ReplicaEnded
    from vgrads.planner.snapshot import ReplicaKey


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
