"""The tasks that a host holds: which wait, which run, how they are ended, what they printed.

Shipped to hosts: the standard library only, Python 3.8 or newer. No thread: one loop calls it.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import deque
from typing import Any, Callable, Collection, NamedTuple, Tuple

from .bags import Bag
from .descriptors import explain_limit
from .environment import refusal
from .processes import MARK, Marks, memory_mib
from .spawner import Ended, Spawner
from .streams import Streams, cut, take_tail

Key = Tuple[int, int, int]
"""Bag, task, attempt."""
GRACE_S = 2.0
"""Between asking a task to end and killing it."""
_LOOK_S = 0.2  # between looks at the memory of tasks
_LONG_S = 0.5  # a task of this length is worth a look through all processes
_DESCRIPTORS = 3  # that a task takes: its two files, and its process


class Task:
    """One attempt of a task on this host, from its coming to its end."""

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
        "outputs",
        "pid",
        "ready_s",
        "streams",
        "why",
    )

    def __init__(self, given: list[Any], bag: Bag, now_s: float) -> None:
        self.key: Key = (given[0], given[1], given[2])
        self.command: str = given[3]
        self.inputs: dict[str, str] = given[4] if len(given) > 4 else {}
        self.outputs: list[str] = given[5] if len(given) > 5 else []
        self.bag, self.came_s, self.ready_s = bag, now_s, now_s
        self.began_s = self.fetched_s = 0.0
        self.coming_s = float("inf")  # when the first of its missing inputs began to come
        self.kill_s = 0.0  # when it is killed, if it has not ended; 0: never
        self.pid, self.folder, self.why = 0, "", ""
        self.streams: list[int] = []  # descriptors for what it prints and complains of
        self.missing: set[str] = set()

    @property
    def has_files(self) -> bool:
        """True where it runs in a folder of its own."""
        return bool(self.inputs or self.outputs)


class End(NamedTuple):
    """How an attempt ended: exit code, −N for signal N, None where the host could not run it."""

    task: Task
    code: int | None
    ran_s: float
    cpu_s: float
    peak_mib: float
    out: str
    err: str

    def told(self, sent_s: float = 0.0) -> list[Any]:
        """As the manager is told of it; ``sent_s``: how long its outputs took, in seconds."""
        task = self.task
        waited_s = max(0.0, (task.began_s or task.ready_s) - task.came_s - task.fetched_s)
        times = [round(one, 4) for one in (waited_s, task.fetched_s, self.ran_s, sent_s)]
        used = [round(self.cpu_s, 4), round(self.peak_mib, 1)]
        return [*task.key, self.code, times, *used, self.out, self.err]


def could_not_run(task: Task, why: str) -> End:
    """The end of an attempt that cannot be begun here."""
    return End(task, None, 0.0, 0.0, 0.0, "", why)


class Tasks:
    """Begins tasks in the order in which they came, as processors are free."""

    def __init__(
        self,
        procs: int,
        scratch: str,
        mark: str,
        spawner: Spawner,
        sweep: Callable[[], None],
    ) -> None:
        """``scratch``: an empty folder in which all tasks stand that declare no files; ``sweep``:
        ends what dead agents of this machine have left."""
        self.procs, self.free, self._sweep = procs, procs, sweep
        self.waiting: deque[Task] = deque()
        self.running: dict[Key, Task] = {}
        self._spawner, self._scratch, self._marks = spawner, scratch, Marks(mark)
        self._streams = Streams(os.path.dirname(scratch))  # noqa: PTH120
        self._watched: set[Key] = set()
        self._looked_s = 0.0
        os.chdir(scratch)

    def begin(self, now_s: float) -> list[End]:
        """Begin what there is room for; the ends of those that cannot be begun here."""
        failed = []
        while self.waiting:
            task = self.waiting[0]
            if task.bag.procs > self.procs:
                why = f"needs {task.bag.procs} processors, the host has {self.procs}"
                failed.append(could_not_run(self.waiting.popleft(), why))
                continue
            if task.bag.procs > self.free or not self._has_room():
                break
            self.waiting.popleft()
            if task.key[2] > 1:  # an earlier attempt may have been a dead agent's of this machine
                self._sweep()
            try:
                self._spawn(task, now_s)
            except (OSError, ValueError) as error:  # ValueError: a zero byte in the command
                why = str(explain_limit(error) if isinstance(error, OSError) else error)
                failed.append(could_not_run(task, why))
        return failed

    def _has_room(self) -> bool:
        """True where there are descriptors for a task; others that run give theirs back."""
        return not self.running or self._spawner.has_room(
            1 if self._streams.has_free else _DESCRIPTORS
        )

    def _spawn(self, task: Task, now_s: float) -> None:
        environment = dict(task.bag.environment)
        environment[b"VGRADS_TASK"] = b"%d" % task.key[1]
        environment[b"VGRADS_ATTEMPT"] = b"%d" % task.key[2]
        environment[MARK.encode()] = self._marks.of(task.key)
        if task.folder:
            environment[b"PWD"] = os.fsencode(task.folder)
        streams = self._streams.take()
        try:
            if task.folder:  # this thread alone begins tasks: standing there costs no shell
                os.chdir(task.folder)
            task.pid = self._spawner.spawn(task, task.command, environment, streams)
        except BaseException:
            self._streams.give_back(streams)
            raise
        finally:
            if task.folder:
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

    def reap(self, now_s: float) -> list[tuple[Task, Ended]]:
        """Tasks that have ended; their processors are free."""
        over = []
        for ended in self._spawner.reap():
            task: Task = ended.token
            del self.running[task.key]
            self._watched.discard(task.key)
            self.free += task.bag.procs
            if ended.lingering or now_s - task.began_s > _LONG_S:
                self._marks.suspect(task.key)
            over.append((task, ended))
        return over

    def end_of(self, task: Task, ended: Ended, now_s: float) -> End:
        """What became of a task that was reaped, with the tails of what it printed."""
        code: int | None = ended.code
        texts = [take_tail(one, task.bag.output_bytes) for one in task.streams]
        if self._marks.is_suspected(task.key):
            self._streams.close(task.streams)
        else:
            self._streams.give_back(task.streams)
        if task.why:
            code, why = _judged(task.why)
            texts[1] = f"{texts[1].rstrip()}\n{why}".lstrip() if why else texts[1]
        refused = (*task.bag.refused, *(task.bag.withheld if code else ()))
        if refused:
            texts[1] = f"{refusal(refused)}\n{texts[1]}"
        used = ended.usage
        return End(
            task,
            code,
            now_s - task.began_s,
            used.ru_utime + used.ru_stime,
            used.ru_maxrss / 1024.0,
            texts[0],
            texts[1],
        )

    def end(self, key: Key, why: str, hard: bool = False) -> None:
        """End a running task, for this reason: at first by SIGTERM, unless ``hard``."""
        task = self.running.get(key)
        if task is None or task.why:
            return
        task.why = why
        self._spawner.signal(task.pid, signal.SIGKILL if hard else signal.SIGTERM)
        task.kill_s = 0.0 if hard else time.monotonic() + GRACE_S
        self._watched.add(key)

    def take_back(self, keys: Collection[Key]) -> list[Key]:
        """Give up those of these that have not begun, and their folders; which they were."""
        taken = [task for task in self.waiting if task.key in keys]
        if taken:
            self.waiting = deque(task for task in self.waiting if task.key not in keys)
        for task in taken:
            if task.folder:
                shutil.rmtree(task.folder, ignore_errors=True)
        return [task.key for task in taken]

    def next_look_s(self, now_s: float) -> float:
        """How long until :meth:`look` has something to do, in seconds."""
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
        """Hold tasks to their limits, and end what has outlived its task."""
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
        for pid, used in memory_mib(stated).items():
            most = self.running[stated[pid]].bag.memory_mib
            if used > most:
                why = f"out of memory: {used:.0f} MiB in use, {most:.0f} MiB are stated"
                self.end(stated[pid], why, hard=True)

    def kill_all(self, patience_s: float) -> None:
        """Nothing of any task runs when this returns, if that can be had in this time (seconds)."""
        end_s = time.monotonic() + patience_s
        for task in self.running.values():
            self._spawner.signal(task.pid, signal.SIGKILL)
        while self.running and time.monotonic() < end_s:
            for ended in self._spawner.reap(0.05):
                self.running.pop(ended.token.key)
        self._marks.kill_all(end_s)


def _judged(why: str) -> tuple[int | None, str]:
    """The exit code of a task that the agent ended, and what is told of it."""
    if why == "cancel":
        return -signal.SIGTERM, ""
    if why == "limit":
        return -signal.SIGKILL, "time limit"
    if why.startswith("out of memory"):
        return -signal.SIGKILL, why
    return None, why  # the host's doing, not the task's
