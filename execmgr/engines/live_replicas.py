"""Running replicas of an engine that uses processes, shared by its threads."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from vgrads.agent.processes import kill_marked
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.execmgr.tasks.process import LOOK_S, TaskProcess
from vgrads.planner.snapshot import ReplicaKey


@dataclass(eq=False)
class LiveReplica:
    """An ordered replica: its process here, and whether its end is to be reported."""

    order: TaskOrder
    mark: str
    came_s: float
    process: TaskProcess | None = None  # None: not started, or an earlier manager's
    unwanted: bool = False
    begun_s: float = 0.0
    inputs: tuple[float, float] = (0.0, 0.0)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes; those of an earlier manager can only be killed."""
        if self.process is not None:
            self.process.signal(number)
        elif number == signal.SIGKILL:
            kill_marked(lambda mark: mark == self.mark)


class LiveReplicas:
    """Replicas of one engine. ``abandoned``: no end is to be reported."""

    def __init__(self) -> None:
        self._live: set[LiveReplica] = set()
        self._recovered: set[LiveReplica] = set()  # those that an earlier manager started
        self._limited: set[LiveReplica] = set()  # those whose memory is watched
        # guards these sets and the state of replicas
        self._changed = threading.Condition()
        self.abandoned = False

    def __len__(self) -> int:
        return len(self._live)

    def add(self, replica: LiveReplica, recovered: bool = False) -> None:
        """Add a replica; ``recovered``: an earlier manager has started it."""
        with self._changed:
            self._live.add(replica)
            if recovered:
                self._recovered.add(replica)

    def attach(self, replica: LiveReplica, process: TaskProcess) -> bool:
        """Attach a process before it starts; return False if the replica is no longer needed."""
        with self._changed:
            replica.process = process  # before it has a pid: its end may be reported at once
            if replica.order.memory_mib > 0:
                self._limited.add(replica)
            return self.is_needed(replica)

    def remove(self, replica: LiveReplica) -> None:
        """Remove a replica that has ended or will not start."""
        if replica.process is not None:
            replica.process.close()
        with self._changed:
            for group in (self._live, self._recovered, self._limited):
                group.discard(replica)
            self._changed.notify_all()

    def is_needed(self, replica: LiveReplica) -> bool:
        """True while the end is to be reported."""
        return not self.abandoned and not replica.unwanted

    def drop(self, key: ReplicaKey | None = None) -> list[LiveReplica]:
        """Mark these replicas, or all if there is no key, as not needed; return those that were
        needed before."""
        with self._changed:
            replicas = [
                replica
                for replica in self._live
                if (key is None or replica.order.key == key) and not replica.unwanted
            ]
            for replica in replicas:
                replica.unwanted = True
        return replicas

    def are_watched(self) -> bool:
        """True while there are replicas that must be polled."""
        return bool(self._recovered or self._limited)

    def watched(self) -> tuple[list[LiveReplica], list[LiveReplica]]:
        """Return those that an earlier manager started, and those whose memory is watched."""
        with self._changed:
            return list(self._recovered), list(self._limited)

    def unwatch(self, replica: LiveReplica) -> None:
        """Stop polling a replica of an earlier manager that has ended."""
        with self._changed:
            self._recovered.discard(replica)

    def any_begun(self) -> bool:
        """True while processes of this engine run."""
        return any(replica.process for replica in self._live)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all replicas that were started here."""
        with self._changed:
            begun = [replica for replica in self._live if replica.process is not None]
        for replica in begun:
            replica.signal(number)

    def wait_while(self, still: Callable[[], bool], patience_s: float = math.inf) -> None:
        """Wait until ``still`` returns False, or for this time; checked whenever a replica has
        ended, and regularly."""
        end_s = time.monotonic() + patience_s
        with self._changed:
            while still() and (left_s := end_s - time.monotonic()) > 0:
                self._changed.wait(min(left_s, LOOK_S))
