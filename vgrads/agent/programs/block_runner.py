"""Compute a block of cells of All-Pairs or Wavefront on a node, into one file.

    vgrads-block TOP BOTTOM LEFT RIGHT OUT [MOST_S]

Its folder holds ``work.json`` (the definition of F), the items ``a/N/…`` and ``b/N/…`` or the
values around the block (``edge``). No shell is started per cell. With MOST_S it only measures:
seconds per cell, as JSON on standard output.

Standard library only, Python 3.8 or newer, no modules of vgrads. Modules that few blocks need are
imported on use: an import takes 0.05 s. Nothing is imported from its folder.
"""

from __future__ import annotations

import os
import sys

sys.path[:] = [p for p in sys.path if p != os.path.dirname(os.path.realpath(__file__))]

import json
import shutil
import signal
import time
from array import array
from collections import deque
from typing import Any, Callable, Iterator, NoReturn, Sequence, Tuple

Cell = Tuple[int, int]

_TEXT = 2000  # bytes of standard error that are reported
_FEW, _SOON_S = 16, 0.5  # cells in this many seconds are enough to measure
_BUFFER = 1 << 16


class Failed(Exception):
    """A cell cannot be computed."""


class Enough(Exception):
    """The measurement is complete."""


class Block:
    """The block to compute, and the paths of its items."""

    def __init__(self, work: dict[str, Any], words: Sequence[str]) -> None:
        self.work = work
        self.top, self.bottom, self.left, self.right = (int(word) for word in words[:4])
        self.wave = work["kind"] == "wavefront"
        self.most_s = float(words[5]) if len(words) > 5 else 0.0
        self.count, self.began_s = 0, 0.0
        if self.wave:
            high, wide = self.bottom - self.top, self.right - self.left
            edge = parted(_read_bytes("edge"), 1 + wide + high)
            self.above, self.before = edge[: wide + 1], edge[wide + 1 :]

    def cells(self) -> Iterator[Cell]:
        """Return the cells row by row."""
        for i in range(self.top, self.bottom):
            for j in range(max(i, self.left) if self.work["half"] else self.left, self.right):
                yield i, j

    def name(self, cell: Cell) -> str:
        """Return the display name of a cell."""
        if self.wave:
            return f"cell {cell[0] + self.work['x']} {cell[1] + self.work['y']}"
        names = [os.path.basename(item_of(side, n)) for side, n in zip("ab", cell)]
        return f"cell {cell[0]} {cell[1]} ({names[0]}, {names[1]})"

    def around(self) -> Iterator[tuple[Cell, bytes]]:
        """Return the values around the block, with their cells."""
        for n, value in enumerate(self.above):
            yield (self.top - 1, self.left - 1 + n), value
        for n, value in enumerate(self.before):
            yield (self.top + n, self.left - 1), value

    def fail(self, cell: Cell, why: str) -> NoReturn:
        """Raise Failed for a cell, with this reason."""
        raise Failed(f"{self.name(cell)}: {why}") from None

    def counted(self) -> None:
        """Count one more cell; raise Enough when the measurement is complete."""
        self.count += 1
        took_s = time.monotonic() - self.began_s
        if took_s >= self.most_s or (took_s >= _SOON_S and self.count >= _FEW):
            raise Enough


def _read_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def item_of(side: str, number: int) -> str:
    """Return the path of an item."""
    return f"{side}/{number}/{os.listdir(f'{side}/{number}')[0]}"


def parted(body: bytes, count: int) -> list[bytes]:
    """Split a body into values: lengths first, then the values."""
    lengths = array("I", body[: 4 * count])
    if sys.byteorder == "big":
        lengths.byteswap()
    results, at = [], 4 * count
    for length in lengths:
        results.append(body[at : at + length])
        at += length
    return results


def joined(values: Sequence[bytes]) -> bytes:
    """Join values: lengths first, then the values."""
    lengths = array("I", [len(value) for value in values])
    if sys.byteorder == "big":
        lengths.byteswap()
    return lengths.tobytes() + b"".join(values)


# -- programs: F Aitem Bitem, F Xitem Yitem Ditem


class Programs:
    """Runs F as processes, as many at once as the block has processors."""

    def __init__(self, block: Block) -> None:
        self.block, self.work = block, block.work
        self.words = list(self.work["function"])
        if self.work["shipped"]:
            os.makedirs("bin", exist_ok=True)
            own = "bin/" + os.path.basename(self.words[0])
            shutil.copyfile(self.words[0], own)
            os.chmod(own, 0o755)
            self.words[0] = os.path.abspath(own)
        else:
            self.words[0] = shutil.which(self.words[0]) or self.words[0]
        self.lanes = list(range(self.work["procs"]))
        self.running: dict[int, tuple[Cell, int, str]] = {}
        self.values: dict[Cell, bytes] = {}
        self.pairs: dict[tuple[str, int], str] = {}

    def run(self) -> list[bytes]:
        """Return all values, row by row."""
        block = self.block
        if block.wave:
            os.makedirs("R", exist_ok=True)
            for cell, value in block.around():
                with open(self.path(cell), "wb") as file:
                    file.write(value)
            waiting = deque([(block.top, block.left)])
        else:
            waiting = deque(block.cells())
        try:
            while waiting or self.running:
                while waiting and self.lanes:
                    self.begin(waiting.popleft())
                cell = self.end()
                if block.wave:
                    waiting.extend(self.ready_after(cell))
                if block.most_s:
                    block.counted()
        finally:
            for pid in self.running:
                # the block has failed, or enough was measured: the values
                # of these cells are not needed
                os.kill(pid, signal.SIGKILL)
        return [self.values[cell] for cell in block.cells()]

    def ready_after(self, cell: Cell) -> Iterator[Cell]:
        """Return the cells below and right of a cell whose other neighbour is computed."""
        block, (i, j) = self.block, cell
        if i + 1 < block.bottom and (j == block.left or (i + 1, j - 1) in self.values):
            yield i + 1, j
        if j + 1 < block.right and (i == block.top or (i - 1, j + 1) in self.values):
            yield i, j + 1

    def path(self, cell: Cell) -> str:
        """Return the file of a cell's value."""
        return f"R/R.{cell[0] + self.work['x']}.{cell[1] + self.work['y']}"

    def items(self, cell: Cell) -> list[str]:
        """Return the arguments of F for a cell."""
        i, j = cell
        if self.block.wave:
            return [self.path((i - 1, j)), self.path((i, j - 1)), self.path((i - 1, j - 1))]
        rows = []
        for side, number in (("a", i), ("b", j)):
            if (side, number) not in self.pairs:
                self.pairs[side, number] = item_of(side, number)
            rows.append(self.pairs[side, number])
        return rows

    def begin(self, cell: Cell) -> None:
        lane = self.lanes.pop()
        out = self.path(cell) if self.block.wave else f"out.{lane}"
        new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, out, new, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, f"err.{lane}", new, 0o600),
        ]
        try:
            pid = os.posix_spawn(
                self.words[0], self.words + self.items(cell), os.environ, file_actions=actions
            )
        except OSError as error:
            self.block.fail(cell, f"{self.words[0]} cannot be started: {error}")
        self.running[pid] = (cell, lane, out)

    def end(self) -> Cell:
        """Wait until a cell is computed and return it."""
        pid, status = os.waitpid(-1, 0)
        cell, lane, out = self.running.pop(pid)
        self.lanes.append(lane)
        if status:
            how = (
                f"was killed by signal {os.WTERMSIG(status)}"
                if os.WIFSIGNALED(status)
                else f"exited with code {os.WEXITSTATUS(status)}"
            )
            text = _read_bytes(f"err.{lane}")[-_TEXT:].decode("utf-8", "replace").strip()
            self.block.fail(cell, f"F {how}: {text}".rstrip(": "))
        value = _read_bytes(out)
        if not value:
            self.block.fail(cell, "F printed nothing")
        self.values[cell] = value
        return cell


# -- functions in this process: of a shared library, or of Python


def library(work: dict[str, Any]) -> Callable[..., bytes]:
    """Load ``long F(const char *a, size_t a_bytes, …, char *result, size_t room)`` from a library.

    It returns the length of the result in bytes, negative on failure. If the result needs more
    room, F is called again with it. Called by several threads at once.
    """
    import ctypes
    import threading

    function = getattr(ctypes.CDLL(os.path.abspath(work["function"][0])), work["function"][1])
    items, size_t = 3 if work["kind"] == "wavefront" else 2, ctypes.c_size_t
    function.argtypes = [ctypes.c_char_p, size_t] * items + [ctypes.c_void_p, size_t]
    function.restype = ctypes.c_long
    own: Any = threading.local()

    def room(size: int) -> None:
        own.size, own.buffer = size, ctypes.create_string_buffer(size)
        own.address = ctypes.addressof(own.buffer)

    def call(*values: bytes) -> bytes:
        if not hasattr(own, "size"):
            room(_BUFFER)
        words = [part for item in values for part in (item, len(item))]
        got = function(*words, own.address, own.size)
        if got > own.size:
            room(got)
            got = function(*words, own.address, own.size)
        if got < 0:
            raise Failed(f"F returned {got}")
        return ctypes.string_at(own.address, got)

    return call


def python(work: dict[str, Any]) -> Callable[..., bytes]:
    """Load F from Python: F(a, b) or F(x, y, d) of bytes; returns bytes, text or a number."""
    import importlib
    import importlib.util

    sys.path.insert(0, os.getcwd())  # for modules that were sent along
    where, name = work["function"]
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(os.path.basename(where)[:-3], where)
        if spec is None or spec.loader is None:
            raise ImportError(where)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    function = getattr(module, name)

    def call(*values: bytes) -> bytes:
        value = function(*values)
        if isinstance(value, (bytes, bytearray)):
            return bytes(value)
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, (int, float)):
            return repr(value).encode()
        raise Failed(f"F returned {type(value).__name__}, not bytes, text or a number")

    return call


class Functions:
    """Runs F in this process; a library function in several threads."""

    def __init__(self, block: Block, call: Callable[..., bytes]) -> None:
        self.block, self.call = block, call

    def compute_cell(self, cell: Cell, *values: bytes) -> bytes:
        """Return the value of a cell; Failed names the cell."""
        try:
            value = self.call(*values)
        except Failed as error:
            self.block.fail(cell, str(error))
        except Enough:
            raise
        except Exception as error:  # a user's function may raise anything
            self.block.fail(cell, f"F raised {type(error).__name__}: {error}")
        if not value:
            self.block.fail(cell, "F returned nothing")
        if self.block.most_s:
            self.block.counted()
        return value

    def run(self) -> list[bytes]:
        """Return all values, row by row."""
        procs = self.block.work["procs"]
        if self.block.wave:
            return self.wave_by_threads(procs) if procs > 1 else self.wave()
        columns = range(self.block.left, self.block.right)
        right = {j: _read_bytes(item_of("b", j)) for j in columns}

        def row(i: int) -> list[bytes]:
            left = _read_bytes(item_of("a", i))
            first = max(i, self.block.left) if self.block.work["half"] else self.block.left
            return [
                self.compute_cell((i, j), left, right[j]) for j in range(first, self.block.right)
            ]

        rows = range(self.block.top, self.block.bottom)
        if procs == 1:
            results = [row(i) for i in rows]
        else:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(procs) as threads:
                results = list(threads.map(row, rows))
        return [value for values in results for value in values]

    def wave(self) -> list[bytes]:
        """Compute in this thread, row by row."""
        block, compute_cell, above = self.block, self.compute_cell, self.block.above
        values: list[bytes] = []
        for i, left in zip(range(block.top, block.bottom), block.before):
            row = [left]
            for n, j in enumerate(range(block.left, block.right)):
                row.append(compute_cell((i, j), above[n + 1], row[n], above[n]))
            values += row[1:]
            above = row
        return values

    def wave_by_threads(self, procs: int) -> list[bytes]:
        """Compute in threads, anti-diagonal by anti-diagonal."""
        from concurrent.futures import ThreadPoolExecutor

        block = self.block
        at = dict(block.around())

        def cell(place: Cell) -> bytes:
            i, j = place
            return self.compute_cell(place, at[i - 1, j], at[i, j - 1], at[i - 1, j - 1])

        with ThreadPoolExecutor(procs) as threads:
            for both in range(block.top + block.left, block.bottom + block.right - 1):
                rows = range(
                    max(block.top, both - block.right + 1), min(block.bottom, both - block.left + 1)
                )
                places = [(i, both - i) for i in rows]
                at.update(zip(places, threads.map(cell, places)))
        return [at[place] for place in block.cells()]


def main() -> None:
    """Compute the block; return 1 where a cell fails, which standard error names."""
    with open("work.json") as file:
        work = json.load(file)
    block = Block(work, sys.argv[1:])
    try:
        if work["form"] == "program":
            worker: Programs | Functions = Programs(block)
        else:
            worker = Functions(block, (library if work["form"] == "library" else python)(work))
        block.began_s = time.monotonic()
        values = worker.run()
    except Enough:
        values = []
    except (Failed, OSError, AttributeError, ImportError, SyntaxError) as error:
        sys.exit(str(error) if isinstance(error, Failed) else f"F cannot be loaded: {error}")
    if block.most_s:
        took_s = time.monotonic() - block.began_s
        print(json.dumps({"cells": block.count, "seconds": took_s}))
        return
    with open(sys.argv[5], "wb") as file:
        file.write(joined(values))


if __name__ == "__main__":
    main()
