"""Tasks as processes of this machine (:mod:`vgrads.execmgr.tasks.folder`).

A few threads, however many tasks: some begin them, so that no signal comes between a start and the
note of it (Python delivers signals to the main thread); one hears of their ends and looks at what
is watched; one kills what ended tasks leave behind, which may take its time.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from vgrads.agent.descriptors import NO_DESCRIPTORS, explain_limit
from vgrads.agent.spawner import Spawner
from vgrads.execmgr.engines.base import TaskOrder
from vgrads.execmgr.engines.folder import FolderEngine
from vgrads.execmgr.engines.news import News
from vgrads.execmgr.tasks.folder import TaskFolder
from vgrads.execmgr.tasks.process import (
    DESCRIPTORS,
    IDLE_S,
    LOOK_S,
    QUICK_S,
    TaskProcess,
    Verdict,
    alive,
    has_ended,
    memory_of_sessions,
    noted_code,
)
from vgrads.execmgr.tasks.processes import kill_marked, marked
from vgrads.kernel.clock import Clock
from vgrads.planner.snapshot import CopyKey

_GRACE_S = 2.0  # between asking tasks to end and killing them
_PATIENCE_S = 15.0  # with tasks that were killed
_STARTERS = 3  # that wait for the system to begin a process, and for the disk to bring inputs
_Item = TypeVar("_Item")


@dataclass(eq=False)
class _Copy:
    """One that was ordered: by whom it is run here, and whether anybody wants to hear of its
    end."""

    order: TaskOrder
    mark: str
    came_s: float
    process: TaskProcess | None = None  # none: not begun, or an earlier manager's
    unwanted: bool = field(default=False)
    begun_s: float = 0.0
    inputs: tuple[float, float] = (0.0, 0.0)

    def signal(self, number: signal.Signals) -> None:
        """To all that it runs; of an earlier manager's only what kills."""
        if self.process is not None:
            self.process.signal(number)
        elif number == signal.SIGKILL:
            kill_marked(lambda mark: mark == self.mark)


class ProcessEngine(FolderEngine):
    """Runs commands with a shell."""

    def __init__(self, clock: Clock, folder: TaskFolder, news: News | None = None) -> None:
        super().__init__(clock, folder, news)
        self._spawner = Spawner()
        self._ordered: SimpleQueue[_Copy | None] = SimpleQueue()
        self._ended: SimpleQueue[tuple[_Copy, int | None] | None] = SimpleQueue()
        self._live: set[_Copy] = set()
        self._found: set[_Copy] = set()  # of them those that an earlier manager began
        self._limited: set[_Copy] = set()  # of them those whose memory is watched
        self._changed = (
            threading.Condition()
        )  # guards these sets, and what copies say of themselves
        self._abandoned = self._closed = False
        work = (*[self._start_all] * _STARTERS, self._reap_all, self._bury_all)
        self._threads = [threading.Thread(target=one, daemon=True) for one in work]
        *self._starters, self._reaper, self._undertaker = self._threads

    def start(self, orders: Sequence[TaskOrder]) -> None:
        for order in orders:
            copy = _Copy(order, self._folder.mark(order), time.monotonic())
            with self._changed:
                self._live.add(copy)
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
                copy = _Copy(order, mark, time.monotonic())
                with self._changed:
                    self._live.add(copy)
                    self._found.add(copy)
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

    def _begin_with_room(self, copy: _Copy) -> None:
        """Begin it as soon as there are descriptors for it: others give theirs back when they
        end."""
        while True:
            with self._changed:
                while not self._spawner.has_room(DESCRIPTORS) and self._waits_for_others(copy):
                    self._changed.wait(LOOK_S)
            try:
                self._begin(copy)
                return
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS or not self._waits_for_others(copy):
                    raise
                if copy.process is not None:
                    copy.process.close()

    def _waits_for_others(self, copy: _Copy) -> bool:
        """True for a copy that is wanted while others run."""
        wanted = not self._abandoned and not copy.unwanted
        return wanted and len(self._spawner) > 0

    def _begin(self, copy: _Copy) -> None:
        order = copy.order
        if self._abandoned or copy.unwanted or self._done_before(order):
            self._forget(copy)
            return
        if not order.command:
            self._end(copy, Verdict("has no command to run"))
            return
        copy.begun_s = time.monotonic()
        self._witness.look(order)
        process = self._folder.prepare(order)
        copy.inputs = self._folder.input_mib(order)
        with self._changed:
            copy.process = process  # before it has a number: its end may be heard of at once
            if order.memory_mib > 0:
                self._limited.add(copy)
            wanted = not self._abandoned and not copy.unwanted
        if not wanted:
            self._forget(copy)
            return
        process.begin(self._spawner, copy)
        if copy.unwanted:  # meanwhile
            process.signal(signal.SIGTERM)
        if order.memory_mib > 0:
            self._spawner.wake()

    # the reaper

    def _reap_all(self) -> None:
        while not self._closed:
            look = self._found or self._limited
            for ended in self._spawner.reap(LOOK_S if look else IDLE_S):
                copy: _Copy = ended.token
                if copy.process is not None:
                    copy.process.has_ended(ended)
                if copy.process is not None and copy.process.is_gone():
                    self._judge(copy, ended.code)
                else:
                    self._ended.put((copy, ended.code))
            if look:
                self._look()

    def _look(self) -> None:
        """At what nobody tells of: the end of what others began, and memory in use."""
        with self._changed:
            found, limited = list(self._found), list(self._limited)
        for copy in found:
            if alive(self._folder.place(copy.order)) is None:
                with self._changed:
                    self._found.discard(copy)
                self._ended.put((copy, None))
        used = memory_of_sessions() if limited else {}
        for copy in limited:
            if copy.process is not None:
                copy.process.hold_to(copy.order.memory_mib, used)

    def _judge(self, copy: _Copy, code: int) -> None:
        try:
            verdict = self._folder.judge(copy.order, code)
        except OSError as error:
            verdict = Verdict(str(error))
        self._end(copy, verdict)

    def _end(self, copy: _Copy, verdict: Verdict) -> None:
        self._forget(copy)
        if not self._abandoned and not copy.unwanted:
            if copy.process is not None:
                times = copy.process.times(copy.came_s, copy.begun_s, copy.inputs)
                verdict = replace(verdict, times=times)
            self._tell(copy.order, verdict)

    def _forget(self, copy: _Copy) -> None:
        if copy.process is not None:
            copy.process.close()
        with self._changed:
            for group in (self._live, self._found, self._limited):
                group.discard(copy)
            self._changed.notify_all()

    # the undertaker

    def _bury_all(self) -> None:
        """Await what dies by itself; one look through all processes for what is left of as many as
        there are."""
        while (first := self._ended.get()) is not None:
            left, end_s = [], time.monotonic() + QUICK_S
            for copy, code in (first, *_waiting(self._ended)):
                patience_s = end_s - time.monotonic()
                if (
                    copy.process is not None
                    and code is not None
                    and copy.process.is_gone(patience_s)
                ):
                    self._judge(copy, code)
                else:
                    left.append((copy, code))
            self._kill_rest(left)

    def _kill_rest(self, ended: Sequence[tuple[_Copy, int | None]]) -> None:
        marks = {copy.mark for copy, _ in ended}
        for copy, code in ended:
            if code != 0:
                self._folder.end_container(copy.order)
        if not marks or kill_marked(lambda mark: mark in marks):
            undead = set()
        else:
            undead = set(marked(lambda mark: mark in marks).values())
        for copy, code in ended:
            if copy.mark in undead:
                self._end(copy, Verdict("processes of it cannot be killed"))
            else:
                known = noted_code(self._folder.place(copy.order)) if code is None else code
                self._judge(copy, known)

    # others

    def cancel(self, key: CopyKey) -> None:
        with self._changed:
            copies = [copy for copy in self._live if copy.order.key == key and not copy.unwanted]
            for copy in copies:
                copy.unwanted = True
        for copy in copies:
            copy.signal(signal.SIGTERM)
            if not self._abandoned:
                later = threading.Timer(_GRACE_S, partial(copy.signal, signal.SIGKILL))
                later.daemon = True
                later.start()

    def forget(self, key: CopyKey) -> None:
        """A copy that has ended is forgotten already."""

    def close(self) -> None:
        if self._abandoned or self._closed:
            return
        with self._changed:
            for copy in self._live:
                copy.unwanted = True
        self._ordered.put(None)
        self._join(*self._starters)
        self._signal(signal.SIGTERM)
        self._await(lambda: any(copy.process for copy in self._live), _GRACE_S)
        self._signal(signal.SIGKILL)
        ours = self._folder.marks
        kill_marked(lambda mark: mark.startswith(ours))
        self._await(lambda: bool(self._live), _PATIENCE_S)
        self._closed = True
        self._spawner.wake()
        self._join(self._reaper)
        self._ended.put(None)
        self._join(self._undertaker)
        if not any(thread.is_alive() for thread in self._threads):
            self._spawner.close()
        self._finish()

    def _signal(self, number: signal.Signals) -> None:
        with self._changed:
            begun = [copy for copy in self._live if copy.process is not None]
        for copy in begun:
            copy.signal(number)

    def _await(self, still: Callable[[], bool], patience_s: float) -> None:
        """Until nothing of it is there, or nobody is who could say so."""
        end_s = time.monotonic() + patience_s
        with self._changed:
            while (
                still()
                and self._threads[-1].is_alive()
                and (left_s := end_s - time.monotonic()) > 0
            ):
                self._changed.wait(left_s)

    def _join(self, *threads: threading.Thread) -> None:
        for thread in threads:
            if thread.ident is not None:
                thread.join(_PATIENCE_S)

    def abandon(self) -> None:
        self._abandoned = True


def _waiting(queue: SimpleQueue[_Item | None]) -> list[_Item]:
    """What is in a queue without waiting, up to the word that nothing follows, which stays."""
    found: list[_Item] = []
    while True:
        try:
            one = queue.get_nowait()
        except Empty:
            return found
        if one is None:
            queue.put(None)
            return found
        found.append(one)
