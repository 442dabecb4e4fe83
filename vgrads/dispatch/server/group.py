"""What a dispatcher puts on the disk together before anybody is answered: records, what tasks
printed, outputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from vgrads.dispatch.core.faults import BagFault, fault_in
from vgrads.dispatch.server.messages import Said
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.dispatch.storage.block_files import keep_values
from vgrads.dispatch.storage.journal import Journal

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
