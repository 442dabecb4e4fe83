"""The manager's own work, divided among the attempts that end, and the total of all times."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from vgrads.execmgr.core.states import ReplicaEnded
from vgrads.execmgr.core.times import Times, with_own
from vgrads.kernel.clock import Clock


class ManagerOverhead:
    """``spent``: total times of all attempts that ended under this manager."""

    def __init__(self, clock: Clock) -> None:
        self.spent = Times()
        self._clock, self._worked_s = clock, time.thread_time()

    def shared(self, ended: Sequence[ReplicaEnded]) -> list[ReplicaEnded]:
        """Return the ended attempts, each with its part of this manager's work since the last
        ones."""
        if not ended or self._clock.virtual:
            return list(ended)
        before_s, self._worked_s = self._worked_s, time.thread_time()
        own_s = max(0.0, self._worked_s - before_s) / len(ended)
        replica_ended = [replace(item, times=with_own(item.times, own_s)) for item in ended]
        for entry in replica_ended:
            self.spent = self.spent.and_then(entry.times)
        return replica_ended
