"""The manager's own work, shared among the attempts that end, and where the time of all went."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from vgrads.execmgr.core.states import CopyEnded
from vgrads.execmgr.core.times import Times, with_own
from vgrads.kernel.clock import Clock


class OwnWork:
    """``spent``: where the time of all attempts went that ended while it looked."""

    def __init__(self, clock: Clock) -> None:
        self.spent = Times()
        self._clock, self._worked_s = clock, time.thread_time()

    def shared(self, ended: Sequence[CopyEnded]) -> list[CopyEnded]:
        """Attempts that ended, each with its part of what this manager has worked since the last
        ones."""
        if not ended or self._clock.virtual:
            return list(ended)
        before_s, self._worked_s = self._worked_s, time.thread_time()
        own_s = max(0.0, self._worked_s - before_s) / len(ended)
        found = [replace(one, times=with_own(one.times, own_s)) for one in ended]
        for one in found:
            self.spent = self.spent.and_then(one.times)
        return found
