"""Tasks as processes, all waited for together.

Shipped to nodes as it is: the standard library only, Python 3.8 or newer. Each child leads a
session of its own. Exits of all children are reported through one epoll over their descriptors
(pidfd_open(2), Linux 5.3), or, without descriptors, by a check of each known child after SIGCHLD or
every ``LOOK_S``; never of any child, for others of this process may not be ours.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from contextlib import suppress
from typing import Any, Hashable, Mapping, NamedTuple, Sequence

from .descriptors import descriptor_limit, has_room
from .launcher import Launcher

LOOK_S = 0.02
"""Interval of checks of the children where no event reports their exits, in seconds."""
_FEW = 128
"""Upper bound of the descriptors that this process uses for anything but tasks."""


class ExitedChild(NamedTuple):
    """A terminated child: its token, process number, wait status and resource usage (getrusage(2)).

    ``lingering``: other processes of its group remained and were killed. ``usage.ru_maxrss`` (KiB)
    is never below this process's memory when it started the child, and then only a bound.
    """

    token: Any
    pid: int
    status: int
    usage: Any
    lingering: bool

    @property
    def code(self) -> int:
        """Return its exit code, or −N where signal N ended it."""
        return code_of(self.status)


def code_of(status: int) -> int:
    """Return the exit code of a wait status, or −N where signal N ended the process."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class Spawner:
    """Starts children and reports their exits; for one loop, or for many threads with a single
    reaping thread."""

    def __init__(self, descriptors: bool = True) -> None:
        """``descriptors``: wait by process descriptors, where the system has them."""
        self._lock = threading.Lock()
        self._children: dict[int, Hashable] = {}  # process number → token
        self._pid_of: dict[int, int] = {}  # descriptor → process number
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._launcher = Launcher()
        self._epoll = _epoll() if descriptors else None
        self._wakeup_pipe, self._wakeup_writer = os.pipe()
        self._woken = False
        os.set_blocking(self._wakeup_pipe, False)
        os.set_blocking(self._wakeup_writer, False)
        if self._epoll is not None:
            self._epoll.register(self._wakeup_pipe, select.EPOLLIN)
        elif threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, self._ring)

    def fileno(self) -> int:
        """Return a descriptor that is readable when a child has ended; without process descriptors,
        also reap every ``LOOK_S``."""
        return self._wakeup_pipe if self._epoll is None else self._epoll.fileno()

    @property
    def look_s(self) -> float:
        """Return how long to wait for :meth:`fileno` at most while children run, in seconds; 0: no
        limit."""
        return LOOK_S if self._epoll is None else 0.0

    def __len__(self) -> int:
        return len(self._children)

    def spawn(
        self,
        token: Hashable,
        command: str,
        environment: Mapping[bytes, bytes],
        output: Sequence[int],
        folder: str = "",
        account: int = 0,
    ) -> int:
        """Start a command and return its process number, which leads a session and a process group.
        Raise OSError where it cannot be started.

        ``output``: descriptors of its standard output and error; ``folder``, ``account``:
        see :class:`vgrads.agent.launcher.Launcher`.
        """
        pid = self._launcher.begin(command, environment, (self.null, *output), folder, account)
        self.watch(pid, token)
        return pid

    def watch(self, pid: int, token: Hashable) -> None:
        """Report the exit of a child that leads its process group, started by any part of this
        process."""
        self._children[pid] = token
        if self._epoll is None:
            return
        descriptor = -1
        try:
            descriptor = os.pidfd_open(pid)
            self._pid_of[descriptor] = pid
            self._epoll.register(descriptor, select.EPOLLIN)
        except OSError:  # no descriptors left: a child must not run unwatched
            if descriptor >= 0:
                del self._pid_of[descriptor]
                os.close(descriptor)
            with self._lock:  # no signal to a reused number
                del self._children[pid]
                _signal_group(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            raise

    def has_room(self, descriptors: int) -> bool:
        """Return True where another child can be started; ``descriptors``: used per child in this
        process."""
        limit = descriptor_limit()
        few = limit < 0 or (len(self._children) + 1) * descriptors + _FEW <= limit
        return few or has_room(descriptors)

    def signal(self, pid: int, number: int) -> bool:
        """Send a signal to a child's process group, from any thread; return False where it has
        ended and been reported."""
        with self._lock:
            return pid in self._children and _signal_group(pid, number)

    def reap(self, timeout_s: float = 0.0) -> list[ExitedChild]:
        """Return the terminated children, after waiting up to this time (seconds) for the first
        one; kill the rest of their groups."""
        if self._epoll is None:
            return self._look(timeout_s)
        ended = []
        for descriptor, _ in self._epoll.poll(timeout_s):
            if descriptor == self._wakeup_pipe:
                self._receive()
                continue
            pid = self._pid_of.pop(descriptor)
            # closing is not enough: a child that is being started still holds a duplicate
            self._epoll.unregister(descriptor)
            os.close(descriptor)
            ended.append(self._record_exit(pid))
        return ended

    def _look(self, timeout_s: float) -> list[ExitedChild]:
        """Check each child until one has ended or the time is up."""
        end_s = time.monotonic() + timeout_s
        while True:
            woken = self._receive()
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT
            over = [pid for pid in list(self._children) if os.waitid(os.P_PID, pid, how)]
            left_s = end_s - time.monotonic()
            if over or woken or left_s <= 0:
                return [self._record_exit(pid) for pid in over]
            select.select([self._wakeup_pipe], [], [], min(left_s, LOOK_S))

    def _record_exit(self, pid: int) -> ExitedChild:
        """Wait for a child that has ended; until then its number and its group's are not reused."""
        with self._lock:
            _signal_group(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            token = self._children.pop(pid)
        return ExitedChild(token, pid, status, usage, _signal_group(pid, 0))

    def _receive(self) -> bool:
        """Return True where :meth:`wake` was called since the last time."""
        with suppress(BlockingIOError):
            os.read(self._wakeup_pipe, 4096)
        woken, self._woken = self._woken, False
        return woken

    def wake(self) -> None:
        """Make :meth:`reap` return, from any thread."""
        self._woken = True
        self._ring()

    def _ring(self, *_: object) -> None:
        with suppress(OSError):
            os.write(self._wakeup_writer, b"!")

    def close(self) -> None:
        """Release all descriptors; children run on."""
        descriptors = (self.null, self._wakeup_pipe, self._wakeup_writer, *self._pid_of)
        self.null = self._wakeup_pipe = (
            self._wakeup_writer
        ) = -1  # first: a closed descriptor number is soon reused
        self._pid_of.clear()
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)
        if self._epoll is not None:
            self._epoll.close()


def _epoll() -> Any:
    """Return an epoll for process descriptors; None where the system has none."""
    if not hasattr(os, "pidfd_open") or not hasattr(select, "epoll"):
        return None
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return None
    return select.epoll()


def _signal_group(pid: int, number: int) -> bool:
    """Send a signal to a process group; return False where it is gone."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
