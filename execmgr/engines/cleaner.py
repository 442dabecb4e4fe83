"""The end of copies whose processes leave others behind: these are killed before anybody hears of
it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

from vgrads.execmgr.engines.copies import LiveCopy
from vgrads.execmgr.tasks.folder import TaskFolder
from vgrads.execmgr.tasks.process import QUICK_S, Verdict, noted_code
from vgrads.execmgr.tasks.processes import kill_marked, marked

_Item = TypeVar("_Item")


class Cleaner:
    """Kills what ended copies leave behind, which may take its time.

    ``judge`` is told of each with its exit code, ``end`` of one whose processes cannot be killed.
    """

    def __init__(
        self,
        folder: TaskFolder,
        judge: Callable[[LiveCopy, int], None],
        end: Callable[[LiveCopy, Verdict], None],
    ) -> None:
        self._folder, self._judge, self._end = folder, judge, end
        self._ended: SimpleQueue[tuple[LiveCopy, int | None] | None] = SimpleQueue()

    def put(self, copy: LiveCopy, code: int | None) -> None:
        """A copy has ended; ``code``: None where only its notes may tell."""
        self._ended.put((copy, code))

    def stop(self) -> None:
        """Nothing follows."""
        self._ended.put(None)

    def run(self) -> None:
        """Until :meth:`stop`, await what dies by itself; one look through all processes for what is
        left of as many as there are."""
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

    def _kill_rest(self, ended: Sequence[tuple[LiveCopy, int | None]]) -> None:
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
