"""The batch job around an agent: over when its script is gone, for any reason.

The script waits for ``timeout``, which waits for the agent. A batch system that finds the processes
of a job by their group or their parents loses both if the script dies first; so they look
themselves.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
import select
import signal
import time

from .processes import kill, name_of, parent_of

_KEEPERS = ("slurmstepd", "sge_shepherd")
"""Processes of batch systems that live as long as a job; without them the job has failed."""
_LOOK_S, _LOOK_OFTEN_S = 1.0, 0.1
_GRACE_S = 8.0  # between SIGTERM and SIGKILL to the agent of a job that is over


class ParentJob:
    """The job of this process, if it was started by the script of one."""

    def __init__(self, stated: str) -> None:
        """``stated``: the numbers of the script and of its parent, as the script knows them: both
        may be gone by now. Empty: this process belongs to no job, or to a step of one."""
        self._timeout = os.getppid()
        numbers = [int(text) for text in stated.split()]
        self._script, self._keeper = numbers or (0, 0)
        if parent_of(self._script) == self._keeper and not name_of(self._keeper).startswith(
            _KEEPERS
        ):
            self._keeper = 0  # other parents of scripts may restart while they run

    def is_over(self) -> bool:
        """Return True if no process of the job waits for this one any more."""
        if not self._script:
            return False
        if os.getppid() != self._timeout or parent_of(self._timeout) != self._script:
            return True
        return bool(self._keeper) and parent_of(self._script) != self._keeper

    def wait_for(self, child: int) -> int:
        """Return the wait status of a child; it is ended with the job."""
        end_s = float("inf")
        while True:
            _pause(child)
            number, status = os.waitpid(child, os.WNOHANG)
            if number:
                return status
            if end_s == float("inf") and self.is_over():
                end_s = time.monotonic() + _GRACE_S
                kill(child, signal.SIGTERM)
            elif time.monotonic() > end_s:
                kill(child)


def _pause(child: int) -> None:
    """Wait for the end of a child, for a short time."""
    try:
        descriptor = os.pidfd_open(child)
    except (AttributeError, OSError):  # before Python 3.9 or Linux 5.3
        time.sleep(_LOOK_OFTEN_S)
        return
    try:
        select.select([descriptor], [], [], _LOOK_S)
    finally:
        os.close(descriptor)
