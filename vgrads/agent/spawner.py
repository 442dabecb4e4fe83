"""Tasks as processes, waited for all at once.

Shipped to hosts as it is: nothing but the standard library, Python 3.8 or newer. Each child leads a
session of its own. The ends of all children come through one epoll over their descriptors
(pidfd_open(2), Linux 5.3), and where there are none, by a look at each known child after SIGCHLD or
every ``LOOK_S``: never at any child, for others of this process may not be ours.
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
"""Between looks at the children where nothing tells of their ends."""
_FEW = 128
"""Descriptors that this process never takes beside those of tasks."""


class Ended(NamedTuple):
    """A child that has ended: what it was begun as, its number, its wait status, and what it used
    (getrusage(2)).

    ``lingering``: others of its process group were there, and were killed. ``usage.ru_maxrss``
    (KiB) is never below what this process had in memory when it began the child, which is then a
    bound only.
    """

    token: Any
    pid: int
    status: int
    usage: Any
    lingering: bool

    @property
    def code(self) -> int:
        """Its exit code, or −N where signal N ended it."""
        return code_of(self.status)


def code_of(status: int) -> int:
    """The exit code of a wait status, or −N where signal N ended the process."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class Spawner:
    """Begins children and tells of their ends; for one loop, or for many threads of which one
    reaps."""

    def __init__(self, descriptors: bool = True) -> None:
        """``descriptors``: wait by descriptors of processes, where the system has them."""
        self._lock = threading.Lock()
        self._children: dict[int, Hashable] = {}  # number → token
        self._pid_of: dict[int, int] = {}  # descriptor → number
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._launcher = Launcher()
        self._epoll = _epoll() if descriptors else None
        self._bell, self._ringer = os.pipe()
        self._woken = False
        os.set_blocking(self._bell, False)
        os.set_blocking(self._ringer, False)
        if self._epoll is not None:
            self._epoll.register(self._bell, select.EPOLLIN)
        elif threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, self._ring)

    def fileno(self) -> int:
        """Readable when a child has ended; without descriptors of processes reap every ``LOOK_S``
        all the same."""
        return self._bell if self._epoll is None else self._epoll.fileno()

    @property
    def look_s(self) -> float:
        """How long to wait for :meth:`fileno` at most while children run, in seconds; 0: as long as
        one likes."""
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
    ) -> int:
        """Begin a command; its number, which leads a session and a process group. OSError where it
        cannot be.

        ``output``: descriptors for what it prints and complains of; ``folder``: see
        :class:`vgrads.agent.launcher.Launcher`.
        """
        pid = self._launcher.begin(command, environment, (self.null, *output), folder)
        self.watch(pid, token)
        return pid

    def watch(self, pid: int, token: Hashable) -> None:
        """Tell of the end of a child that leads its process group, whoever of this process began
        it."""
        self._children[pid] = token
        if self._epoll is None:
            return
        descriptor = -1
        try:
            descriptor = os.pidfd_open(pid)
            self._pid_of[descriptor] = pid
            self._epoll.register(descriptor, select.EPOLLIN)
        except OSError:  # no descriptors left: one that nobody can wait for must not run
            if descriptor >= 0:
                del self._pid_of[descriptor]
                os.close(descriptor)
            with self._lock:  # no signal to a number that is somebody else's
                del self._children[pid]
                _signal_group(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            raise

    def has_room(self, descriptors: int) -> bool:
        """True where another child can be begun; ``descriptors``: that each takes of this
        process."""
        limit = descriptor_limit()
        few = limit < 0 or (len(self._children) + 1) * descriptors + _FEW <= limit
        return few or has_room(descriptors)

    def signal(self, pid: int, number: int) -> bool:
        """Send a signal to a child's process group, from any thread; False where it has ended and
        been told."""
        with self._lock:
            return pid in self._children and _signal_group(pid, number)

    def reap(self, timeout_s: float = 0.0) -> list[Ended]:
        """The children that have ended, after waiting so long (seconds) for the first one; ends
        their groups."""
        if self._epoll is None:
            return self._look(timeout_s)
        ended = []
        for descriptor, _ in self._epoll.poll(timeout_s):
            if descriptor == self._bell:
                self._hear()
                continue
            pid = self._pid_of.pop(descriptor)
            # closing is not enough: a child that is just being begun still holds a copy of it
            self._epoll.unregister(descriptor)
            os.close(descriptor)
            ended.append(self._bury(pid))
        return ended

    def _look(self, timeout_s: float) -> list[Ended]:
        """Look at each child until one has ended or the time is up."""
        end_s = time.monotonic() + timeout_s
        while True:
            woken = self._hear()
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT
            over = [pid for pid in list(self._children) if os.waitid(os.P_PID, pid, how)]
            left_s = end_s - time.monotonic()
            if over or woken or left_s <= 0:
                return [self._bury(pid) for pid in over]
            select.select([self._bell], [], [], min(left_s, LOOK_S))

    def _bury(self, pid: int) -> Ended:
        """Wait for a child that has ended; its number is its own until then, and so is its
        group's."""
        with self._lock:
            _signal_group(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            token = self._children.pop(pid)
        return Ended(token, pid, status, usage, _signal_group(pid, 0))

    def _hear(self) -> bool:
        """True where :meth:`wake` was called since the last time."""
        with suppress(BlockingIOError):
            os.read(self._bell, 4096)
        woken, self._woken = self._woken, False
        return woken

    def wake(self) -> None:
        """Have :meth:`reap` return, from any thread."""
        self._woken = True
        self._ring()

    def _ring(self, *_: object) -> None:
        with suppress(OSError):
            os.write(self._ringer, b"!")

    def close(self) -> None:
        """Let go of what it holds; children run on."""
        held = (self.null, self._bell, self._ringer, *self._pid_of)
        self.null = self._bell = self._ringer = -1  # first: a closed number is soon another's
        self._pid_of.clear()
        for descriptor in held:
            if descriptor >= 0:
                os.close(descriptor)
        if self._epoll is not None:
            self._epoll.close()


def _epoll() -> Any:
    """For descriptors of processes; None where the system has none."""
    if not hasattr(os, "pidfd_open") or not hasattr(select, "epoll"):
        return None
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return None
    return select.epoll()


def _signal_group(pid: int, number: int) -> bool:
    """Send a signal to a process group; False where it is gone."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
