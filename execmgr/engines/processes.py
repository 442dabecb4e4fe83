"""Tasks as processes of this machine (:mod:`vgrads.execmgr.tasks.folder`).

The number of threads is small and fixed: some start tasks, so that no signal arrives between a
start and its record (Python delivers signals to the main thread); one receives their ends and polls
watched tasks; one kills processes that ended tasks leave behind
(:mod:`vgrads.execmgr.engines.cleaner`).
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

from vgrads.agent.descriptors import NO_DESCRIPTORS, explain_limit
from vgrads.agent.processes import kill_marked, memory_of_sessions
from vgrads.agent.spawner import Spawner
from vgrads.execmgr.engines.cleaner import Cleaner
from vgrads.execmgr.engines.completion_queue import Completions
from vgrads.execmgr.engines.folder import FolderEngine
from vgrads.execmgr.engines.live_replicas import LiveReplica, LiveReplicas
from vgrads.execmgr.tasks.folder import TaskFolder
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.execmgr.tasks.process import (
    DESCRIPTORS,
    IDLE_S,
    LOOK_S,
    AttemptVerdict,
    find_process,
    has_ended,
)
from vgrads.kernel.clock import Clock
from vgrads.planner.snapshot import ReplicaKey

_GRACE_S = 2.0  # between SIGTERM and SIGKILL
_PATIENCE_S = 15.0  # for killed tasks to end
_STARTERS = 3  # they wait for process creation and for inputs from disk


class ProcessEngine(FolderEngine):
    """Runs commands with a shell."""

    def __init__(self, clock: Clock, folder: TaskFolder, news: Completions | None = None) -> None:
        super().__init__(clock, folder, news)
        self._spawner = Spawner()
        self._ordered: SimpleQueue[LiveReplica | None] = SimpleQueue()
        self._replicas = LiveReplicas()
        self._cleaner = Cleaner(folder, self._judge, self._end)
        self._closed = False
        work = (*[self._start_all] * _STARTERS, self._reap_all, self._cleaner.run)
        self._threads = [threading.Thread(target=target, daemon=True) for target in work]
        *self._starters, self._reaper, self._cleaning = self._threads

    def start(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            replica = LiveReplica(order, self._folder.mark(order), time.monotonic())
            self._replicas.add(replica)
            self._ordered.put(replica)
        self._work()

    def _work(self) -> None:
        for thread in self._threads:
            if thread.ident is None:
                thread.start()

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        needed = {self._folder.mark(order): order for order in orders}
        folders = {mark: self._folder.place(order) for mark, order in needed.items()}
        going_on = {mark for mark, folder in folders.items() if find_process(folder) is not None}
        ours = self._folder.marks
        # before any task starts again in the same folder: what no task needs, or an ended one left
        kill_marked(lambda mark: mark.startswith(ours) and mark not in going_on)
        anew = []
        for mark, order in needed.items():
            # ended without a recorded exit code, as when the machine stopped: it starts again
            if mark not in going_on and not has_ended(folders[mark]):
                anew.append(order)
            # still running, or ended since: it is watched, and judged by the exit code that it
            # recorded
            elif mark in going_on or not self._done_before(order):
                self._replicas.add(LiveReplica(order, mark, time.monotonic()), recovered=True)
        self.start(anew)
        self._spawner.wake()

    # the starters

    def _start_all(self) -> None:
        while (replica := self._ordered.get()) is not None:
            try:
                self._begin_with_room(replica)
            except OSError as error:
                self._end(replica, AttemptVerdict(str(explain_limit(error))))
        self._ordered.put(None)  # for the next starter

    def _begin_with_room(self, replica: LiveReplica) -> None:
        """Start it as soon as file descriptors are free: other tasks release theirs when they
        end."""
        while True:
            self._replicas.wait_while(partial(self._lacks_room, replica))
            try:
                self._begin(replica)
                return
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS or not self._waits_for_others(replica):
                    raise
                # its pipe has taken a descriptor already
                if replica.process is not None:
                    replica.process.close()

    def _lacks_room(self, replica: LiveReplica) -> bool:
        return not self._spawner.has_room(DESCRIPTORS) and self._waits_for_others(replica)

    def _waits_for_others(self, replica: LiveReplica) -> bool:
        """True for a needed replica while others run."""
        return self._replicas.is_needed(replica) and len(self._spawner) > 0

    def _begin(self, replica: LiveReplica) -> None:
        order = replica.order
        if not self._replicas.is_needed(replica) or self._done_before(order):
            self._replicas.remove(replica)
            return
        if not order.command:
            self._end(replica, AttemptVerdict("has no command to run"))
            return
        replica.begun_s = time.monotonic()
        self._recorder.look(order)
        process = self._folder.prepare(order)
        replica.inputs = self._folder.input_mib(order)
        if not self._replicas.attach(replica, process):
            self._replicas.remove(replica)
            return
        process.begin(self._spawner, replica)
        if replica.unwanted:  # meanwhile
            process.signal(signal.SIGTERM)
        # the reaper sleeps until an end is reported, but must poll the memory of this task
        if order.memory_mib > 0:
            self._spawner.wake()

    # the reaper

    def _reap_all(self) -> None:
        while not self._closed:
            look = self._replicas.are_watched()
            for ended in self._spawner.reap(LOOK_S if look else IDLE_S):
                replica: LiveReplica = ended.token
                if replica.process is not None:
                    replica.process.has_ended(ended)
                # most tasks leave nothing, and need no search through all processes
                if replica.process is not None and replica.process.is_gone():
                    self._judge(replica, ended.code)
                else:
                    self._cleaner.put(replica, ended.code)
            if look:
                self._look()

    def _look(self) -> None:
        """Poll for changes that are not reported: ends of tasks of earlier managers, and memory in
        use."""
        # no children of this process, so nobody reports their ends
        recovered, limited = self._replicas.watched()
        for replica in recovered:
            if find_process(self._folder.place(replica.order)) is None:
                self._replicas.unwatch(replica)
                self._cleaner.put(replica, None)
        used = memory_of_sessions() if limited else {}
        for replica in limited:
            if replica.process is not None:
                replica.process.hold_to(replica.order.memory_mib, used)

    def _judge(self, replica: LiveReplica, code: int) -> None:
        try:
            verdict = self._folder.judge(replica.order, code)
        except OSError as error:
            verdict = AttemptVerdict(str(error))
        self._end(replica, verdict)

    def _end(self, replica: LiveReplica, verdict: AttemptVerdict) -> None:
        self._replicas.remove(replica)
        if self._replicas.is_needed(replica):
            if replica.process is not None:
                times = replica.process.times(replica.came_s, replica.begun_s, replica.inputs)
                verdict = replace(verdict, times=times)
            self._report(replica.order, verdict)

    # others

    def cancel(self, key: ReplicaKey) -> None:
        for replica in self._replicas.drop(key):
            replica.signal(signal.SIGTERM)
            if not self._replicas.abandoned:
                later = threading.Timer(_GRACE_S, partial(replica.signal, signal.SIGKILL))
                later.daemon = True
                later.start()

    def forget(self, key: ReplicaKey) -> None:
        """Do nothing: an ended replica is forgotten already."""

    def close(self) -> None:
        if self._replicas.abandoned or self._closed:
            return
        self._replicas.drop()
        self._ordered.put(None)
        # the starters first, so that no task begins afterwards
        self._join(*self._starters)
        self._replicas.signal(signal.SIGTERM)
        self._await(self._replicas.any_begun, _GRACE_S)
        self._replicas.signal(signal.SIGKILL)
        ours = self._folder.marks
        # also processes that have left the session of their task
        kill_marked(lambda mark: mark.startswith(ours))
        self._await(lambda: len(self._replicas) > 0, _PATIENCE_S)
        self._closed = True
        self._spawner.wake()
        self._join(self._reaper)
        self._cleaner.stop()
        self._join(self._cleaning)
        # a thread that hangs may still use it
        if not any(thread.is_alive() for thread in self._threads):
            self._spawner.close()
        self._finish()

    def _await(self, still: Callable[[], bool], patience_s: float) -> None:
        """Wait until nothing of it is left, or no thread remains that could report it."""
        self._replicas.wait_while(lambda: still() and self._cleaning.is_alive(), patience_s)

    def _join(self, *threads: threading.Thread) -> None:
        for thread in threads:
            if thread.ident is not None:
                thread.join(_PATIENCE_S)

    def detach(self) -> None:
        self._replicas.abandoned = True
