"""The copies that an engine runs as processes and that have not ended, as its threads share
them."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from vgrads.execmgr.engines.base import TaskOrder
from vgrads.execmgr.tasks.process import LOOK_S, TaskProcess
from vgrads.execmgr.tasks.processes import kill_marked
from vgrads.planner.snapshot import CopyKey


@dataclass(eq=False)
class LiveCopy:
    """One that was ordered: by whom it is run here, and whether anybody wants to hear of its
    end."""

    order: TaskOrder
    mark: str
    came_s: float
    process: TaskProcess | None = None  # none: not begun, or an earlier manager's
    unwanted: bool = False
    begun_s: float = 0.0
    inputs: tuple[float, float] = (0.0, 0.0)

    def signal(self, number: signal.Signals) -> None:
        """To all that it runs; of an earlier manager's only what kills."""
        if self.process is not None:
            self.process.signal(number)
        elif number == signal.SIGKILL:
            kill_marked(lambda mark: mark == self.mark)


class LiveCopies:
    """Those of one engine. ``abandoned``: nobody wants to hear of any of them."""

    def __init__(self) -> None:
        self._live: set[LiveCopy] = set()
        self._found: set[LiveCopy] = set()  # of them those that an earlier manager began
        self._limited: set[LiveCopy] = set()  # of them those whose memory is watched
        # guards these sets, and what copies say of themselves
        self._changed = threading.Condition()
        self.abandoned = False

    def __len__(self) -> int:
        return len(self._live)

    def add(self, copy: LiveCopy, found: bool = False) -> None:
        """One more; ``found``: an earlier manager has begun it."""
        with self._changed:
            self._live.add(copy)
            if found:
                self._found.add(copy)

    def attach(self, copy: LiveCopy, process: TaskProcess) -> bool:
        """A copy is about to begin; False where nobody wants it any more."""
        with self._changed:
            copy.process = process  # before it has a number: its end may be heard of at once
            if copy.order.memory_mib > 0:
                self._limited.add(copy)
            return self.is_wanted(copy)

    def remove(self, copy: LiveCopy) -> None:
        """It has ended, or does not begin."""
        if copy.process is not None:
            copy.process.close()
        with self._changed:
            for group in (self._live, self._found, self._limited):
                group.discard(copy)
            self._changed.notify_all()

    def is_wanted(self, copy: LiveCopy) -> bool:
        """True while somebody wants to hear of its end."""
        return not self.abandoned and not copy.unwanted

    def drop(self, key: CopyKey | None = None) -> list[LiveCopy]:
        """Nobody wants these any more, or with no key all: those that somebody wanted before."""
        with self._changed:
            copies = [
                copy
                for copy in self._live
                if (key is None or copy.order.key == key) and not copy.unwanted
            ]
            for copy in copies:
                copy.unwanted = True
        return copies

    def are_watched(self) -> bool:
        """True while there are copies of which nobody tells what they do."""
        return bool(self._found or self._limited)

    def watched(self) -> tuple[list[LiveCopy], list[LiveCopy]]:
        """Those that an earlier manager began, and those whose memory is watched."""
        with self._changed:
            return list(self._found), list(self._limited)

    def watch_no_more(self, copy: LiveCopy) -> None:
        """What an earlier manager began has ended."""
        with self._changed:
            self._found.discard(copy)

    def any_begun(self) -> bool:
        """True while processes of this engine run."""
        return any(copy.process for copy in self._live)

    def signal(self, number: signal.Signals) -> None:
        """To all that were begun here."""
        with self._changed:
            begun = [copy for copy in self._live if copy.process is not None]
        for copy in begun:
            copy.signal(number)

    def wait_while(self, still: Callable[[], bool], patience_s: float = math.inf) -> None:
        """Until it holds no more, or for so long; asked whenever a copy has ended, and now and
        then."""
        end_s = time.monotonic() + patience_s
        with self._changed:
            while still() and (left_s := end_s - time.monotonic()) > 0:
                self._changed.wait(min(left_s, LOOK_S))
