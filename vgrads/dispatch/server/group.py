"""Data that a dispatcher writes to disk together before agents are answered: records, output of
tasks, output files."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from vgrads.dispatch.core.faults import BagFault, fault_in
from vgrads.dispatch.core.state import State
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.dispatch.storage.block_files import keep_values
from vgrads.dispatch.storage.journal import DispatchJournal
from vgrads.exchange.messages import PrintedOutput
from vgrads.exchange.values import AttemptEnd

_log = logging.getLogger("vgrads.dispatch")
_FULL_DISK_S = 2.0
Arrived = tuple[int, int, int, bool]
"""Bag, task, attempt, and whether this attempt counts."""


class StoredEnd(NamedTuple):
    """An end that was written: of which bag, whether it decides its task, and what was printed."""

    bag: int
    end: AttemptEnd
    counts: bool
    printed: PrintedOutput | None

    @property
    def text(self) -> str:
        """Return what was printed."""
        return self.printed.out + self.printed.err if self.printed else ""

    @property
    def error_line(self) -> str:
        """Return the last line that was printed to the standard error."""
        lines = self.printed.err.split("\n") if self.printed else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


@dataclass
class CommitGroup:
    """``arrived``: outputs of ended attempts; ``ended``: all ends; ``faults``: errors in the files
    of single bags."""

    records: bytes = b""
    printed: dict[int, list[PrintedOutput]] = field(default_factory=dict)
    arrived: deque[Arrived] = field(default_factory=deque)
    ended: list[StoredEnd] = field(default_factory=list)
    faults: list[BagFault] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.records or self.printed or self.arrived)

    def write(self, journal: DispatchJournal, files: Mapping[int, BagFiles]) -> None:
        """Write the group. It may be repeated after an OSError (a full disk); parts already written
        are not written twice."""
        # output before records: whoever reads an end finds what its task printed
        for bag in list(self.printed):
            printed = self.printed[bag]
            self._try(files, bag, lambda of: of.printed.append(printed))  # noqa: B023 called at once
            del self.printed[bag]
        self.faults += keep_values(files, self.arrived)
        # records before outputs are moved: after a crash, the moves follow from the journal
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
    """Writes groups in sequence, in its own thread. ``group``: the one being collected;
    ``problem``: why nothing can be written."""

    def __init__(self, journal: DispatchJournal, files: Mapping[int, BagFiles]) -> None:
        self._journal, self._files = journal, files
        self._thread = ThreadPoolExecutor(1, "journal")
        self.group, self.problem = CommitGroup(), ""

    async def flush(self, closing: Callable[[], bool]) -> CommitGroup:
        """Write the collected group and return it, with the faults in files of single bags.

        Waits while the disk is full, unless ``closing``: then no answers are sent any more, and
        agents keep unwritten results.
        """
        # taken together, so that an end and its output are in the same group; what arrives
        # during the write belongs to the next one
        group, self.group = self.group, CommitGroup()
        group.records = self._journal.take()
        if not group:
            return group
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(self._thread, group.write, self._journal, self._files)
                break
            except OSError as error:
                # not acknowledged, so nothing is lost: agents report to the next dispatcher again
                if closing():
                    raise
                if not self.problem:
                    _log.error("the journal cannot be written, agents get no answers: %s", error)
                self.problem = str(error)
                await asyncio.sleep(_FULL_DISK_S)
        self.problem = ""
        return group

    def roll(self, state: State) -> None:
        """Start a new segment of the journal where the current one is full."""
        if self._journal.full:
            roll = self._journal.roll(state)
            # not in the writer's thread: compaction would delay the next group and its answers
            asyncio.get_running_loop().run_in_executor(None, roll.carry_out)

    def close(self) -> None:
        """Wait for writes in progress."""
        self._thread.shutdown()
