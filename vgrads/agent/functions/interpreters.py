"""The interpreters of an agent that run functions: one for each processor in use, which stay.

All interpreters of an environment take calls from one socket, so none waits behind a long one; an
interpreter that dies costs only the call that it was running.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import socket
from typing import TYPE_CHECKING, Any

from ..launcher import make_account_folder
from ..processes import MARK
from .packing import CURRENT, LONGEST

if TYPE_CHECKING:
    from ..attempts import AgentTask
    from ..marks import Marks
    from ..settings import Environment
    from ..spawner import Spawner
    from ..streams import Streams

_LOW = 10  # descriptors above those that a program expects
_AHEAD_S, _MOST_AHEAD = 0.02, 100  # work queued beyond the running calls, so that none waits for us
_WEIGHT = 0.1
_LOST_S = 1.0


class Interpreter:
    """One interpreter process; ``key``: in place of a task's, for the mark of its processes."""

    def __init__(
        self, pool: InterpreterPool, key: tuple[int, int, int], streams: list[int]
    ) -> None:
        self.pool, self.key, self.streams = pool, key, streams
        self.pid, self.worked = 0, False
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here.setblocking(False)
        self.replies, self._there = here, there
        self._shared = os.memfd_create("vgrads-call")
        os.ftruncate(self._shared, CURRENT.size)
        self._current = mmap.mmap(self._shared, CURRENT.size)

    @property
    def current(self) -> tuple[int, float]:
        """Return the number of the call that it runs (0: none), and since when."""
        number, begun_s = CURRENT.unpack_from(self._current)
        return int(number), float(begun_s)

    def descriptors(self, queue: socket.socket) -> list[int]:
        """Return the descriptors of its program, numbered above those that it expects."""
        numbers = (queue.fileno(), self._there.fileno(), self._shared)
        return [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _LOW) for number in numbers]

    def started(self, pid: int) -> None:
        """Record its process."""
        self.pid = pid
        self._there.close()
        os.close(self._shared)

    def read(self) -> list[list[Any]]:
        """Return the reports that have arrived. Raise ValueError for a message that is none."""
        reports: list[list[Any]] = []
        while True:
            try:
                message = self.replies.recv(LONGEST)
            except OSError:
                message = b""
            if not message:
                return reports
            reports.append(_check_message(message))

    def close(self) -> None:
        """Release its descriptors, except those of its streams."""
        self.replies.close()
        self._current.close()


def _check_message(message: bytes) -> list[Any]:
    try:
        report: list[Any] = json.loads(message)
        kinds = [type(item) for item in report]
    except (ValueError, TypeError, RecursionError):
        raise ValueError("not a report") from None
    if kinds[:2] != [int, int] or kinds[5:] != [str, str, str, bool]:
        raise ValueError("not a report")
    if not all(type(item) in (int, float) and item >= 0 for item in report[2:5]):
        raise ValueError("not a report")
    return report


class InterpreterPool:
    """The interpreters of one environment, and the queue of their calls."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._writer, self.queue = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._writer.setblocking(False)
        self.interpreters: list[Interpreter] = []
        self.calls: dict[int, AgentTask] = {}
        self.places = 0  # calls that may run at once now: processors were taken for them
        self.typical_s = 1.0
        self.suspect, self._lost_s = False, 0.0
        self.used_s = 0.0

    @property
    def ahead(self) -> int:
        """Return how many calls may be queued beyond those that run."""
        return min(_MOST_AHEAD, int(_AHEAD_S * self.places / max(self.typical_s, 1e-5)))

    def put(self, number: int, task: AgentTask, message: bytes) -> bool:
        """Queue a call; return False where the queue is full."""
        try:
            self._writer.send(message)
        except (BlockingIOError, InterruptedError):
            return False
        self.calls[number] = task
        return True

    def take_back(self) -> dict[int, bytes]:
        """Take all calls that no interpreter has begun out of the queue: number → message."""
        messages: dict[int, bytes] = {}
        while True:
            try:
                message = self.queue.recv(LONGEST, socket.MSG_DONTWAIT)
            except OSError:
                return messages
            if not message:
                return messages
            messages[json.loads(message)[0]] = message

    def withdraw(self, number: int = 0) -> int:
        """Take a call out of the queue, by default the first; return its number, 0 where it is not
        queued."""
        queued = self.take_back()
        number = number or next(iter(queued), 0)
        for other, message in queued.items():
            if other != number:
                self._writer.send(message)
        return number if number in queued else 0

    def ran(self, seconds: float) -> None:
        """Learn the run time of a call."""
        self.typical_s += _WEIGHT * (seconds - self.typical_s)

    def runs(self, number: int) -> Interpreter | None:
        """Return the interpreter that runs a call."""
        return next((one for one in self.interpreters if one.current[0] == number), None)

    def lost(self, now_s: float) -> list[int]:
        """Return calls that are neither queued nor run: their interpreter died as it took them."""
        if not self.suspect:
            return []
        queued = self.take_back()
        for message in queued.values():
            self._writer.send(message)
        running = {one.current[0] for one in self.interpreters}
        missing = [n for n in self.calls if n not in queued and n not in running]
        if not missing:
            self.suspect, self._lost_s = False, 0.0
        elif not self._lost_s:
            self._lost_s = now_s
        return missing if missing and now_s - self._lost_s > _LOST_S else []

    def close(self) -> None:
        """Close the queue: its interpreters end."""
        self._writer.close()
        self.queue.close()


class InterpreterStarter:
    """Starts interpreters. ``blobs``: folder of the programs, by digest."""

    def __init__(self, spawner: Spawner, marks: Marks, streams: Streams, blobs: str) -> None:
        self._spawner, self._marks, self._streams, self._blobs = spawner, marks, streams, blobs
        self._count = 0

    def start(self, pool: InterpreterPool) -> Interpreter:
        """Start an interpreter of an environment. Raise OSError where that fails."""
        self._count += 1
        environment, folder = pool.environment, ""
        if environment.account:
            here = os.path.join(self._streams.folder, "here")  # noqa: PTH118
            folder = make_account_folder(here, environment.account)
        streams = self._streams.take(environment.account)
        interpreter = Interpreter(pool, (-1, 0, self._count), streams)
        descriptors = interpreter.descriptors(pool.queue)
        mark = self._marks.of(interpreter.key)
        program = os.path.join(self._blobs, environment.program)  # noqa: PTH118
        try:
            pid = self._spawner.spawn(
                interpreter,
                f"{environment.command} {program} 3 4 5",
                {**environment.variables, MARK.encode(): mark.encode()},
                [*streams, *descriptors],
                folder,
                environment.account,
            )
        except BaseException:
            interpreter.close()
            self._streams.give_back(streams)
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        interpreter.started(pid)
        return interpreter
