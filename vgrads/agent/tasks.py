"""The tasks of an agent: waiting and running tasks, their limits, their end, their output.

Shipped to nodes: the standard library only, Python 3.8 or newer. No thread: one loop calls it.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import deque
from typing import Any, Callable, Collection, Iterable

from .attempts import AgentTask, AttemptOutcome, Key, could_not_run
from .descriptors import explain_limit
from .environment import refusal
from .functions.calls import FunctionCalls
from .limits import TaskLimits
from .marks import Marks
from .spawner import ExitedChild, Spawner, TaskStarts
from .streams import Streams, cut, read_lines, take_tail

_LONG_S = 0.5  # tasks this long justify a scan of all processes
_DESCRIPTORS = 3  # per task: its two files, and its process
_MOST_PRINTED, _MOST_REPORTED = 16 << 10, 128 << 10  # bytes of a stream, of all, per report


def printed_lines(tasks: Iterable[AgentTask]) -> list[list[Any]]:
    """Return the lines that running tasks printed since the last call, as [bag, task, attempt,
    output, error]; of a task that prints faster than is reported, later."""
    result, left = [], _MOST_REPORTED
    for task in tasks:
        if not task.bag.live:
            continue
        texts = []
        for n, file in enumerate(task.streams):
            text, task.read[n] = read_lines(file, task.read[n], min(left, _MOST_PRINTED))
            texts.append(text)
            left -= len(text)
        if any(texts):
            result.append([*task.key, *texts])
    return result


class TaskQueue:
    """Starts tasks in the order of their arrival, as processors become free."""

    def __init__(
        self,
        procs: int,
        scratch: str,
        inputs: str,
        mark: str,
        spawner: Spawner,
        sweep: Callable[[], None],
    ) -> None:
        """``scratch``: an empty folder, working directory of all tasks that declare no files;
        ``inputs``: folder of cached inputs; ``sweep``: cleans up after dead agents of this
        machine."""
        self.procs, self.free, self._sweep = procs, procs, sweep
        self.waiting: deque[AgentTask] = deque()
        self.running: dict[Key, AgentTask] = {}
        self._spawner, self._scratch, self._marks = spawner, scratch, Marks(mark)
        self._streams = Streams(os.path.dirname(scratch))  # noqa: PTH120
        self.calls = FunctionCalls(spawner, self._marks, self._streams, inputs)
        self.starts = TaskStarts(spawner, scratch, procs, self._marks.of)
        self._limits = TaskLimits(self.running, spawner, self._marks, self.calls)
        self.lingering: dict[Key, AttemptOutcome] = {}
        """Ended tasks whose processes may still run."""
        os.chdir(scratch)

    def begin(self, now_s: float) -> list[AttemptOutcome]:
        """Start tasks while there is room; return the results of those that cannot be started
        here."""
        failed = []
        while self.waiting:
            task = self.waiting[0]
            if task.bag.procs > self.procs:
                why = f"needs {task.bag.procs} processors, the agent has {self.procs}"
                failed.append(could_not_run(self.waiting.popleft(), why))
                continue
            earlier = self._find_earlier_attempt(task) if task.key[2] > 1 else None
            if earlier is not None:  # a task does not run twice at once: that one counts no more
                self.end(earlier, "cancel")
                break
            if not (self._call if task.bag.interpreter else self._spawn)(task, now_s):
                break
            self.waiting.popleft()
        return failed + [self._forget(*pair) for pair in self.starts.take_failed()]

    def _find_earlier_attempt(self, task: AgentTask) -> Key | None:
        """Return the key of an earlier attempt of a task, if processes of it may still run."""
        present = (*self.running, *self.lingering)
        return next((key for key in present if key[:2] == task.key[:2] and key != task.key), None)

    def _forget(self, task: AgentTask, error: Exception) -> AttemptOutcome:
        """Return the result of a task that could not be started; its processors are free."""
        self._release(task)
        if task.streams:
            self._streams.give_back(task.streams)
        why = explain_limit(error) if isinstance(error, OSError) else error
        return could_not_run(task, str(why))

    def _has_room(self) -> bool:
        """Return True where there are descriptors for a task; running tasks return theirs later."""
        required = 1 if self._streams.has_free else _DESCRIPTORS
        return not self.running or self._spawner.has_room(required)

    def _spawn(self, task: AgentTask, now_s: float) -> bool:
        """Start a task, now or soon in another thread; return False where there is no room."""
        if task.bag.procs > self.free or not self._has_room():
            return False
        if task.key[2] > 1:  # an earlier attempt may be from a dead agent here
            self._sweep()
        self._record_start(task, now_s, task.bag.procs)
        try:
            task.streams = self._streams.take(task.bag.account)
        except OSError as error:
            self.starts.failed.append((task, error))
        else:
            self.starts.add(task)
        return True

    def _call(self, task: AgentTask, now_s: float) -> bool:
        """Queue the call of a function; return False where there is no room."""
        try:
            takes = self.calls.begin(task, self.free, now_s)
        except (OSError, ValueError) as error:  # no interpreter can be started; no call
            self._record_start(task, now_s, task.bag.procs)
            self.starts.failed.append((task, error))
            return True
        if takes is not None:
            self._record_start(task, now_s, takes)
        return takes is not None

    def _record_start(self, task: AgentTask, now_s: float, procs: int) -> None:
        self.free -= procs
        self.running[task.key] = task
        self._limits.begin(task, now_s)

    def _release(self, task: AgentTask, procs: int = -1) -> None:
        """Record that a task runs no more; ``procs``: how many processors that frees, by default
        its own."""
        del self.running[task.key]
        self._limits.forget(task.key)
        self.free += task.bag.procs if procs < 0 else procs

    def reap(self, now_s: float) -> list[tuple[AgentTask, ExitedChild]]:
        """Return the tasks that have ended; their processors are free."""
        over = []
        for ended in self._spawner.reap():
            task = ended.token
            self._marks.orphans.note_end(ended.pid)
            if not isinstance(task, AgentTask):
                self._interpreter_over(ended)
                continue
            self._release(task)
            if ended.lingering or task.bag.container or now_s - task.began_s > _LONG_S:
                self._marks.suspect(task.key)
                if ended.code:
                    self._marks.end_container_of(task.key, task.bag.container)
            over.append((task, ended))
        return over

    def _interpreter_over(self, ended: ExitedChild) -> None:
        """Handle the exit of an interpreter: its call has failed, when nothing of it runs."""
        call = self.calls.exited(ended)
        self._marks.suspect(ended.token.key)
        if call is not None:
            self.lingering[call.task.key] = self._outcome_of_call(call)

    def calls_over(self) -> list[AttemptOutcome]:
        """Return the results of calls that have ended."""
        return [self._outcome_of_call(call) for call in self.calls.over()]

    def _outcome_of_call(self, call: AttemptOutcome) -> AttemptOutcome:
        self._release(call.task, self.calls.freed(call.task))
        return _judge_call(call)

    def ends_of(
        self, over: Iterable[tuple[AgentTask, ExitedChild]], now_s: float
    ) -> list[AttemptOutcome]:
        """Return the results of reaped tasks, when nothing of them runs any more."""
        for task, ended in over:
            self.lingering[task.key] = self._end_of(task, ended, now_s)
        if self.lingering:
            self._marks.look(now_s, self._spawner)
        return [self.lingering.pop(key) for key in self._gone()]

    def _gone(self) -> list[Key]:
        """Return the ended tasks of which no process may still run."""
        suspected, left = self._marks.is_suspected, self.lingering.items()
        return [key for key, end in left if not suspected(end.task.process_key)]

    def _end_of(self, task: AgentTask, ended: ExitedChild, now_s: float) -> AttemptOutcome:
        """Return the result of a reaped task, with the tails of its output."""
        texts = [take_tail(number, task.bag.output_bytes) for number in task.streams]
        if self._marks.is_suspected(task.key):
            self._streams.close(task.streams)
        else:
            self._streams.give_back(task.streams)
        return _make_outcome(task, ended, now_s, texts)

    def end(self, key: Key, why: str, hard: bool = False) -> None:
        """End a running task for this reason: first by SIGTERM, unless ``hard``."""
        task = self.running.get(key)
        if task is None or task.why:
            return
        if task.bag.interpreter is not None and self.calls.take_back(task):
            task.why = why
            self.lingering[key] = self._outcome_of_call(could_not_run(task, ""))
            return
        self._limits.end(task, why, hard)

    def take_back(self, keys: Collection[Key]) -> list[Key]:
        """Drop those of these tasks that have not started, and their folders; return them."""
        taken = [task for task in self.waiting if task.key in keys]
        self.waiting = deque(task for task in self.waiting if task.key not in keys)
        for folder in (task.folder for task in taken if task.folder):
            shutil.rmtree(folder, ignore_errors=True)
        return [task.key for task in taken]

    def next_look_s(self, now_s: float) -> float:
        """Return how long until :meth:`look` or :meth:`ends_of` has something to do, in seconds."""
        if self._gone():
            return 0.0  # ended by a request or a look: nothing else tells of it
        left = [self._limits.next_look_s(now_s), self._marks.next_look_s(now_s)]
        left.append((min(self._spawner.look_s or 1.0, 1.0)) if self.running else 60.0)
        return max(0.0, min(left))

    def look(self, now_s: float) -> None:
        """Enforce the limits of tasks, and kill processes that have outlived their task."""
        if self._limits.look(now_s):
            for task in self.running.values():
                for file in task.streams:
                    cut(file, task.bag.output_bytes)
            for call in self.calls.look(now_s):
                self.lingering[call.task.key] = self._outcome_of_call(call)
        self._marks.look(now_s, self._spawner)

    def kill_all(self, patience_s: float) -> None:
        """Kill all tasks; return when none runs or this time (seconds) is over."""
        end_s = time.monotonic() + patience_s
        for task in list(self.running.values()):
            self._limits.signal(task, signal.SIGKILL)
            if task.bag.interpreter is not None:  # it is found by the mark of its interpreter
                self._release(task)
        while self.running and time.monotonic() < end_s:
            for pair in self.starts.take_failed():
                self._forget(*pair)
            for ended in self._spawner.reap(0.05):
                self.running.pop(ended.token.key, None)
        self._marks.kill_all(end_s)


def _make_outcome(
    task: AgentTask, ended: ExitedChild, now_s: float, texts: list[str]
) -> AttemptOutcome:
    code: int | None = ended.code
    if task.why:
        code, why = _judge_code(task.why)
        texts[1] = f"{texts[1].rstrip()}\n{why}".lstrip() if why else texts[1]
    refused = (*task.bag.refused, *(task.bag.withheld if code else ()))
    if refused:
        texts[1] = f"{refusal(refused)}\n{texts[1]}"
    used = ended.usage
    return AttemptOutcome(
        task,
        code,
        now_s - task.began_s,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss / 1024.0,
        texts[0],
        texts[1],
    )


def _judge_call(call: AttemptOutcome) -> AttemptOutcome:
    """Return the result of a call; one that the agent ended has the reason for that."""
    if not call.task.why:
        return call
    code, why = _judge_code(call.task.why)
    return call._replace(code=code, err=f"{call.err.rstrip()}\n{why}".lstrip())


def _judge_code(why: str) -> tuple[int | None, str]:
    """Return the exit code of a task that the agent ended, and the reported message."""
    if why == "cancel":
        return -signal.SIGTERM, ""
    if why == "limit":
        return -signal.SIGKILL, "time limit"
    if why.startswith("out of memory"):
        return -signal.SIGKILL, why
    return None, why  # caused by the node, not by the task
