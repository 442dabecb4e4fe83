"""Cleanup after replicas: processes that they leave behind are killed before the end is
reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

from vgrads.agent.processes import kill_marked, marked
from vgrads.execmgr.engines.live_replicas import LiveReplica
from vgrads.execmgr.tasks.folder import TaskFolder
from vgrads.execmgr.tasks.process import QUICK_S, AttemptVerdict, read_exit_code

_Item = TypeVar("_Item")


class Cleaner:
    """Kills processes that ended replicas leave behind, which may take some time.

    ``judge`` is called for each replica with its exit code, ``end`` for one whose processes cannot
    be killed.
    """

    def __init__(
        self,
        folder: TaskFolder,
        judge: Callable[[LiveReplica, int], None],
        end: Callable[[LiveReplica, AttemptVerdict], None],
    ) -> None:
        self._folder, self._judge, self._end = folder, judge, end
        self._ended: SimpleQueue[tuple[LiveReplica, int | None] | None] = SimpleQueue()

    def put(self, replica: LiveReplica, code: int | None) -> None:
        """Add an ended replica; ``code``: None if only its notes hold the exit code."""
        self._ended.put((replica, code))

    def stop(self) -> None:
        """Mark the end of the input."""
        self._ended.put(None)

    def run(self) -> None:
        """Until :meth:`stop`, wait for processes that end by themselves; kill the remaining ones of
        many replicas with one scan of all processes."""
        while (first := self._ended.get()) is not None:
            # one deadline for all that wait, so that the patience of many does not add up
            left, end_s = [], time.monotonic() + QUICK_S
            for replica, code in (first, *_take_waiting(self._ended)):
                patience_s = end_s - time.monotonic()
                if (
                    replica.process is not None
                    and code is not None
                    and replica.process.is_gone(patience_s)
                ):
                    self._judge(replica, code)
                else:
                    left.append((replica, code))
            self._kill_rest(left)

    def _kill_rest(self, ended: Sequence[tuple[LiveReplica, int | None]]) -> None:
        marks = {replica.mark for replica, _ in ended}
        for replica, code in ended:
            # 0 is the end of the container itself; a client that was killed may leave it running
            if code != 0:
                self._folder.end_container(replica.order)
        if not marks or kill_marked(lambda mark: mark in marks):
            undead = set()
        else:
            undead = set(marked(lambda mark: mark in marks).values())
        for replica, code in ended:
            if replica.mark in undead:
                self._end(replica, AttemptVerdict("its processes cannot be killed"))
            else:
                noted = read_exit_code(self._folder.place(replica.order)) if code is None else code
                self._judge(replica, noted)


def _take_waiting(queue: SimpleQueue[_Item | None]) -> list[_Item]:
    """Return the queued items without waiting, up to the end mark, which stays in the queue."""
    results: list[_Item] = []
    while True:
        try:
            item = queue.get_nowait()
        except Empty:
            return results
        if item is None:
            queue.put(None)
            return results
        results.append(item)
