"""A bag whose tasks are blocks of cells: what each block reads, and where its values go.

``matrix.json`` in the bag's folder says what it is; ``given/`` keeps the function and the runner as
they were. Values come back as one output file a block, and are in the matrix file, on the disk,
before the journal says that it is done.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

from vgrads.bags.bag import TASK, Bag
from vgrads.dispatch.core.faults import BagFault, fault_in, serving
from vgrads.dispatch.core.records import End
from vgrads.dispatch.core.talk import Message
from vgrads.dispatch.core.tasks import DONE, ENDED
from vgrads.dispatch.server.messages import Files
from vgrads.dispatch.storage.bag_files import BagFiles, Read
from vgrads.dispatch.storage.matrix_store import MatrixStore, joined, parted
from vgrads.kernel.errors import InputError
from vgrads.workflows.generated.blocks import Area, Grid

ABOUT = "matrix.json"
RUNNER, WORK, EDGE, EDGES = "vgrads-block", "work.json", "edge", "edges"
_NOTHING_WRITTEN = -1000  # the code of an attempt whose output is not there
_EDGE_MIB = 2.0**-10
_log = logging.getLogger("vgrads.dispatch")


@dataclass(frozen=True)
class Blocks:
    """What a bag of blocks is. ``python``: options of the Python that
    runs the runner, the one that its agent runs on; ``common``: name at the host → file and
    digest, the same for all blocks; ``a``, ``b``: items of both sides as [file, digest];
    ``matrix``: the file that the values go to. Files that are not absolute lie in ``given``."""

    grid: Grid
    matrix: str
    python: str
    common: Mapping[str, Sequence[str]]
    a: Sequence[Sequence[str]] = ()
    b: Sequence[Sequence[str]] = ()

    @classmethod
    def read(cls, place: Path) -> Blocks:
        """Those of a bag's folder."""
        try:
            fields = json.loads((place / ABOUT).read_text())
            return cls(**{**fields, "grid": Grid(**fields["grid"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"cannot be read: {error}", where=str(place / ABOUT)) from error

    def as_json(self) -> dict[str, Any]:
        """Itself as plain values."""
        return {**self.__dict__, "grid": self.grid.as_json()}

    def items(self, area: Area) -> dict[str, Sequence[str]]:
        """Name at the host → file and digest, of the items that an area's cells read."""
        found = {}
        right = self.a if self.grid.half else self.b
        for side, items, numbers in (
            ("a", self.a, range(area.top, area.bottom)),
            ("b", right, range(area.left, area.right)),
        ):
            for n in numbers if items else ():
                found[f"{side}/{n}/{Path(items[n][0]).name}"] = items[n]
        return found

    # as commands of a bag (:class:`vgrads.bags.bag.Commands`)

    def __len__(self) -> int:
        return self.grid.order.size

    def command(self, task: int) -> str:
        """What computes a block."""
        area = " ".join(map(str, self.grid.area(task)))
        return f'"$VGRADS_PYTHON" {self.python} {RUNNER} {area} {output(task)}'

    def filled(self, texts: Sequence[str], task: int) -> list[str]:
        """The names of a block's files: what stands for inputs is all of them."""
        if not texts:
            return []
        return (
            [output(task)]
            if texts == (output("{task}"),)
            else [*self.common, *self.items(self.grid.area(task))]
        )

    def values(self, task: int) -> dict[str, str]:
        """Its number."""
        return {TASK: str(task)}


def output(task: int | str) -> str:
    """The name of a block's values."""
    return f"block.{task}"


def keep_blocks(place: Path, blocks: Blocks) -> None:
    """Put the description into a bag's folder, before the bag."""
    (place / ABOUT).write_text(json.dumps(blocks.as_json()))


def is_of_blocks(place: Path) -> bool:
    """True for the folder of a bag of blocks."""
    return (place / ABOUT).exists()


def blocks_bag(bag: Bag, place: Path) -> tuple[Bag, BagFiles]:
    """The bag of a folder with its blocks as tasks, and its files. ``bag``: its rules."""
    blocks = Blocks.read(place)
    wave = blocks.grid.kind == "wavefront"
    bag = replace(
        bag,
        commands=blocks,
        order=blocks.grid.order if wave else None,
        outputs=(output("{task}"),),
        inputs=()
        if wave
        else ("{inputs}",),  # blocks of a Wavefront are not nearer to one host than to another
    )
    return bag, BlockFiles(bag, place, place / "given", blocks=blocks)


@dataclass
class BlockFiles(BagFiles):
    """The files of a bag of blocks."""

    blocks: Blocks = field(kw_only=True)
    strict: ClassVar[bool] = True
    _edges: dict[int, tuple[Path, str]] = field(default_factory=dict)
    _sizes: dict[str, float] = field(default_factory=dict)
    _store: MatrixStore | None = None

    @property
    def declared(self) -> bool:
        return True

    @property
    def store(self) -> MatrixStore:
        """The matrix file, opened when it is first asked for: who only looks at the bag does not
        hold it."""
        if self._store is None:
            self._store = MatrixStore(Path(self.blocks.matrix), write=True)
        return self._store

    @cached_property
    def _by_digest(self) -> dict[str, Path]:
        items = [*self.blocks.common.values(), *self.blocks.a, *self.blocks.b]
        return {digest: self.source / path for path, digest in items}

    def had(self, status: Sequence[int]) -> list[int]:
        """Blocks that have not ended, though their values are in the matrix file; InputError where
        it lacks some that are said to be done."""
        if any(kind == DONE and not self.store.has(task) for task, kind in enumerate(status)):
            raise InputError(
                "lacks blocks that were done",
                where=self.blocks.matrix,
                fix="begin anew: give the whole command again",
            )
        return [
            task for task, kind in enumerate(status) if kind not in ENDED and self.store.has(task)
        ]

    def of(self, task: int) -> Files:
        """What a block reads, and its output."""
        area = self.blocks.grid.area(task)
        named = {**self.blocks.common, **self.blocks.items(area)}
        inputs = {name: digest for name, (_, digest) in named.items()}
        if self.blocks.grid.kind == "wavefront":
            inputs[EDGE] = self._edge(task)
        return Files(inputs, [output(task)])

    def digests(self, task: int) -> list[str]:
        items = self.blocks.items(self.blocks.grid.area(task))
        return [digest for _, digest in items.values()]

    def reads(self, task: int) -> list[Read]:
        common = {digest for _, digest in self.blocks.common.values()}
        found = [*common, *self.digests(task)]
        reads = [Read(digest, self._mib(digest), digest in common) for digest in found]
        if self.blocks.grid.kind == "wavefront":  # values around it: a few, of this block alone
            reads.append(Read(f"{EDGE} {task}", _EDGE_MIB, False))
        return reads

    def _mib(self, digest: str) -> float:
        if digest not in self._sizes:
            path = self._by_digest[digest]
            self._sizes[digest] = path.stat().st_size / 2.0**20 if path.is_file() else 0.0
        return self._sizes[digest]

    def input(self, digest: str) -> Path | None:
        found = self._by_digest.get(digest)
        if found is None:
            found = next((path for path, known in self._edges.values() if known == digest), None)
        return found

    # the values around a block

    @cached_property
    def _border(self) -> list[bytes]:
        """The values that were given: the corner, then above the first row, then left of the first
        column."""
        grid = self.blocks.grid
        return parted((self.source / EDGES).read_bytes(), 1 + grid.cols + grid.rows)

    def _edge(self, task: int) -> str:
        """The digest of the values around a block, in a file."""
        if task not in self._edges:
            body = joined(self.around(task))
            path = self.folder / "edges" / str(task)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
            self._edges[task] = (path, hashlib.sha256(body).hexdigest())
        return self._edges[task][1]

    def around(self, task: int) -> list[bytes]:
        """The corner, the values above a block from left to right, and those left of it from top to
        bottom."""
        top, bottom, left, right = self.blocks.grid.area(task)
        cols, border = self.blocks.grid.cols, self._border
        up, beside = task - self.blocks.grid.order.cols, task - 1
        if top == 0:
            above = border[left : right + 1]
        else:
            above = self.store.values(up)[-(right - left) :]
            above.insert(0, self._corner(up - 1) if left else border[cols + top])
        if left == 0:
            return above + border[1 + cols + top : 1 + cols + bottom]
        wide = self.blocks.grid.wide
        return above + self.store.values(beside)[wide - 1 :: wide]

    def _corner(self, block: int) -> bytes:
        return self.store.values(block)[-1]

    # what comes back

    def judged(self, end: End) -> End:
        """An end; of an attempt that failed, where it says that it has succeeded and its values are
        not whole."""
        task = end.task
        if end.code != 0 or not 0 <= task < len(self.blocks) or self.store.has(task):
            return end
        try:
            body = (self.arriving(task, end.attempt) / output(task)).read_bytes()
            parted(body, self.blocks.grid.count(task))
        except (OSError, InputError) as error:
            _log.warning("block %d of '%s': %s", task, self.bag.name, error)
            return end._replace(code=_NOTHING_WRITTEN)
        return end

    def keep(self, blocks: Iterable[tuple[int, int]]) -> None:
        """The values of these (task, attempt) go into the matrix file, on the disk when this
        returns; more than once is no harm."""
        fresh = [(task, attempt) for task, attempt in blocks if not self.store.has(task)]
        self.store.append(
            (task, (self.arriving(task, attempt) / output(task)).read_bytes())
            for task, attempt in fresh
        )
        for task, _ in fresh:
            if task in self._edges:
                self._edges.pop(task)[0].unlink(missing_ok=True)

    def commit(self, task: int, attempt: int) -> None:
        """They are in the matrix file."""
        self.discard(task, attempt)

    def close(self) -> None:
        super().close()
        if self._store is not None:
            self._store.close()


def judged(message: Message, files: Mapping[int, BagFiles]) -> Message:
    """A message in which blocks without whole values have failed."""
    strict = {number for number, _ in message.ends if number in files and files[number].strict}
    if not strict:
        return message
    ends = []
    for number, end in message.ends:
        of = files[number] if number in strict else None
        with serving(number):
            ends.append((number, of.judged(end) if isinstance(of, BlockFiles) else end))
    return replace(message, ends=ends)


def keep_values(
    files: Mapping[int, BagFiles], arrived: Iterable[tuple[int, int, int, bool]]
) -> list[BagFault]:
    """Of what has come the values of blocks that count go into their matrix files: before the
    journal says so. Bags where they cannot."""
    by_bag: dict[int, list[tuple[int, int]]] = {}
    for bag, task, attempt, counts in arrived:
        if counts and files[bag].strict:
            by_bag.setdefault(bag, []).append((task, attempt))
    faults = []
    for bag, blocks in by_bag.items():
        of = files[bag]
        if isinstance(of, BlockFiles):
            faults.append(fault_in(bag, partial(of.keep, blocks)))
    return [fault for fault in faults if fault is not None]
