"""A bag whose tasks are blocks of cells: the inputs of each block, and the destination of its
values.

``matrix.json`` in the bag's folder describes it; ``given/`` stores the function and the runner as
submitted. Values are returned as one output file per block, and are in the matrix file, on disk,
before the journal records the block as done.
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

from vgrads.bags.bag import TASK, BagSpec
from vgrads.dispatch.core.faults import BagFault, fault_in, serving
from vgrads.dispatch.core.protocol import Files
from vgrads.dispatch.core.tasks import DONE, ENDED
from vgrads.dispatch.storage.bag_files import BagFiles, InputFile
from vgrads.dispatch.storage.matrix_store import MatrixStore, join_values, split_values
from vgrads.exchange.values import UNSENT, AttemptEnd, Message
from vgrads.kernel.errors import InputError
from vgrads.workflows.generated.blocks import Area, BlockGrid

ABOUT = "matrix.json"
RUNNER, WORK, EDGE, EDGES = "vgrads-block", "work.json", "edge", "edges"
_EDGE_MIB = 2.0**-10
_log = logging.getLogger("vgrads.dispatch")


@dataclass(frozen=True)
class Blocks:
    """Description of a bag of blocks. ``python``: options of the Python that runs the runner, the
    one that its agent runs on; ``common``: name at the node → file and digest, the same for all
    blocks; ``a``, ``b``: items of both sides as [file, digest]; ``matrix``: the file that receives
    the values. Relative paths are in ``given``."""

    grid: BlockGrid
    matrix: str
    python: str
    common: Mapping[str, Sequence[str]]
    a: Sequence[Sequence[str]] = ()
    b: Sequence[Sequence[str]] = ()

    @classmethod
    def read(cls, folder: Path) -> Blocks:
        """Read the description from a bag's folder."""
        try:
            fields = json.loads((folder / ABOUT).read_text())
            return cls(**{**fields, "grid": BlockGrid(**fields["grid"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"cannot be read: {error}", where=str(folder / ABOUT)) from error

    def as_json(self) -> dict[str, Any]:
        """Encode it as plain values."""
        return {**self.__dict__, "grid": self.grid.as_json()}

    def items(self, area: Area) -> dict[str, Sequence[str]]:
        """Return name at the node → file and digest, of the items that an area's cells read."""
        files = {}
        right = self.a if self.grid.half else self.b
        for side, items, numbers in (
            ("a", self.a, range(area.top, area.bottom)),
            ("b", right, range(area.left, area.right)),
        ):
            for n in numbers if items else ():
                files[f"{side}/{n}/{Path(items[n][0]).name}"] = items[n]
        return files

    # as commands of a bag (:class:`vgrads.bags.bag.TaskCommands`)

    def __len__(self) -> int:
        return self.grid.order.size

    def command(self, task: int) -> str:
        """Return the command that computes a block."""
        area = " ".join(map(str, self.grid.area(task)))
        return f'"$VGRADS_PYTHON" {self.python} {RUNNER} {area} {output(task)}'

    def filled(self, texts: Sequence[str], task: int) -> list[str]:
        """Return the names of a block's files: the placeholder for inputs expands to all of
        them."""
        if not texts:
            return []
        return (
            [output(task)]
            if texts == (output("{task}"),)
            else [*self.common, *self.items(self.grid.area(task))]
        )

    def values(self, task: int) -> dict[str, str]:
        """Return its number."""
        return {TASK: str(task)}


def output(task: int | str) -> str:
    """Return the name of the file of a block's values."""
    return f"block.{task}"


def keep_blocks(folder: Path, blocks: Blocks) -> None:
    """Write the description into a bag's folder, before the bag."""
    (folder / ABOUT).write_text(json.dumps(blocks.as_json()))


def is_of_blocks(folder: Path) -> bool:
    """Return True for the folder of a bag of blocks."""
    return (folder / ABOUT).exists()


def blocks_bag(bag: BagSpec, folder: Path) -> tuple[BagSpec, BagFiles]:
    """Return the bag of a folder with its blocks as tasks, and its files. ``bag``: its rules."""
    blocks = Blocks.read(folder)
    wave = blocks.grid.kind == "wavefront"
    bag = replace(
        bag,
        commands=blocks,
        order=blocks.grid.order if wave else None,
        outputs=(output("{task}"),),
        inputs=() if wave else ("{inputs}",),  # Wavefront blocks have no preferred node
    )
    return bag, BlockFiles(bag, folder, folder / "given", blocks=blocks)


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
        """Return the matrix file, opened on first use: a reader of the bag's status does not open
        it."""
        if self._store is None:
            self._store = MatrixStore(Path(self.blocks.matrix), write=True)
        return self._store

    @cached_property
    def _by_digest(self) -> dict[str, Path]:
        items = [*self.blocks.common.values(), *self.blocks.a, *self.blocks.b]
        return {digest: self.source / path for path, digest in items}

    def had(self, status: Sequence[int]) -> list[int]:
        """Return blocks that are not done in the journal, though their values are in the matrix
        file. Raise InputError where it lacks some that are recorded as done."""
        if any(kind == DONE and not self.store.has(task) for task, kind in enumerate(status)):
            raise InputError(
                "lacks blocks that were done",
                where=self.blocks.matrix,
                fix="start again: give the whole command",
            )
        return [
            task for task, kind in enumerate(status) if kind not in ENDED and self.store.has(task)
        ]

    def of(self, task: int) -> Files:
        """Return the inputs of a block, and its output."""
        area = self.blocks.grid.area(task)
        named = {**self.blocks.common, **self.blocks.items(area)}
        inputs = {name: digest for name, (_, digest) in named.items()}
        if self.blocks.grid.kind == "wavefront":
            inputs[EDGE] = self._edge(task)
        return Files(inputs, [output(task)])

    def digests(self, task: int) -> list[str]:
        items = self.blocks.items(self.blocks.grid.area(task))
        return [digest for _, digest in items.values()]

    def reads(self, task: int) -> list[InputFile]:
        common = {digest for _, digest in self.blocks.common.values()}
        digests = [*common, *self.digests(task)]
        reads = [InputFile(digest, self._mib(digest), digest in common) for digest in digests]
        # values around it: few, and used by this block only
        if self.blocks.grid.kind == "wavefront":
            reads.append(InputFile(f"{EDGE} {task}", _EDGE_MIB, False))
        return reads

    def _mib(self, digest: str) -> float:
        if digest not in self._sizes:
            path = self._by_digest[digest]
            self._sizes[digest] = path.stat().st_size / 2.0**20 if path.is_file() else 0.0
        return self._sizes[digest]

    def input(self, digest: str) -> Path | None:
        file = self._by_digest.get(digest)
        if file is None:
            file = next(
                (path for path, edge_digest in self._edges.values() if edge_digest == digest), None
            )
        return file

    # the values around a block

    @cached_property
    def _border(self) -> list[bytes]:
        """Return the initial values: the corner, then above the first row, then left of the first
        column."""
        grid = self.blocks.grid
        return split_values((self.source / EDGES).read_bytes(), 1 + grid.cols + grid.rows)

    def _edge(self, task: int) -> str:
        """Return the digest of the file with the values around a block."""
        # it need not be durable: after a restart it is computed again from the matrix file
        if task not in self._edges:
            body = join_values(self.around(task))
            path = self.folder / "edges" / str(task)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
            self._edges[task] = (path, hashlib.sha256(body).hexdigest())
        return self._edges[task][1]

    def around(self, task: int) -> list[bytes]:
        """Return the corner, the values above a block from left to right, and those left of it from
        top to bottom."""
        top, bottom, left, right = self.blocks.grid.area(task)
        cols, border = self.blocks.grid.cols, self._border
        up, overrides = task - self.blocks.grid.order.cols, task - 1
        if top == 0:
            above = border[left : right + 1]
        else:
            # the last row of the block above
            above = self.store.values(up)[-(right - left) :]
            above.insert(0, self._corner(up - 1) if left else border[cols + top])
        if left == 0:
            return above + border[1 + cols + top : 1 + cols + bottom]
        wide = self.blocks.grid.wide
        # the last column of the block to the left, which is never narrower than the others
        return above + self.store.values(overrides)[wide - 1 :: wide]

    def _corner(self, block: int) -> bytes:
        return self.store.values(block)[-1]

    # returned values

    def judged(self, end: AttemptEnd) -> AttemptEnd:
        """Return an end; changed to a failure where it reports success and its values are
        incomplete."""
        task = end.task
        # values of an earlier attempt that are stored decide: the file of this one may be gone
        if end.code != 0 or not 0 <= task < len(self.blocks) or self.store.has(task):
            return end
        try:
            body = (self.arriving(task, end.attempt) / output(task)).read_bytes()
            split_values(body, self.blocks.grid.count(task))
        except (OSError, InputError) as error:
            _log.warning("block %d of '%s': %s", task, self.bag.name, error)
            return end._replace(code=UNSENT)
        return end

    def keep(self, blocks: Iterable[tuple[int, int]]) -> None:
        """Write the values of these (task, attempt) to the matrix file; they are on disk on return.
        Repetition is harmless."""
        fresh = [(task, attempt) for task, attempt in blocks if not self.store.has(task)]
        self.store.append(
            (task, (self.arriving(task, attempt) / output(task)).read_bytes())
            for task, attempt in fresh
        )
        for task, _ in fresh:
            # a stored block is not computed again, so no agent fetches the values around it any
            # more
            if task in self._edges:
                self._edges.pop(task)[0].unlink(missing_ok=True)

    def commit(self, task: int, attempt: int) -> None:
        """Discard the output files: the values are in the matrix file."""
        self.discard(task, attempt)

    def close(self) -> None:
        super().close()
        if self._store is not None:
            self._store.close()


def judge_blocks(message: Message, files: Mapping[int, BagFiles]) -> Message:
    """Return a message in which blocks with incomplete values have failed."""
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
    """Write the arrived values of blocks that count to their matrix files, before the journal
    records them. Return bags where that fails."""
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
