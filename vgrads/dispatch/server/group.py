"""What a dispatcher puts on the disk together before anybody is answered: records, what tasks
printed, outputs."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from vgrads.dispatch.core.faults import BagFault, fault_in
from vgrads.dispatch.core.state import State
from vgrads.dispatch.server.messages import Said
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.dispatch.storage.block_files import keep_values
from vgrads.dispatch.storage.journal import Journal

_log = logging.getLogger("vgrads.dispatch")
_FULL_DISK_S = 2.0
Arrived = tuple[int, int, int, bool]
"""Bag, task, attempt, and whether this attempt counts."""


@dataclass
class Group:
    """``arrived``: outputs of attempts that have ended; ``faults``: what was wrong with the files
    of single bags."""

    records: bytes = b""
    printed: dict[int, list[Said]] = field(default_factory=dict)
    arrived: deque[Arrived] = field(default_factory=deque)
    faults: list[BagFault] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.records or self.printed or self.arrived)

    def write(self, journal: Journal, files: Mapping[int, BagFiles]) -> None:
        """Write it; after an OSError (a full disk) again, and then what was written is not written
        twice."""
        for bag in list(self.printed):
            said = self.printed[bag]
            self._try(files, bag, lambda of: of.printed.append(said))  # noqa: B023 called at once
            del self.printed[bag]
        self.faults += keep_values(files, self.arrived)
        if self.records:
            journal.write(self.records)
            self.records = b""
        while self.arrived:
            bag, task, attempt, counts = self.arrived[0]
            self._try(files, bag, lambda of: of.settle(task, attempt, counts))  # noqa: B023
            self.arrived.popleft()

    def _try(
        self, files: Mapping[int, BagFiles], bag: int, work: Callable[[BagFiles], None]
    ) -> None:
        of = files.get(bag)
        if of is not None and (fault := fault_in(bag, lambda: work(of))) is not None:
            self.faults.append(fault)


class GroupWriter:
    """Writes groups one after the other, in a thread of its own. ``group``: the one that is being
    collected; ``problem``: why nothing can be written."""

    def __init__(self, journal: Journal, files: Mapping[int, BagFiles]) -> None:
        self._journal, self._files = journal, files
        self._thread = ThreadPoolExecutor(1, "journal")
        self.group, self.problem = Group(), ""

    async def flush(self, closing: Callable[[], bool]) -> list[BagFault]:
        """Write what was collected; what was wrong with files of single bags.

        A full disk is waited for, unless ``closing``: then nobody is answered any more, and agents
        keep what was not written.
        """
        group, self.group = self.group, Group()
        group.records = self._journal.take()
        if not group:
            return []
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(self._thread, group.write, self._journal, self._files)
                break
            except OSError as error:
                if closing():
                    raise
                if not self.problem:
                    _log.error("the journal cannot be written, agents get no answers: %s", error)
                self.problem = str(error)
                await asyncio.sleep(_FULL_DISK_S)
        self.problem = ""
        return group.faults

    def roll(self, state: State) -> None:
        """Begin a new segment of the journal where this one is full."""
        if self._journal.full:
            roll = self._journal.roll(state)
            asyncio.get_running_loop().run_in_executor(None, roll.carry_out)

    def close(self) -> None:
        """Wait for what is being written."""
        self._thread.shutdown()
