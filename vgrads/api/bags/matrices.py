"""All-Pairs and Wavefront from files: what is to be computed, how long a cell takes, and a bag of
blocks for it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vgrads.agent import block_runner
from vgrads.dispatch.document import BagDocument, build_bag
from vgrads.dispatch.storage.block_files import (
    EDGE,
    EDGES,
    RUNNER,
    WORK,
    BlockFiles,
    Blocks,
    blocks_bag,
    keep_blocks,
)
from vgrads.dispatch.storage.matrix_store import MatrixStore, joined
from vgrads.kernel.errors import InputError
from vgrads.workflows.generated.blocks import MOST_SIDE, Grid

MEASURE_S = 5.0
"""So long F is tried before a block is chosen."""
_FIRST, _MEMORY = 100, 512 * 2**20  # bytes of items that a block may read
_TAKEN = (RUNNER, WORK, EDGE, "a", "b", "R", "bin")  # names in the folder of a block
_TRIED = 32  # cells of a side of the block that is tried


@dataclass(frozen=True, kw_only=True)
class Function:
    """F. ``form``: program, library or python; ``words``: the program and its own arguments, or a
    file or module and a name in it; ``file``: what is to travel to hosts, None for what is there by
    its name."""

    form: str
    words: tuple[str, ...]
    file: Path | None = None


def program(words: Sequence[str]) -> Function:
    """An executable that is called with the items behind its own arguments, and prints the
    value."""
    if not words:
        raise InputError(
            "is missing", where="FUNCTION", fix="name an executable, or give --library or --python"
        )
    file = Path(words[0])
    if "/" not in words[0] and not file.is_file():
        if shutil.which(words[0]) is None:
            raise InputError("no such file, and no program of this name here", where=words[0])
        return Function(form="program", words=tuple(words))
    if not file.is_file():
        raise InputError("no such file", where=words[0])
    if not os.access(file, os.X_OK):
        raise InputError("is not executable", where=words[0], fix=f"chmod +x {words[0]}")
    return Function(form="program", words=tuple(words), file=file.resolve())


def library(file: Path, symbol: str) -> Function:
    """A C function of a shared library (:func:`vgrads.agent.block_runner.library` says of which
    signature)."""
    if not file.is_file():
        raise InputError("no such file", where=str(file))
    return Function(form="library", words=(file.name, symbol), file=file.resolve())


def python(text: str) -> Function:
    """FILE.py:NAME, or MODULE:NAME where hosts have the module."""
    where, _, name = text.rpartition(":")
    if not where or not name.isidentifier():
        raise InputError(
            f"is no function: '{text}'",
            where="--python",
            fix="file.py:function, or module:function",
        )
    if not where.endswith(".py"):
        return Function(form="python", words=(where, name))
    if not Path(where).is_file():
        raise InputError("no such file", where=where)
    return Function(form="python", words=(Path(where).name, name), file=Path(where).resolve())


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is to be computed. ``a``, ``b``: items as (name as it was given, file); ``border``: of a
    Wavefront, the corner, the values above the first row, those left of the first column; ``x``,
    ``y``: where its first cell lies; ``procs``: processors of a block; ``more``: other files that F
    reads, by their names."""

    kind: str
    rows: int
    cols: int
    function: Function
    half: bool = False
    a: Sequence[tuple[str, Path]] = ()
    b: Sequence[tuple[str, Path]] = ()
    border: Sequence[bytes] = field(default=(), repr=False)
    x: int = 0
    y: int = 0
    procs: int = 1
    more: Sequence[Path] = ()

    @property
    def most_side(self) -> int:
        """Items that fit into memory, by the mean size of the first hundred."""
        sizes = [path.stat().st_size for _, path in [*self.a[:_FIRST], *self.b[:_FIRST]]]
        mean = max(1.0, sum(sizes) / max(1, len(sizes)))
        return max(1, min(MOST_SIDE, int(_MEMORY / mean)))

    def grid(self, side: int) -> Grid:
        """Its cells in blocks."""
        high, wide = (side, side) if self.half else (min(side, self.rows), min(side, self.cols))
        return Grid(self.kind, self.rows, self.cols, high, wide, self.half)


def items_of(path: Path) -> list[tuple[str, Path]]:
    """The files of a folder by name, or those that a list names, one on each line, from the list's
    folder on."""
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        found = [(str(file), file.resolve()) for file in files]
    else:
        found = []
        try:
            lines = path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"cannot be read: {error}", where=str(path), fix="name a folder, or a list of files"
            ) from error
        for n, line in enumerate(lines, 1):
            if line.strip():
                file = (path.parent / line.strip()).resolve()
                if not file.is_file():
                    raise InputError(f"'{line.strip()}' is missing", where=f"{path}: line {n}")
                found.append((line.strip(), file))
    if not found:
        raise InputError("has no items", where=str(path))
    return found


def border_of(
    path: Path, x: int, y: int, rows: int | None, cols: int | None
) -> tuple[int, int, list[bytes]]:
    """Rows, columns and border of a Wavefront whose first cell is (x, y), from files ``R.x.y`` or
    lines ``x y value``.

    Rows go with x, columns with y; what is not stated is as long as the edge is.
    """
    value = _files_of(path) if path.is_dir() else _lines_of(path)
    if rows is None:
        rows = next(n for n in range(1 << 30) if value(x + n, y - 1) is None)
    if cols is None:
        cols = next(n for n in range(1 << 30) if value(x - 1, y + n) is None)
    places = [(x - 1, y - 1 + n) for n in range(cols + 1)] + [(x + n, y - 1) for n in range(rows)]
    if not rows or not cols:
        places = [(x - 1, y - 1), (x, y - 1), (x - 1, y)]
    found = []
    for i, j in places:
        got = value(i, j)
        if got is None:
            raise InputError(
                f"the edge R.{i}.{j} is missing",
                where=str(path),
                fix=f"a file R.{i}.{j}, or a line '{i} {j} VALUE'",
            )
        found.append(got)
    return rows, cols, found


def _files_of(folder: Path) -> Callable[[int, int], bytes | None]:
    def value(i: int, j: int) -> bytes | None:
        path = folder / f"R.{i}.{j}"
        return path.read_bytes() if path.is_file() else None

    return value


def _lines_of(path: Path) -> Callable[[int, int], bytes | None]:
    found = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    for n, line in enumerate(lines, 1):
        try:
            if line.strip():
                i, j, value = line.split(None, 2)
                found[int(i), int(j)] = value
        except ValueError as error:
            raise InputError("is no edge: x y value", where=f"{path}: line {n}") from error
    return lambda i, j: found.get((i, j))


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error


@dataclass(frozen=True)
class Digests:
    """Of all that a problem reads: found once."""

    function: str
    a: Sequence[str]
    b: Sequence[str]
    more: Sequence[str]

    @classmethod
    def of(cls, problem: Problem) -> Digests:
        """Read everything."""
        file = problem.function.file
        a = [digest_of(path) for _, path in problem.a]
        same = problem.half or problem.a == problem.b
        b = a if same else [digest_of(path) for _, path in problem.b]
        return cls(
            digest_of(file) if file else "", a, b, [digest_of(path) for path in problem.more]
        )


def about(problem: Problem, digests: Digests, grid: Grid, cell_s: float) -> dict[str, Any]:
    """What a matrix file begins with: enough to know it again, and to print it."""
    function = problem.function
    inputs = json.dumps([digests.a, [] if problem.half else digests.b, digests.more])
    border = hashlib.sha256(joined(list(problem.border))).hexdigest() if problem.border else ""
    return {
        "format": 1,
        "grid": grid.as_json(),
        "cell_s": cell_s,
        "what": {
            "kind": problem.kind,
            "rows": problem.rows,
            "columns": problem.cols,
            "symmetric": problem.half,
            "first cell": [problem.x, problem.y],
            "function": [function.form, *function.words, digests.function],
            "items": hashlib.sha256(inputs.encode()).hexdigest(),
            "edges": border,
        },
        "a": [name for name, _ in problem.a],
        "b": [name for name, _ in (problem.a if problem.half else problem.b)],
    }


def check_same(store: MatrixStore, what: dict[str, Any]) -> None:
    """InputError for the matrix file of another problem."""
    known = store.about.get("what", {})
    other = [name for name in what if known.get(name) != what[name]]
    if other:
        raise InputError(
            f"is of another problem: {', '.join(other)} differ{'s' if len(other) == 1 else ''}",
            where=str(store.path),
            fix="name another file with --matrix, or remove this one",
        )


def lay_out(place: Path, problem: Problem, digests: Digests, grid: Grid, matrix: Path) -> Blocks:
    """Make a bag's folder of blocks: the function and the runner as they are now, and what
    describes them."""
    given, function = place / "given", problem.function
    given.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(block_runner.__file__), given / RUNNER)
    shipped = [*problem.more, *([function.file] if function.file else [])]
    names = [path.name for path in shipped]
    for n, name in enumerate(names):
        if name in _TAKEN or name in names[:n]:
            raise InputError(f"the name '{name}' is taken", where="FUNCTION", fix="rename the file")
    for path in shipped:
        shutil.copyfile(path, given / path.name)
    if problem.border:
        (given / EDGES).write_bytes(joined(list(problem.border)))
    words = list(function.words)
    if function.file is not None:
        words[0] = function.file.name
    work = {
        "kind": problem.kind,
        "half": problem.half,
        "x": problem.x,
        "y": problem.y,
        "form": function.form,
        "function": words,
        "shipped": function.file is not None,
        "procs": problem.procs,
    }
    (given / WORK).write_text(json.dumps(work))
    common = {name: (name, digest_of(given / name)) for name in (RUNNER, WORK, *names)}
    blocks = Blocks(
        grid,
        str(matrix.resolve()),
        "-B" if function.form == "python" else "-ISB",
        common,
        [(str(path), digest) for (_, path), digest in zip(problem.a, digests.a, strict=True)],
        []
        if problem.half
        else [(str(p), d) for (_, p), d in zip(problem.b, digests.b, strict=True)],
    )
    keep_blocks(place, blocks)
    return blocks


@dataclass(frozen=True)
class Measured:
    """``cells`` were computed in ``seconds``; ``more``: not one was, in that time."""

    cells: int
    seconds: float
    more: bool = False

    @property
    def cell_s(self) -> float:
        """Of a cell."""
        return self.seconds / max(1, self.cells)


def measure(problem: Problem, digests: Digests) -> Measured:
    """How long F takes here for a cell, by the first ones, as hosts will call it; InputError where
    it fails."""
    with tempfile.TemporaryDirectory(prefix="vgrads-") as folder:
        place, stage = Path(folder) / "bag", Path(folder) / "stage"
        one = replace(problem, procs=1)
        blocks = lay_out(place, one, digests, one.grid(_TRIED), place / "none")
        files = BlockFiles(_empty(place), place, place / "given", blocks=blocks)
        area = blocks.grid.area(0)
        for name, (path, _) in {**blocks.common, **blocks.items(area)}.items():
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            (stage / name).symlink_to(place / "given" / path)
        if problem.border:
            (stage / EDGE).write_bytes(joined(files.around(0)))
        process = subprocess.Popen(
            f"{blocks.command(0)} {MEASURE_S}",
            shell=True,
            cwd=stage,
            env={**os.environ, "VGRADS_PYTHON": "python3"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        try:
            out, err = process.communicate(timeout=MEASURE_S + 1.0)
        except subprocess.TimeoutExpired:
            return Measured(0, MEASURE_S, more=True)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    if process.returncode:
        how = f"was killed by signal {-process.returncode}" if process.returncode < 0 else "failed"
        raise InputError(err.strip() or f"F {how} in one of the first cells", where="FUNCTION")
    told = json.loads(out.splitlines()[-1])
    return Measured(told["cells"], told["seconds"])


def _empty(place: Path) -> Any:
    document = BagDocument(name="blocks", command="block")
    return blocks_bag(build_bag(document, place), place)[0]


def lines_of(store: MatrixStore) -> Iterator[str]:
    """``a b value`` or ``x y value`` for each cell that is there; a line break within a value is
    shown as \\n."""
    x, y = store.about["what"]["first cell"]
    wave = store.grid.kind == "wavefront"
    for row, col, value in store.cells():
        text = value.decode("utf-8", "backslashreplace").removesuffix("\n").replace("\n", "\\n")
        if wave:
            yield f"{row + x} {col + y} {text}\n"
        else:
            yield f"{store.about['a'][row]} {store.about['b'][col]} {text}\n"
