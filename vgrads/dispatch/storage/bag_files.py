"""A bag's folder at the dispatcher: its inputs, its outputs, the output of its tasks.

``results/``: outputs of tasks that succeeded; ``arriving/``: outputs of attempts whose result is
not known yet.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from vgrads.bags.bag import BagSpec
from vgrads.dispatch.core.protocol import Files
from vgrads.dispatch.core.tasks import DONE, ENDED
from vgrads.dispatch.storage.file_records import FileRecords
from vgrads.dispatch.storage.outputs import Outputs
from vgrads.dispatch.storage.retries import AttemptRounds
from vgrads.exchange.digests import FileDigests
from vgrads.kernel.errors import InputError

_CHUNK = 1 << 20
_MIB = 2.0**20


class InputFile(NamedTuple):
    """An input of a task; ``common``: used by all tasks of its bag."""

    digest: str
    mib: float
    common: bool


@dataclass
class BagFiles:
    """The files of one bag. ``source``: folder of its inputs; ``durable``: what its tasks print
    outlives a crash of this machine."""

    bag: BagSpec
    folder: Path
    source: Path
    _digests: FileDigests = field(default_factory=FileDigests)
    durable: bool = True
    _outputs: Outputs | None = None
    strict: ClassVar[bool] = False
    """True where outputs are checked before an end counts."""

    @property
    def declared(self) -> bool:
        """Return True where its tasks read or write files."""
        return bool(self.bag.inputs or self.bag.outputs)

    @cached_property
    def records(self) -> FileRecords:
        """Return the records of its files."""
        return FileRecords(self.folder)

    @property
    def printed(self) -> Outputs:
        """Return the output of its tasks."""
        if self._outputs is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._outputs = Outputs(self.folder / "printed.bin", self.durable)
        return self._outputs

    def had(self, _status: Sequence[int]) -> list[int]:
        """Return tasks that need not be run, though their ends were not reported; ``_status``: of
        all tasks."""
        return []

    def of(self, task: int) -> Files | None:
        """Return the files of a task; None where it has none. A missing input has no digest, and
        fails at the agent."""
        if not self.declared:
            return None
        names = self.bag.commands.filled(self.bag.inputs, task)
        outputs = self.bag.commands.filled(self.bag.outputs, task)
        inputs = {name: self.digest(name) for name in names}
        for name, digest in inputs.items():
            self.records.sent(name, digest)
        return Files(inputs, outputs)

    def digests(self, task: int) -> list[str]:
        """Return the digests of a task's inputs."""
        return [self.digest(n) for n in self.bag.commands.filled(self.bag.inputs, task)]

    def reads(self, task: int) -> list[InputFile]:
        """Return a task's inputs and their sizes."""
        names = self.bag.inputs
        of_task = zip(names, self.bag.commands.filled(names, task), strict=True)
        # a name without a placeholder is the same for all tasks
        rows = ((text == name, self._digests.latest(self.source / name)) for text, name in of_task)
        return [InputFile(row[0], row[1] / _MIB, common) for common, row in rows if row is not None]

    def digest(self, name: str) -> str:
        """Return the SHA-256 of an input's current content; empty where it cannot be read."""
        try:
            return self._digests.of(self.source / name)
        except OSError:
            return ""

    def input(self, digest: str) -> Path | None:
        """Return the file of an announced digest."""
        return self._digests.path(digest)

    def arriving(self, task: int, attempt: int) -> Path:
        """Return the folder for the outputs of an attempt."""
        return self.folder / "arriving" / f"{task}.{attempt}"

    def place(self, task: int, attempt: int, name: str) -> Path:
        """Return the destination of one output of an attempt. Raise InputError for a name that the
        task did not declare."""
        if name not in self.bag.commands.filled(self.bag.outputs, task):
            raise InputError("is not a declared output", where=name)
        return self.arriving(task, attempt) / name

    def commit(self, task: int, attempt: int) -> None:
        """Move the outputs of the attempt that counts to the results; delete those of others."""
        folder = self.arriving(task, attempt)
        names = self.bag.commands.filled(self.bag.outputs, task)
        for name in names:
            target = self.folder / "results" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            # a commit that a crash interrupted is repeated, and then the
            # file may have been moved already
            with suppress(FileNotFoundError):
                (folder / name).replace(target)
        # after the moves: it records size and time of the files in their final place
        self.records.committed(task, [self.folder / "results" / name for name in names])
        self.discard(task, attempt)

    def settle(self, task: int, attempt: int, counts: bool) -> None:
        """Commit or discard the outputs of an ended attempt."""
        (self.commit if counts else self.discard)(task, attempt)

    def discard(self, task: int, attempt: int) -> None:
        """Delete the outputs of an attempt."""
        shutil.rmtree(self.arriving(task, attempt), ignore_errors=True)

    def finish_commits(self, status: Sequence[int], ends: Iterable[np.ndarray]) -> None:
        """Complete the commits after a crash: outputs of attempts that counted are moved to the
        results, those of their replicas are deleted.

        ``status``: of its tasks; ``ends``: all of the bag's, in their order
        (:data:`vgrads.dispatch.core.records.END`); not read where no outputs arrived.
        """
        folders = list((self.folder / "arriving").glob("*.*"))
        if not folders:
            return
        counted: dict[int, int] = {}
        rounds = AttemptRounds(self.folder.parent.parent, int(self.folder.name))
        for some in ends:
            good = some[some["code"] == 0]
            for end in good[rounds.latest(good["task"], good["attempt"])]:
                # the first good end of the round counts, as in the fold
                counted.setdefault(int(end["task"]), int(end["attempt"]))
        for task, attempt in (map(int, folder.name.split(".")[:2]) for folder in folders):
            # outputs of other tasks stay: their attempts may still run, and report later
            if status[task] in ENDED:
                counts = status[task] == DONE and counted.get(task, attempt) == attempt
                self.settle(task, attempt, counts)

    def close(self) -> None:
        """Close for writing."""
        self.records.close()
        if self._outputs is not None:
            self._outputs.close()
