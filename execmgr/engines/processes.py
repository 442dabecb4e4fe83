"""Tasks as processes of this machine (:mod:`vgrads.execmgr.tasks.folder`).

A few threads, however many tasks: some begin them, so that no signal comes between a start and the
note of it (Python delivers signals to the main thread); one hears of their ends and looks at what
is watched; one kills what ended tasks leave behind (:mod:`vgrads.execmgr.engines.cleaner`).
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
from vgrads.agent.spawner import Spawner
from vgrads.execmgr.engines.base import TaskOrder
from vgrads.execmgr.engines.cleaner import Cleaner
from vgrads.execmgr.engines.copies import LiveCopies, LiveCopy
from vgrads.execmgr.engines.folder import FolderEngine
from vgrads.execmgr.engines.news import News
from vgrads.execmgr.tasks.folder import TaskFolder
from vgrads.execmgr.tasks.process import (
    DESCRIPTORS,
    IDLE_S,
    LOOK_S,
    Verdict,
    alive,
    has_ended,
    memory_of_sessions,
)
from vgrads.execmgr.tasks.processes import kill_marked
from vgrads.kernel.clock import Clock
from vgrads.planner.snapshot import CopyKey

_GRACE_S = 2.0  # between asking tasks to end and killing them
_PATIENCE_S = 15.0  # with tasks that were killed
_STARTERS = 3  # that wait for the system to begin a process, and for the disk to bring inputs


class ProcessEngine(FolderEngine):
    """Runs commands with a shell."""

    def __init__(self, clock: Clock, folder: TaskFolder, news: News | None = None) -> None:
        super().__init__(clock, folder, news)
        self._spawner = Spawner()
        self._ordered: SimpleQueue[LiveCopy | None] = SimpleQueue()
        self._copies = LiveCopies()
        self._cleaner = Cleaner(folder, self._judge, self._end)
        self._closed = False
        work = (*[self._start_all] * _STARTERS, self._reap_all, self._cleaner.run)
        self._threads = [threading.Thread(target=one, daemon=True) for one in work]
        *self._starters, self._reaper, self._cleaning = self._threads

    def start(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            copy = LiveCopy(order, self._folder.mark(order), time.monotonic())
            self._copies.add(copy)
            self._ordered.put(copy)
        self._work()

    def _work(self) -> None:
        for thread in self._threads:
            if thread.ident is None:
                thread.start()

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        wanted = {self._folder.mark(order): order for order in orders}
        places = {mark: self._folder.place(order) for mark, order in wanted.items()}
        going_on = {mark for mark, place in places.items() if alive(place) is not None}
        ours = self._folder.marks
        kill_marked(lambda mark: mark.startswith(ours) and mark not in going_on)
        anew = []
        for mark, order in wanted.items():
            if mark not in going_on and not has_ended(places[mark]):
                anew.append(order)
            elif mark in going_on or not self._done_before(order):
                self._copies.add(LiveCopy(order, mark, time.monotonic()), found=True)
        self.start(anew)
        self._spawner.wake()

    # the starters

    def _start_all(self) -> None:
        while (copy := self._ordered.get()) is not None:
            try:
                self._begin_with_room(copy)
            except OSError as error:
                self._end(copy, Verdict(str(explain_limit(error))))
        self._ordered.put(None)  # for the next of them

    def _begin_with_room(self, copy: LiveCopy) -> None:
        """Begin it as soon as there are descriptors for it: others give theirs back when they
        end."""
        while True:
            self._copies.wait_while(partial(self._lacks_room, copy))
            try:
                self._begin(copy)
                return
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS or not self._waits_for_others(copy):
                    raise
                if copy.process is not None:
                    copy.process.close()

    def _lacks_room(self, copy: LiveCopy) -> bool:
        return not self._spawner.has_room(DESCRIPTORS) and self._waits_for_others(copy)

    def _waits_for_others(self, copy: LiveCopy) -> bool:
        """True for a copy that is wanted while others run."""
        return self._copies.is_wanted(copy) and len(self._spawner) > 0

    def _begin(self, copy: LiveCopy) -> None:
        order = copy.order
        if not self._copies.is_wanted(copy) or self._done_before(order):
            self._copies.remove(copy)
            return
        if not order.command:
            self._end(copy, Verdict("has no command to run"))
            return
        copy.begun_s = time.monotonic()
        self._witness.look(order)
        process = self._folder.prepare(order)
        copy.inputs = self._folder.input_mib(order)
        if not self._copies.attach(copy, process):
            self._copies.remove(copy)
            return
        process.begin(self._spawner, copy)
        if copy.unwanted:  # meanwhile
            process.signal(signal.SIGTERM)
        if order.memory_mib > 0:
            self._spawner.wake()

    # the reaper

    def _reap_all(self) -> None:
        while not self._closed:
            look = self._copies.are_watched()
            for ended in self._spawner.reap(LOOK_S if look else IDLE_S):
                copy: LiveCopy = ended.token
                if copy.process is not None:
                    copy.process.has_ended(ended)
                if copy.process is not None and copy.process.is_gone():
                    self._judge(copy, ended.code)
                else:
                    self._cleaner.put(copy, ended.code)
            if look:
                self._look()

    def _look(self) -> None:
        """At what nobody tells of: the end of what others began, and memory in use."""
        found, limited = self._copies.watched()
        for copy in found:
            if alive(self._folder.place(copy.order)) is None:
                self._copies.watch_no_more(copy)
                self._cleaner.put(copy, None)
        used = memory_of_sessions() if limited else {}
        for copy in limited:
            if copy.process is not None:
                copy.process.hold_to(copy.order.memory_mib, used)

    def _judge(self, copy: LiveCopy, code: int) -> None:
        try:
            verdict = self._folder.judge(copy.order, code)
        except OSError as error:
            verdict = Verdict(str(error))
        self._end(copy, verdict)

    def _end(self, copy: LiveCopy, verdict: Verdict) -> None:
        self._copies.remove(copy)
        if self._copies.is_wanted(copy):
            if copy.process is not None:
                times = copy.process.times(copy.came_s, copy.begun_s, copy.inputs)
                verdict = replace(verdict, times=times)
            self._tell(copy.order, verdict)

    # others

    def cancel(self, key: CopyKey) -> None:
        for copy in self._copies.drop(key):
            copy.signal(signal.SIGTERM)
            if not self._copies.abandoned:
                later = threading.Timer(_GRACE_S, partial(copy.signal, signal.SIGKILL))
                later.daemon = True
                later.start()

    def forget(self, key: CopyKey) -> None:
        """A copy that has ended is forgotten already."""

    def close(self) -> None:
        if self._copies.abandoned or self._closed:
            return
        self._copies.drop()
        self._ordered.put(None)
        self._join(*self._starters)
        self._copies.signal(signal.SIGTERM)
        self._await(self._copies.any_begun, _GRACE_S)
        self._copies.signal(signal.SIGKILL)
        ours = self._folder.marks
        kill_marked(lambda mark: mark.startswith(ours))
        self._await(lambda: len(self._copies) > 0, _PATIENCE_S)
        self._closed = True
        self._spawner.wake()
        self._join(self._reaper)
        self._cleaner.stop()
        self._join(self._cleaning)
        if not any(thread.is_alive() for thread in self._threads):
            self._spawner.close()
        self._finish()

    def _await(self, still: Callable[[], bool], patience_s: float) -> None:
        """Until nothing of it is there, or nobody is who could say so."""
        self._copies.wait_while(lambda: still() and self._cleaning.is_alive(), patience_s)

    def _join(self, *threads: threading.Thread) -> None:
        for thread in threads:
            if thread.ident is not None:
                thread.join(_PATIENCE_S)

    def abandon(self) -> None:
        self._copies.abandoned = True
