"""All-Pairs and Wavefront from files: the problem, the run time of a cell, and a bag of blocks for
it."""

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

from vgrads.agent.programs import block_runner
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
from vgrads.dispatch.storage.matrix_store import MatrixStore, join_values
from vgrads.kernel.errors import InputError
from vgrads.kernel.user_files import copy_user_file, open_user_file, read_user_file
from vgrads.workflows.generated.blocks import MOST_SIDE, BlockGrid

MEASURE_S = 5.0
"""Time for which F is measured before a block is chosen."""
_FIRST, _MEMORY = 100, 512 * 2**20  # bytes of items that a block may read
_TAKEN = (RUNNER, WORK, EDGE, "a", "b", "R", "bin")  # reserved names in the folder of a block
_TRIED = 32  # side of the measured block, in cells


@dataclass(frozen=True, kw_only=True)
class Function:
    """F. ``form``: program, library or python; ``words``: the program and its own arguments, or a
    file or module and a name in it; ``file``: the file to be sent to agents, None if they have it
    by its name."""

    form: str
    words: tuple[str, ...]
    file: Path | None = None


def program(words: Sequence[str]) -> Function:
    """Return an executable that is called with the items after its own arguments, and prints the
    value."""
    if not words:
        raise InputError(
            "is missing", where="FUNCTION", fix="name an executable, or give --library or --python"
        )
    file = Path(words[0])
    # agents look such a name up in their own PATH: no file is sent
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
    """Return a C function of a shared library (signature:
    :func:`vgrads.agent.programs.block_runner.library`)."""
    if not file.is_file():
        raise InputError("no such file", where=str(file))
    return Function(form="library", words=(file.name, symbol), file=file.resolve())


def python(text: str) -> Function:
    """Parse FILE.py:NAME, or MODULE:NAME if agents have the module."""
    where, _, name = text.rpartition(":")
    if not where or not name.isidentifier():
        raise InputError(
            f"is not a function: '{text}'",
            where="--python",
            fix="give file.py:function or module:function",
        )
    if not where.endswith(".py"):
        return Function(form="python", words=(where, name))
    if not Path(where).is_file():
        raise InputError("no such file", where=where)
    return Function(form="python", words=(Path(where).name, name), file=Path(where).resolve())


@dataclass(frozen=True, kw_only=True)
class MatrixProblem:
    """The problem to be computed. ``a``, ``b``: items as (name as given, file); ``border``: of a
    Wavefront, the corner, the values above the first row, those left of the first column; ``x``,
    ``y``: position of its first cell; ``procs``: processors of a block; ``more``: other files that
    F reads, by their names."""

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
        """Number of items that fit into memory, by the mean size of the first hundred."""
        sizes = [path.stat().st_size for _, path in [*self.a[:_FIRST], *self.b[:_FIRST]]]
        mean = max(1.0, sum(sizes) / max(1, len(sizes)))
        return max(1, min(MOST_SIDE, int(_MEMORY / mean)))

    def grid(self, side: int) -> BlockGrid:
        """Return its cells in blocks."""
        high, wide = (side, side) if self.half else (min(side, self.rows), min(side, self.cols))
        return BlockGrid(self.kind, self.rows, self.cols, high, wide, self.half)


def read_items(path: Path) -> list[tuple[str, Path]]:
    """Return the files of a folder by name, or those of a list, one per line, relative to the
    list's folder."""
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        results = [(str(file), file.resolve()) for file in files]
    else:
        results = []
        try:
            lines = read_user_file(path, any_kind=True).decode().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"cannot be read: {error}", where=str(path), fix="name a folder, or a list of files"
            ) from error
        for n, line in enumerate(lines, 1):
            if line.strip():
                file = (path.parent / line.strip()).resolve()
                if not file.is_file():
                    raise InputError(f"'{line.strip()}' is missing", where=f"{path}: line {n}")
                results.append((line.strip(), file))
    if not results:
        raise InputError("has no items", where=str(path))
    return results


def read_border(
    path: Path, x: int, y: int, rows: int | None, cols: int | None
) -> tuple[int, int, list[bytes]]:
    """Return rows, columns and border of a Wavefront whose first cell is (x, y), from files
    ``R.x.y`` or lines ``x y value``.

    Rows go with x, columns with y; a missing number is derived from the length of the edge.
    """
    value = _list_files(path) if path.is_dir() else _read_lines(path)
    if rows is None:
        rows = next(n for n in range(1 << 30) if value(x + n, y - 1) is None)
    if cols is None:
        cols = next(n for n in range(1 << 30) if value(x - 1, y + n) is None)
    places = [(x - 1, y - 1 + n) for n in range(cols + 1)] + [(x + n, y - 1) for n in range(rows)]
    # nothing was found: the error below names the first edge that is missing
    if not rows or not cols:
        places = [(x - 1, y - 1), (x, y - 1), (x - 1, y)]
    results = []
    for i, j in places:
        got = value(i, j)
        if got is None:
            raise InputError(
                f"the edge R.{i}.{j} is missing",
                where=str(path),
                fix=f"add a file R.{i}.{j}, or a line '{i} {j} VALUE'",
            )
        results.append(got)
    return rows, cols, results


def _list_files(folder: Path) -> Callable[[int, int], bytes | None]:
    def value(i: int, j: int) -> bytes | None:
        path = folder / f"R.{i}.{j}"
        return read_user_file(path) if path.is_file() else None

    return value


def _read_lines(path: Path) -> Callable[[int, int], bytes | None]:
    problem_files = {}
    try:
        lines = read_user_file(path, any_kind=True).splitlines()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    for n, line in enumerate(lines, 1):
        try:
            if line.strip():
                i, j, value = line.split(None, 2)
                problem_files[int(i), int(j)] = value
        except ValueError as error:
            raise InputError("is not an edge: x y value", where=f"{path}: line {n}") from error
    return lambda i, j: problem_files.get((i, j))


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        with open_user_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error


@dataclass(frozen=True)
class Digests:
    """Digests of all files of a problem: computed once."""

    function: str
    a: Sequence[str]
    b: Sequence[str]
    more: Sequence[str]

    @classmethod
    def of(cls, problem: MatrixProblem) -> Digests:
        """Read everything."""
        file = problem.function.file
        a = [digest_of(path) for _, path in problem.a]
        same = problem.half or problem.a == problem.b
        b = a if same else [digest_of(path) for _, path in problem.b]
        return cls(
            digest_of(file) if file else "", a, b, [digest_of(path) for path in problem.more]
        )


def about(
    problem: MatrixProblem, digests: Digests, grid: BlockGrid, cell_s: float
) -> dict[str, Any]:
    """Return the header of a matrix file: enough to identify and to print it."""
    function = problem.function
    inputs = json.dumps([digests.a, [] if problem.half else digests.b, digests.more])
    border = hashlib.sha256(join_values(list(problem.border))).hexdigest() if problem.border else ""
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
    """Raise InputError for the matrix file of another problem."""
    previous = store.about.get("what", {})
    other = [name for name in what if previous.get(name) != what[name]]
    if other:
        raise InputError(
            f"belongs to another problem: {', '.join(other)} "
            f"differ{'s' if len(other) == 1 else ''}",
            where=str(store.path),
            fix="name another file with --matrix, or remove this one",
        )


def lay_out(
    place: Path, problem: MatrixProblem, digests: Digests, grid: BlockGrid, matrix: Path
) -> Blocks:
    """Create a bag's folder of blocks: the current function and runner, and their description."""
    folder, function = place / "given", problem.function
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(block_runner.__file__), folder / RUNNER)
    shipped = [*problem.more, *([function.file] if function.file else [])]
    names = [path.name for path in shipped]
    for n, name in enumerate(names):
        if name in _TAKEN or name in names[:n]:
            raise InputError(
                f"the name '{name}' is already in use", where="FUNCTION", fix="rename the file"
            )
    for path in shipped:
        copy_user_file(path, folder / path.name)
    if problem.border:
        (folder / EDGES).write_bytes(join_values(list(problem.border)))
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
    (folder / WORK).write_text(json.dumps(work))
    common = {name: (name, digest_of(folder / name)) for name in (RUNNER, WORK, *names)}
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
    """``cells`` were computed in ``seconds``; ``more``: not a single one was, in that time."""

    cells: int
    seconds: float
    more: bool = False

    @property
    def cell_s(self) -> float:
        """Seconds per cell."""
        return self.seconds / max(1, self.cells)


def measure(problem: MatrixProblem, digests: Digests) -> Measured:
    """Measure the run time of F per cell here, with the first cells, called as on agents;
    InputError if it fails."""
    with tempfile.TemporaryDirectory(prefix="vgrads-") as folder:
        place, stage = Path(folder) / "bag", Path(folder) / "stage"
        matrix_problem = replace(problem, procs=1)
        blocks = lay_out(
            place, matrix_problem, digests, matrix_problem.grid(_TRIED), place / "none"
        )
        files = BlockFiles(_empty_folder(place), place, place / "given", blocks=blocks)
        area = blocks.grid.area(0)
        for name, (path, _) in {**blocks.common, **blocks.items(area)}.items():
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            (stage / name).symlink_to(place / "given" / path)
        if problem.border:
            (stage / EDGE).write_bytes(join_values(files.around(0)))
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
                # the whole group, because F may have started processes of its own
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    if process.returncode:
        how = f"was killed by signal {-process.returncode}" if process.returncode < 0 else "failed"
        raise InputError(err.strip() or f"F {how} in one of the first cells", where="FUNCTION")
    measured = json.loads(out.splitlines()[-1])
    return Measured(measured["cells"], measured["seconds"])


def _empty_folder(folder: Path) -> Any:
    document = BagDocument(name="blocks", command="block")
    return blocks_bag(build_bag(document, folder), folder)[0]


def lines_of(store: MatrixStore) -> Iterator[str]:
    """Return ``a b value`` or ``x y value`` for each computed cell; a line break within a value is
    shown as \\n."""
    x, y = store.about["what"]["first cell"]
    wave = store.grid.kind == "wavefront"
    for row, col, value in store.cells():
        text = value.decode("utf-8", "backslashreplace").removesuffix("\n").replace("\n", "\\n")
        if wave:
            yield f"{row + x} {col + y} {text}\n"
        else:
            yield f"{store.about['a'][row]} {store.about['b'][col]} {text}\n"
