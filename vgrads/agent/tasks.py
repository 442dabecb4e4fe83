"""The tasks of an agent: waiting and running tasks, their limits, their end, their output.

Shipped to nodes: the standard library only, Python 3.8 or newer. No thread: one loop calls it.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import deque
from typing import Any, Callable, Collection, Iterable, NamedTuple, Tuple

from .bags import BagSettings
from .containers import CONTAINER, container_name
from .descriptors import explain_limit
from .environment import refusal
from .launcher import make_account_folder
from .marks import Marks
from .processes import MARK, marked, memory_of, memory_of_sessions
from .spawner import ExitedChild, Spawner
from .streams import Streams, cut, read_lines, take_tail

Key = Tuple[int, int, int]
"""Bag, task, attempt."""
GRACE_S = 2.0
"""Seconds between SIGTERM and SIGKILL to a task."""
_LOOK_S = 0.2  # between checks of the memory of tasks
_LONG_S = 0.5  # tasks this long justify a scan of all processes
_DESCRIPTORS = 3  # per task: its two files, and its process
_MOST_PRINTED, _MOST_REPORTED = 16 << 10, 128 << 10  # bytes of a stream, of all, per report


class AgentTask:
    """One attempt of a task at this agent, from its arrival to its end."""

    __slots__ = (
        "bag",
        "began_s",
        "came_s",
        "coming_s",
        "command",
        "fetched_s",
        "folder",
        "inputs",
        "key",
        "kill_s",
        "missing",
        "of_a_bag",
        "outputs",
        "pid",
        "read",
        "ready_s",
        "streams",
        "why",
    )

    def __init__(self, values: list[Any], bag: BagSettings, now_s: float) -> None:
        self.key: Key = (values[0], values[1], values[2])
        self.command: str = values[3]
        self.inputs: dict[str, str] = values[4] if len(values) > 4 else {}
        self.outputs: list[str] = values[5] if len(values) > 5 else []
        self.of_a_bag = len(values) <= 6  # else it has settings of its own
        self.bag, self.came_s, self.ready_s = bag, now_s, now_s
        self.began_s = self.fetched_s = 0.0
        self.coming_s = float("inf")  # arrival time of the first byte of its missing inputs
        self.kill_s = 0.0  # when it is killed, if still running; 0: never
        self.pid, self.folder, self.why = 0, "", ""
        self.streams: list[int] = []  # descriptors of its standard output and error
        self.read = [0, 0]  # up to where its output was reported while it runs
        self.missing: set[str] = set()

    @property
    def has_files(self) -> bool:
        """Return True where it runs in its own folder."""
        return bool(self.inputs or self.outputs)


class AttemptOutcome(NamedTuple):
    """Result of an attempt: exit code, −N for signal N, None where the node could not run it."""

    task: AgentTask
    code: int | None
    ran_s: float
    cpu_s: float
    peak_mib: float
    out: str
    err: str

    def to_wire(self, sent_s: float = 0.0) -> list[Any]:
        """Encode the result for the manager; ``sent_s``: how long the transfer of its outputs took,
        in seconds."""
        task = self.task
        waited_s = max(0.0, (task.began_s or task.ready_s) - task.came_s - task.fetched_s)
        times = [round(seconds, 4) for seconds in (waited_s, task.fetched_s, self.ran_s, sent_s)]
        used = [round(self.cpu_s, 4), round(self.peak_mib, 1)]
        return [*task.key, self.code, times, *used, self.out, self.err]


def could_not_run(task: AgentTask, why: str) -> AttemptOutcome:
    """Return the result of an attempt that cannot be started here."""
    return AttemptOutcome(task, None, 0.0, 0.0, 0.0, "", why)


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
        mark: str,
        spawner: Spawner,
        sweep: Callable[[], None],
    ) -> None:
        """``scratch``: an empty folder, working directory of all tasks that declare no files;
        ``sweep``: cleans up after dead agents of this machine."""
        self.procs, self.free, self._sweep = procs, procs, sweep
        self.waiting: deque[AgentTask] = deque()
        self.running: dict[Key, AgentTask] = {}
        self._spawner, self._scratch, self._marks = spawner, scratch, Marks(mark)
        self._streams = Streams(os.path.dirname(scratch))  # noqa: PTH120
        self._watched: set[Key] = set()
        self.lingering: dict[Key, AttemptOutcome] = {}
        """Ended tasks whose processes may still run."""
        self._looked_s = 0.0
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
            if task.bag.procs > self.free or not self._has_room():
                break
            self.waiting.popleft()
            if task.key[2] > 1:  # an earlier attempt may be from a dead agent here
                self._sweep()
            try:
                self._spawn(task, now_s)
            except (OSError, ValueError) as error:  # ValueError: a null byte in the command
                why = str(explain_limit(error) if isinstance(error, OSError) else error)
                failed.append(could_not_run(task, why))
        return failed

    def _has_room(self) -> bool:
        """Return True where there are descriptors for a task; running tasks return theirs later."""
        return not self.running or self._spawner.has_room(
            1 if self._streams.has_free else _DESCRIPTORS
        )

    def _spawn(self, task: AgentTask, now_s: float) -> None:
        environment, account = _environment_of(task, self._marks.of(task.key)), task.bag.account
        home = make_account_folder(self._scratch, account) if account else ""
        folder = task.folder or home
        streams = self._streams.take(account)
        try:
            if folder:  # only this thread starts tasks: changing there costs no shell
                os.chdir(folder)
            task.pid = self._spawner.spawn(
                task, task.command, environment, streams, account=account
            )
        except BaseException:
            self._streams.give_back(streams)
            raise
        finally:
            if folder:
                self._stand()
        task.streams, task.began_s = streams, now_s
        if task.bag.limit_s > 0:
            task.kill_s = now_s + task.bag.limit_s
        if task.bag.limit_s > 0 or task.bag.memory_mib > 0:
            self._watched.add(task.key)
        self.free -= task.bag.procs
        self.running[task.key] = task

    def _stand(self) -> None:
        os.makedirs(self._scratch, exist_ok=True)  # noqa: PTH103 somebody may have tidied up
        os.chdir(self._scratch)

    def reap(self, now_s: float) -> list[tuple[AgentTask, ExitedChild]]:
        """Return the tasks that have ended; their processors are free."""
        over = []
        for ended in self._spawner.reap():
            task: AgentTask = ended.token
            del self.running[task.key]
            self._watched.discard(task.key)
            self.free += task.bag.procs
            if ended.lingering or task.bag.container or now_s - task.began_s > _LONG_S:
                self._marks.suspect(task.key)
                if ended.code:
                    self._marks.end_container_of(task.key, task.bag.container)
            over.append((task, ended))
        return over

    def ends_of(
        self, over: Iterable[tuple[AgentTask, ExitedChild]], now_s: float
    ) -> list[AttemptOutcome]:
        """Return the results of reaped tasks, when nothing of them runs any more."""
        for task, ended in over:
            self.lingering[task.key] = self._end_of(task, ended, now_s)
        if self.lingering:
            self._marks.look(now_s)
        gone = [key for key in self.lingering if not self._marks.is_suspected(key)]
        return [self.lingering.pop(key) for key in gone]

    def _end_of(self, task: AgentTask, ended: ExitedChild, now_s: float) -> AttemptOutcome:
        """Return the result of a reaped task, with the tails of its output."""
        texts = [take_tail(number, task.bag.output_bytes) for number in task.streams]
        if self._marks.is_suspected(task.key):
            self._streams.close(task.streams)
        else:
            self._streams.give_back(task.streams)
        return _outcome(task, ended, now_s, texts)

    def end(self, key: Key, why: str, hard: bool = False) -> None:
        """End a running task for this reason: first by SIGTERM, unless ``hard``."""
        task = self.running.get(key)
        if task is None or task.why:
            return
        task.why = why
        self._spawner.signal(task.pid, signal.SIGKILL if hard else signal.SIGTERM)
        task.kill_s = 0.0 if hard else time.monotonic() + GRACE_S
        self._watched.add(key)

    def take_back(self, keys: Collection[Key]) -> list[Key]:
        """Drop those of these tasks that have not started, and their folders; return them."""
        taken = [task for task in self.waiting if task.key in keys]
        if taken:
            self.waiting = deque(task for task in self.waiting if task.key not in keys)
        for task in taken:
            if task.folder:
                shutil.rmtree(task.folder, ignore_errors=True)
        return [task.key for task in taken]

    def next_look_s(self, now_s: float) -> float:
        """Return how long until :meth:`look` has something to do, in seconds."""
        left = [60.0 if not self.running else 1.0]
        for key in self._watched:
            task = self.running[key]
            if task.bag.memory_mib > 0:
                left.append(self._looked_s + _LOOK_S - now_s)
            if task.kill_s:
                left.append(task.kill_s - now_s)
        left.append(self._marks.next_look_s(now_s))
        if self._spawner.look_s and self.running:
            left.append(self._spawner.look_s)
        return max(0.0, min(left))

    def look(self, now_s: float) -> None:
        """Enforce the limits of tasks, and kill processes that have outlived their task."""
        for key in list(self._watched):
            task = self.running[key]
            if task.kill_s and now_s >= task.kill_s:
                task.why = task.why or "limit"
                task.kill_s = now_s + GRACE_S
                self._spawner.signal(task.pid, signal.SIGKILL)
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            self._look_at_memory()
            for task in self.running.values():
                for file in task.streams:
                    cut(file, task.bag.output_bytes)
        self._marks.look(now_s)

    def _look_at_memory(self) -> None:
        stated = {
            self.running[key].pid: key
            for key in self._watched
            if self.running[key].bag.memory_mib > 0
        }
        if not stated:
            return
        by_session = memory_of_sessions()
        for pid, key in stated.items():
            bag, most = self.running[key].bag, self.running[key].bag.memory_mib
            used = by_session.get(pid, 0.0)
            if bag.container:  # its processes are in other sessions
                used = memory_of(marked(self._marks.of(key).__eq__))
            if used > most:
                why = f"out of memory: {used:.0f} MiB in use, {most:.0f} MiB are stated"
                self.end(key, why, hard=True)

    def kill_all(self, patience_s: float) -> None:
        """Kill all tasks; return when none runs or this time (seconds) is over."""
        end_s = time.monotonic() + patience_s
        for task in self.running.values():
            self._spawner.signal(task.pid, signal.SIGKILL)
        while self.running and time.monotonic() < end_s:
            for ended in self._spawner.reap(0.05):
                self.running.pop(ended.token.key)
        self._marks.kill_all(end_s)


def _environment_of(task: AgentTask, mark: str) -> dict[bytes, bytes]:
    environment = dict(task.bag.environment)
    if task.of_a_bag:
        environment[b"VGRADS_TASK"] = b"%d" % task.key[1]
        environment[b"VGRADS_ATTEMPT"] = b"%d" % task.key[2]
    environment[MARK.encode()] = mark.encode()
    if task.bag.container:
        environment[CONTAINER.encode()] = container_name(mark).encode()
    if task.folder:
        environment[b"PWD"] = environment[b"VGRADS_FOLDER"] = os.fsencode(task.folder)
    return environment


def _outcome(task: AgentTask, ended: ExitedChild, now_s: float, texts: list[str]) -> AttemptOutcome:
    code: int | None = ended.code
    if task.why:
        code, why = _judged(task.why)
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


def _judged(why: str) -> tuple[int | None, str]:
    """Return the exit code of a task that the agent ended, and the reported message."""
    if why == "cancel":
        return -signal.SIGTERM, ""
    if why == "limit":
        return -signal.SIGKILL, "time limit"
    if why.startswith("out of memory"):
        return -signal.SIGKILL, why
    return None, why  # caused by the node, not by the task
