"""A bag's folder at the dispatcher: what it reads, what came back of it, what its tasks printed.

``results/``: outputs of tasks that succeeded; ``arriving/``: outputs of attempts of which nobody
knows yet.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from vgrads.bags.bag import Bag
from vgrads.dispatch.core.tasks import DONE, ENDED
from vgrads.dispatch.server.messages import Files
from vgrads.dispatch.storage.outputs import Outputs
from vgrads.kernel.errors import InputError

_CHUNK = 1 << 20
_MIB = 2.0**20


class Read(NamedTuple):
    """An input of a task; ``common``: all tasks of its bag read it."""

    digest: str
    mib: float
    common: bool


@dataclass
class BagFiles:
    """The files of one bag. ``source``: where its inputs lie."""

    bag: Bag
    folder: Path
    source: Path
    _digests: dict[str, tuple[tuple[int, int, int], str]] = field(default_factory=dict)
    _outputs: Outputs | None = None
    strict: ClassVar[bool] = False
    """True where outputs are looked at before an end counts."""

    @property
    def declared(self) -> bool:
        """True where its tasks read or write files."""
        return bool(self.bag.inputs or self.bag.outputs)

    @property
    def printed(self) -> Outputs:
        """What its tasks printed."""
        if self._outputs is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._outputs = Outputs(self.folder / "printed.bin")
        return self._outputs

    def had(self, _status: Sequence[int]) -> list[int]:
        """Tasks that need not be run, though nobody was told of their ends; ``_status``: of all
        tasks."""
        return []

    def of(self, task: int) -> Files | None:
        """The files of a task; None where it has none. An input that is not there has no digest,
        and fails there."""
        if not self.declared:
            return None
        names = self.bag.commands.filled(self.bag.inputs, task)
        outputs = self.bag.commands.filled(self.bag.outputs, task)
        return Files({name: self.digest(name) for name in names}, outputs)

    def digests(self, task: int) -> list[str]:
        """Those of a task's inputs."""
        return [self.digest(n) for n in self.bag.commands.filled(self.bag.inputs, task)]

    def reads(self, task: int) -> list[Read]:
        """A task's inputs and how large they are."""
        names = self.bag.inputs
        of_task = zip(names, self.bag.commands.filled(names, task), strict=True)
        known = ((name, given == name, self._digests.get(name)) for given, name in of_task)
        return [Read(k[1], k[0][0] / _MIB, common) for _, common, k in known if k is not None]

    def digest(self, name: str) -> str:
        """SHA-256 of an input as it lies there now; empty where it cannot be read."""
        path = self.source / name
        try:
            stat = path.stat()
            stamp = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
            known = self._digests.get(name)
            if known is None or known[0] != stamp:
                with path.open("rb") as file:
                    known = (stamp, hashlib.file_digest(file, "sha256").hexdigest())
                self._digests[name] = known
            return known[1]
        except OSError:
            return ""

    def input(self, digest: str) -> Path | None:
        """The file of a digest that was told."""
        for name, (_, known) in self._digests.items():
            if known == digest:
                return self.source / name
        return None

    def arriving(self, task: int, attempt: int) -> Path:
        """Where the outputs of an attempt come in."""
        return self.folder / "arriving" / f"{task}.{attempt}"

    def place(self, task: int, attempt: int, name: str) -> Path:
        """Where one output of an attempt comes in; InputError for a name that the task did not
        declare."""
        if name not in self.bag.commands.filled(self.bag.outputs, task):
            raise InputError("is no declared output", where=name)
        return self.arriving(task, attempt) / name

    def commit(self, task: int, attempt: int) -> None:
        """The outputs of the attempt that counts go where they belong; those of others go."""
        place = self.arriving(task, attempt)
        for name in self.bag.commands.filled(self.bag.outputs, task):
            target = self.folder / "results" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                (place / name).replace(target)
        self.discard(task, attempt)

    def settle(self, task: int, attempt: int, counts: bool) -> None:
        """An attempt has ended: its outputs go where they belong, or go."""
        (self.commit if counts else self.discard)(task, attempt)

    def discard(self, task: int, attempt: int) -> None:
        """The outputs of an attempt are not wanted."""
        shutil.rmtree(self.arriving(task, attempt), ignore_errors=True)

    def finish_commits(self, status: Sequence[int], ends: Iterable[np.ndarray]) -> None:
        """After a crash: outputs of attempts that counted go where they belong, those of their
        copies go.

        ``status``: of its tasks; ``ends``: all of the bag's, in their order
        (:data:`vgrads.dispatch.core.records.END`); not read where nothing came in.
        """
        places = list((self.folder / "arriving").glob("*.*"))
        if not places:
            return
        counted: dict[int, int] = {}
        for some in ends:
            for end in some[some["code"] == 0]:
                counted.setdefault(int(end["task"]), int(end["attempt"]))
        for task, attempt in (map(int, place.name.split(".")[:2]) for place in places):
            if status[task] in ENDED:
                counts = status[task] == DONE and counted.get(task, attempt) == attempt
                self.settle(task, attempt, counts)

    def close(self) -> None:
        """Write no more."""
        if self._outputs is not None:
            self._outputs.close()


class Arrival:
    """An output on its way in: on the disk under its name when all of it is there."""

    def __init__(self, place: Path, digest: str) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        self._place, self._digest = place, digest
        self._draft = place.with_name(f".{place.name}.part")
        self._file = self._draft.open("wb")
        self._sum = hashlib.sha256()
        self.problem = ""

    def write(self, data: bytes) -> None:
        """More of it."""
        try:
            self._sum.update(data)
            self._file.write(data)
        except OSError as error:
            self.problem = str(error)

    def done(self) -> None:
        """All of it has come."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            if self._digest and self._sum.hexdigest() != self._digest:
                self.problem = "was changed on its way"
            if not self.problem:
                self._draft.replace(self._place)
                return
        except OSError as error:
            self.problem = str(error)
        self.broken()

    def broken(self) -> None:
        """It does not come any more."""
        with suppress(OSError):
            self._file.close()
            self._draft.unlink()
