"""Tasks as processes, all waited for together.

Shipped to nodes as it is: the standard library only, Python 3.8 or newer. Each child leads a
session of its own. Exits of all children are reported through one epoll over their descriptors
(pidfd_open(2), Linux 5.3), or, without descriptors, by a check of each known child after SIGCHLD or
every ``LOOK_S``; never of any child, for others of this process may not be ours.

A start stops its thread until the child has got a processor. While starts take long, because the
machine is busy, :class:`ParallelStarts` makes several at once in threads of its own.
"""

from __future__ import annotations

import os
import queue
import select
import signal
import threading
import time
from collections import deque
from contextlib import suppress
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Generic,
    Hashable,
    Mapping,
    NamedTuple,
    Sequence,
    TypeVar,
)

from .descriptors import descriptor_limit, has_room
from .launcher import Launcher, make_account_folder

if TYPE_CHECKING:
    from .attempts import AgentTask

Token = TypeVar("Token")

LOOK_S = 0.02
"""Interval of checks of the children where no event reports their exits, in seconds."""
_FEW = 128
"""Upper bound of the descriptors that this process uses for anything but tasks."""


class ExitedChild(NamedTuple):
    """A terminated child: its token, process number, wait status and resource usage (getrusage(2)).

    ``lingering``: other processes of its group were killed and are not gone yet.
    ``usage.ru_maxrss`` (KiB) is never below this process's memory when it started the child, and
    then only a bound.
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

    def __init__(self, descriptors: bool = True, native: bool = True) -> None:
        """``descriptors``: wait by process descriptors, ``native``: call the C library, where the
        system allows it."""
        self._lock = threading.Lock()
        self._children: dict[int, Hashable] = {}  # process number → token
        self._pid_of: dict[int, int] = {}  # descriptor → process number
        self._starting = 0
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._launcher = Launcher(native)
        self.is_parallel = self._launcher.is_parallel
        """Threads can start children at the same time."""
        self._epoll = _make_epoll() if descriptors else None
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
        with self._lock:
            self._starting += 1
        try:
            pid = self._launcher.begin(command, environment, (self.null, *output), folder, account)
            self.watch(pid, token)
        finally:
            with self._lock:
                self._starting -= 1
        return pid

    def children(self) -> dict[int, Any] | None:
        """Return process number → token of all children; None while one is being started."""
        with self._lock:
            return None if self._starting else dict(self._children)

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


_SLOW_S, _FAST_S = 0.0015, 0.0007
"""Means of the last starts beyond which they are made by threads, and again by the caller."""
_WEIGHT = 0.1
_MOST_THREADS = 8


class ParallelStarts(Generic[Token]):
    """Starts children for one loop: at once while that is quick, else in threads, so that the loop
    and other starts continue. All methods but :meth:`_run` are for the loop."""

    def __init__(
        self,
        threads: int,
        start: Callable[[Token], None],
        failed: Callable[[Token, Exception], None],
    ) -> None:
        """``threads``: how many starts at the same time help; ``start``: starts the child of a
        token; ``failed``: called where it raised an error, in any thread."""
        self._start, self._failed = start, failed
        self._most = min(threads, _MOST_THREADS) if threads > 1 else 0
        self._tokens: queue.SimpleQueue[Token] = queue.SimpleQueue()
        self._threads = 0
        self._mean_s, self._by_threads = 0.0, False

    def add(self, token: Token) -> None:
        """Start the child of a token, now or soon."""
        if not self._by_threads:
            self._make(token)
            self._by_threads = self._most > 0 and self._mean_s > _SLOW_S
            return
        self._by_threads = self._mean_s > _FAST_S
        if self._threads < self._most:
            try:
                threading.Thread(target=self._run, daemon=True).start()
            except RuntimeError:  # the node allows no more threads now
                if not self._threads:
                    self._make(token)
                    return
            else:
                self._threads += 1
        self._tokens.put(token)

    def _run(self) -> None:
        while True:
            self._make(self._tokens.get())

    def _make(self, token: Token) -> None:
        begun_s = time.monotonic()
        try:
            self._start(token)
        except Exception as error:
            self._failed(token, error)
        self._mean_s += _WEIGHT * (time.monotonic() - begun_s - self._mean_s)


class TaskStarts:
    """Starts the processes of tasks, at once or in threads. ``failed``: tasks that could not be
    started, and the errors."""

    def __init__(
        self,
        spawner: Spawner,
        scratch: str,
        procs: int,
        mark_of: Callable[[tuple[int, int, int]], str],
    ) -> None:
        """``scratch``: working directory of tasks without a folder; ``mark_of``: the mark of a
        task."""
        self._spawner, self._scratch, self._mark_of = spawner, scratch, mark_of
        self.failed: deque[tuple[AgentTask, Exception]] = deque()
        self.parallel: ParallelStarts[AgentTask] = ParallelStarts(
            procs if spawner.is_parallel else 0, self._start, self._record_failure
        )

    def add(self, task: AgentTask) -> None:
        """Start a task, now or soon in another thread."""
        self.parallel.add(task)

    def take_failed(self) -> list[tuple[AgentTask, Exception]]:
        """Return the tasks that could not be started since the last call."""
        return [self.failed.popleft() for _ in range(len(self.failed))]

    def _start(self, task: AgentTask) -> None:
        """Start the process of a task, in any thread."""
        bag, key = task.bag, task.key if task.of_a_bag else None
        environment = bag.environment_for(self._mark_of(task.key), key, task.folder)
        home = make_account_folder(self._scratch, bag.account) if bag.account else ""
        folder = task.folder or home
        changes = bool(folder) and not self._spawner.is_parallel
        there = "" if changes else folder
        try:
            if changes:  # only this thread starts tasks: changing there costs no shell
                os.chdir(folder)
            task.pid = self._spawner.spawn(
                task, task.command, environment, task.streams, there, bag.account
            )
        finally:
            if changes:
                os.makedirs(self._scratch, exist_ok=True)  # noqa: PTH103 it may have been removed
                os.chdir(self._scratch)
        if task.signal:  # requested meanwhile
            self._spawner.signal(task.pid, task.signal)

    def _record_failure(self, task: AgentTask, error: Exception) -> None:
        self.failed.append((task, error))
        self._spawner.wake()


def _make_epoll() -> Any:
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
