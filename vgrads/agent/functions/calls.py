"""The calls of functions at an agent: which run, which are queued, what became of them.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Iterator

from ..attempts import AgentTask, AttemptOutcome, could_not_run
from ..launcher import account_folder
from ..streams import Streams, take_tail
from .interpreters import Interpreter, InterpreterPool, InterpreterStarter
from .packing import LONGEST

if TYPE_CHECKING:
    from ..marks import Marks
    from ..settings import Environment
    from ..spawner import ExitedChild, Spawner

_IDLE_S = 60.0


class FunctionCalls:
    """All interpreters of an agent. Tasks are given and returned as the agent's queue has them."""

    def __init__(self, spawner: Spawner, marks: Marks, streams: Streams, blobs: str) -> None:
        """``blobs``: folder of the files with parts of calls."""
        self._spawner, self._folder, self._blobs = spawner, streams.folder, blobs
        self._starter = InterpreterStarter(spawner, marks, streams, blobs)
        self._pools: dict[str, InterpreterPool] = {}
        self._by_descriptor: dict[int, Interpreter] = {}
        self._numbers: dict[Any, tuple[InterpreterPool, int]] = {}  # key of a task → its call
        self.events = select.epoll()
        """Readable when a call has ended."""
        self._count = 0

    def begin(self, task: AgentTask, free: int, now_s: float) -> int | None:
        """Queue the call of a task; return the processors that it takes, 0 where it is queued
        behind calls that will end soon; None where there is no room. Raise OSError where no
        interpreter can be started, ValueError for a call that is none."""
        assert task.bag.interpreter is not None
        pool = self._pool_of(task.bag.interpreter)
        takes = 0
        if len(pool.calls) >= pool.places:
            if task.bag.procs <= free:
                takes = task.bag.procs
            elif len(pool.calls) >= pool.places + pool.ahead:
                return None
        number = self._count + 1
        if not pool.put(number, task, self._message(pool, number, task)):
            return None
        self._count, pool.used_s = number, now_s
        self._numbers[task.key] = pool, number
        pool.places += 1 if takes else 0
        try:
            if len(pool.interpreters) < pool.places:
                self._start(pool)
        except OSError:
            if not pool.interpreters:
                self._drop(pool, number)
                pool.take_back()
                pool.places -= 1 if takes else 0
                raise
        return takes

    def _pool_of(self, environment: Environment) -> InterpreterPool:
        pool = self._pools.get(environment.key)
        if pool is None:
            pool = self._pools[environment.key] = InterpreterPool(environment)
        return pool

    def _message(self, pool: InterpreterPool, number: int, task: AgentTask) -> bytes:
        words = task.command.split("\t")
        if len(words) < 2:
            raise ValueError("not the call of a function")
        setup, place = pool.environment.setup, self._place(task)
        text = json.dumps([number, words[1], setup, self._blobs, place, task.bag.output_bytes])
        if len(text) > LONGEST:
            raise ValueError(f"the call is longer than {LONGEST >> 10} KiB")
        return text.encode()

    def _place(self, task: AgentTask) -> str:
        """Return the file for a large value of a task."""
        base = self._folder
        if task.bag.account:
            base = account_folder(os.path.join(base, "here"), task.bag.account)  # noqa: PTH118
        return "{}/{}.{}.{}/{}.value".format(base, *task.key, task.key[1])

    def _start(self, pool: InterpreterPool) -> None:
        interpreter = self._starter.start(pool)
        pool.interpreters.append(interpreter)
        self._by_descriptor[interpreter.replies.fileno()] = interpreter
        self.events.register(interpreter.replies, select.EPOLLIN)

    def _forget_connection(self, interpreter: Interpreter) -> None:
        if self._by_descriptor.pop(interpreter.replies.fileno(), None) is not None:
            self.events.unregister(interpreter.replies)

    def over(self) -> list[AttemptOutcome]:
        """Return the calls that have ended since the last time."""
        ended: list[AttemptOutcome] = []
        for descriptor, _ in self.events.poll(0):
            interpreter = self._by_descriptor.get(descriptor)
            if interpreter is not None:
                ended += self._read(interpreter)
        return ended

    def _read(self, interpreter: Interpreter) -> Iterator[AttemptOutcome]:
        try:
            reports = interpreter.read()
        except ValueError:  # a function wrote there: it is killed, and fails
            self._spawner.signal(interpreter.pid, signal.SIGKILL)
            self._forget_connection(interpreter)
            return
        if not reports:
            self._forget_connection(interpreter)  # it is ending: its exit is reported
        for number, code, *used, out, err, value, in_file in reports:
            task = self._drop(interpreter.pool, number)
            if task is not None:
                interpreter.pool.ran(used[0])
                interpreter.worked = True
                if in_file:  # it is sent as an output
                    task.folder, name = os.path.split(self._place(task))
                    task.outputs = [name]
                ran_s, cpu_s, peak_mib = used
                yield AttemptOutcome(task, code, ran_s, cpu_s, peak_mib, out, err, value)

    def _drop(self, pool: InterpreterPool, number: int) -> AgentTask | None:
        task = pool.calls.pop(number, None)
        if task is not None:
            del self._numbers[task.key]
        return task

    def freed(self, task: AgentTask) -> int:
        """Return how many processors are free after the end of a task: none if a queued call takes
        its place."""
        assert task.bag.interpreter is not None
        pool = self._pools[task.bag.interpreter.key]
        if len(pool.calls) >= pool.places:
            return 0
        pool.places -= 1
        return int(task.bag.procs)

    def runs(self, task: AgentTask) -> Interpreter | None:
        """Return the interpreter that runs a task's call; None while it is queued."""
        pool, number = self._numbers.get(task.key) or (None, 0)
        return pool.runs(number) if pool else None

    def take_back(self, task: AgentTask) -> bool:
        """Take a task's call out of the queue; return False where it runs, or has ended."""
        pool, number = self._numbers.get(task.key) or (None, 0)
        if pool is None or not pool.withdraw(number):
            return False
        self._drop(pool, number)
        return True

    def exited(self, child: ExitedChild) -> AttemptOutcome | None:
        """Handle the exit of an interpreter: return what became of its call; others run on."""
        interpreter: Interpreter = child.token
        pool, (number, begun_s) = interpreter.pool, interpreter.current
        ran_s = time.monotonic() - begun_s if number else 0.0
        self._forget_connection(interpreter)
        pool.interpreters.remove(interpreter)
        interpreter.close()
        has_run = bool(number) or interpreter.worked
        if not has_run:
            number = pool.withdraw()
        elif number not in pool.calls:  # it died between two calls, or its function wrote there
            pool.suspect = True
        task = self._drop(pool, number)
        if len(pool.interpreters) < min(pool.places, len(pool.calls)):
            with suppress(OSError):
                self._start(pool)
        call = None
        if task is not None:
            task.process_key = interpreter.key
            out, err = (take_tail(file, task.bag.output_bytes) for file in interpreter.streams)
            call = died_with(task, child, ran_s) if has_run else did_not_start(task, child, err)
            call = call._replace(out=out, err="\n".join(filter(None, (err, call.err))))
        for file in interpreter.streams:
            os.close(file)
        return call

    def look(self, now_s: float) -> list[AttemptOutcome]:
        """Return calls that died with their interpreter unseen; end interpreters that are idle."""
        ended = []
        for key, pool in list(self._pools.items()):
            for number in pool.lost(now_s):
                why = "its interpreter ended as it began"
                if (task := self._drop(pool, number)) is not None:
                    ended.append(could_not_run(task, why))
            if pool.calls:
                pool.used_s = now_s
            elif now_s - pool.used_s > _IDLE_S:
                pool.close()
                del self._pools[key]
        return ended


def died_with(task: AgentTask, child: ExitedChild, ran_s: float) -> AttemptOutcome:
    """Return the end of a call whose process ended."""
    how = f"signal {-child.code}" if child.code < 0 else f"exit code {child.code}"
    text = f"the process of the function ended: {how}"
    used = child.usage
    cpu_s, peak_mib = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024.0
    return AttemptOutcome(task, child.code or 1, ran_s, cpu_s, peak_mib, "", text)


def did_not_start(task: AgentTask, child: ExitedChild, err: str) -> AttemptOutcome:
    """Return the end of a call for which no interpreter could be started."""
    reason = err.strip().rpartition("\n")[2] or f"exit code {child.code}"
    why = f"the interpreter of its functions did not start: {reason}"
    return could_not_run(task, why)
