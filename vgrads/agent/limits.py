"""The limits of an agent's running tasks: they end on request, in time, and within their memory.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from .attempts import AgentTask, Key
from .processes import marked, memory_of, memory_of_sessions, of_session

if TYPE_CHECKING:
    from .functions.calls import FunctionCalls
    from .marks import Marks
    from .spawner import Spawner

GRACE_S = 2.0
"""Seconds between SIGTERM and SIGKILL to a task."""
_LOOK_S = 0.2  # between checks of the memory of tasks


class TaskLimits:
    """Ends running tasks: on request, and beyond their time limit or their memory."""

    def __init__(
        self, running: dict[Key, AgentTask], spawner: Spawner, marks: Marks, calls: FunctionCalls
    ) -> None:
        self._running, self._spawner, self._marks, self._calls = running, spawner, marks, calls
        self._watched: set[Key] = set()
        self._looked_s = 0.0

    def begin(self, task: AgentTask, now_s: float) -> None:
        """Watch a task from its start on."""
        task.began_s = now_s
        if task.bag.limit_s > 0:
            task.kill_s = now_s + task.bag.limit_s
        if task.bag.limit_s > 0 or task.bag.memory_mib > 0:
            self._watched.add(task.key)

    def forget(self, key: Key) -> None:
        """Watch a task no more."""
        self._watched.discard(key)

    def end(self, task: AgentTask, why: str, hard: bool) -> None:
        """End a task for this reason: first by SIGTERM, unless ``hard``."""
        task.why = why
        self.signal(task, signal.SIGKILL if hard else signal.SIGTERM)
        task.kill_s = 0.0 if hard else time.monotonic() + GRACE_S
        self._watched.add(task.key)

    def signal(self, task: AgentTask, number: int) -> None:
        """Send a signal to a running task, or as soon as it has started; the interpreter of a call
        ends with it."""
        task.signal = number
        if pid := self._pid_of(task):
            self._spawner.signal(pid, number)

    def _pid_of(self, task: AgentTask) -> int:
        """Return the process of a task; 0 where none runs it yet."""
        if task.bag.interpreter is None:
            return task.pid
        interpreter = self._calls.runs(task)
        return interpreter.pid if interpreter else 0

    def next_look_s(self, now_s: float) -> float:
        """Return how long until :meth:`look` has something to do, in seconds."""
        left = [60.0]
        for task in map(self._running.__getitem__, self._watched):
            if task.bag.memory_mib > 0:
                left.append(self._looked_s + _LOOK_S - now_s)
            if task.kill_s:
                left.append(task.kill_s - now_s)
        return min(left)

    def look(self, now_s: float) -> bool:
        """Enforce the limits; return True where memory was looked at, which is not each time."""
        for task in [self._running[key] for key in self._watched]:
            if task.kill_s and now_s >= task.kill_s and not self._began_late(task, now_s):
                task.why = task.why or "limit"
                task.kill_s = now_s + GRACE_S
                self.signal(task, signal.SIGKILL)
        if now_s - self._looked_s < _LOOK_S:
            return False
        self._looked_s = now_s
        self._look_at_memory()
        return True

    def _began_late(self, task: AgentTask, now_s: float) -> bool:
        """Return True where a call began later than it was queued: its limit counts from there."""
        if task.bag.interpreter is None or task.why:
            return False
        interpreter = self._calls.runs(task)
        task.kill_s = (interpreter.current[1] if interpreter else now_s) + task.bag.limit_s
        return now_s < task.kill_s

    def _look_at_memory(self) -> None:
        limited = [self._running[key] for key in self._watched]
        limited = [task for task in limited if task.bag.memory_mib > 0]
        by_session = memory_of_sessions() if limited else {}
        for task in limited:
            most, leader = task.bag.memory_mib, self._pid_of(task)
            # 0 is also the session of whatever was begun from outside of a container: tasks that
            # are still being started have no number
            used = by_session.get(leader, 0.0) if leader else 0.0
            if task.bag.container:  # its processes are in other sessions
                used = memory_of(marked(self._marks.of(task.key).__eq__))
            elif used > most:  # perhaps only since a process and its fork share their pages
                used = min(used, memory_of(of_session(leader)))
            if used > most and not task.why:
                why = f"out of memory: {used:.0f} MiB in use, {most:.0f} MiB are stated"
                self.end(task, why, hard=True)
