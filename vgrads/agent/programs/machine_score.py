"""Benchmark of a node's machine: the script that measures it, and the parser of its output.

The script of :func:`score_script` is this file: it needs only Python 3.8, takes at most about half
a minute, and prints one line of JSON. Scores are rates (more is faster), comparable only with each
other: ``cpu_score`` is work of one core in units per second (integers, floats, text and tables in
plain loops, hashing and packing of buffers: the geometric mean of three), ``io_score`` MiB per
second written to the disk and read again in the working directory. Both are the median of three
rounds. Data just written is read from memory where the system ignores the advice to drop it, so
writing to the disk has the most weight. Each task kind depends on other parts of a machine, so one
score for all is a first estimate (Bader et al., Lotaru, doi:10.48550/arXiv.2309.06918).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROUNDS = 3
CPU_S = 1.5  # for each kind of work in each round
FILE_MIB = 256
IO_S = 3.0  # a round stops writing after this time
PART_MIB = 16
STRETCH_S = 0.1


@dataclass(frozen=True)
class MachineScore:
    """Scores of a machine: rates (more is faster), its usable cores, its memory (None: unknown)."""

    cpu_score: float
    io_score: float
    cores: int
    memory_mib: float | None = None


def score_script() -> str:
    """Return the text of a script that measures the machine it runs on: ``python3 SCRIPT
    [FOLDER]``."""
    return Path(__file__).read_text(encoding="utf-8")


def parse_score(text: str) -> MachineScore:
    """Parse the score from the script's output, ignoring what a login shell prints around it. Raise
    ValueError with the error."""
    for line in reversed(text.splitlines()):
        if line.lstrip().startswith("{") and '"cpu_score"' in line:
            return _check_line(line.strip())
    raise ValueError(
        "no line with a cpu_score; what was printed ends with " + repr(text.strip()[-200:])
    )


def _check_line(line: str) -> MachineScore:
    try:
        payload = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the line with the score is not valid JSON: {error}") from error
    rates = {name: _require_positive(payload, name) for name in ("cpu_score", "io_score")}
    cores = _require_positive(payload, "cores")
    if cores != int(cores):
        raise ValueError(f"cores is {cores}, which is not a whole number")
    memory = None if payload.get("memory_mib") is None else _require_positive(payload, "memory_mib")
    return MachineScore(cores=int(cores), memory_mib=memory, **rates)


def _require_positive(payload: dict[str, object], name: str) -> float:
    value = payload.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} is {value!r:.40}, which is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number <= 0:
        raise ValueError(f"{name} is {number}, which is not a rate")
    return number


def measure(folder: str = ".", cpu_s: float = CPU_S, file_mib: int = FILE_MIB) -> MachineScore:
    """Measure this machine: three rounds of work of ``cpu_s`` seconds each, and of files of
    ``file_mib`` at most."""
    kinds = (_run_loops, _hash_buffers, _process_tables)
    rates = []
    for work in kinds:
        work()  # once, to load modules that are loaded on first use
    for _ in range(ROUNDS):
        each = [_rate(work, cpu_s) for work in kinds]
        rates.append(math.exp(sum(math.log(rate) for rate in each) / len(each)))
    disk = [_measure_file_rate(folder, file_mib) for _ in range(ROUNDS)]
    return MachineScore(
        cpu_score=round(_compute_middle(rates), 3),
        io_score=round(_compute_middle(disk), 3),
        cores=_list_cores(),
        memory_mib=_read_memory_mib(),
    )


def _compute_middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _rate(work: Callable[[], object], for_s: float) -> float:
    """Return how often per second a piece of work is done, in the best of short intervals: other
    processes on the machine only slow it.

    CPU time is measured, so that waiting for a core does not count; wall time ends the measurement.
    """
    best, until = 0.0, time.perf_counter() + for_s
    while best == 0.0 or time.perf_counter() < until:
        begin, done, stretch = time.process_time(), 0, 0.0
        while stretch < min(STRETCH_S, for_s):
            work()
            done += 1
            stretch = time.process_time() - begin
        best = max(best, done / stretch)
    return best


def _run_loops() -> float:
    """Compute integers and floats in plain loops."""
    state, total = 12345, 0.0
    for _ in range(20000):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        total += math.sqrt(state) * 1e-3
        if state & 1:
            total -= 0.5
    return total


def _hash_buffers() -> int:
    """Hash and pack buffers, in the C parts of Python."""
    block = hashlib.sha256(b"vgrads").digest() * 2048 + bytes(range(256)) * 256
    return zlib.crc32(zlib.compress(block, 6)) ^ hashlib.sha256(block).digest()[0]


def _process_tables() -> int:
    """Process text and tables, where memory matters."""
    counts: dict[str, int] = {}
    for number in range(8000):
        key = "k" + str(number * 7919 % 4001)
        counts[key] = counts.get(key, 0) + number
    return sum(sorted(counts.values())[::7])


def _measure_file_rate(folder: str, file_mib: int) -> float:
    """Return MiB per second written, synced to the disk and read again; of fewer than ``file_mib``
    where that takes too long.

    Each part of the file is synced by itself, and the median of their times is used: a shared disk
    stalls now and then.
    """
    handle, name = tempfile.mkstemp(prefix="vgrads-score-", dir=folder)
    try:
        with os.fdopen(handle, "w+b", buffering=0) as file:
            parts = _time_writing(file.fileno(), file_mib)
            if hasattr(os, "posix_fadvise"):
                # the file is dropped from the cache, so that it is read from the disk
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            begin, size = time.perf_counter(), 0
            while block := os.read(file.fileno(), 1 << 20):
                size += len(block)
            read_s = time.perf_counter() - begin
        return size / 2**20 / max(1e-9, _compute_middle(parts) * len(parts) + read_s)
    finally:
        Path(name).unlink()


def _time_writing(descriptor: int, file_mib: int) -> list[float]:
    """Return the seconds in which each part of the file was synced to the disk."""
    part = os.urandom(min(PART_MIB, file_mib) << 20)
    times: list[float] = []
    while len(times) * PART_MIB < file_mib and sum(times) < IO_S:
        begin = time.perf_counter()
        _write_all(descriptor, part)
        os.fsync(descriptor)
        times.append(time.perf_counter() - begin)
    return times


def _write_all(descriptor: int, block: bytes) -> None:
    left = memoryview(block)
    while left:
        left = left[os.write(descriptor, left) :]


def _list_cores() -> int:
    """Return the cores that this process may use: in a slot of a batch system fewer than the
    machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read_memory_mib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20, 1)
    except (ValueError, OSError, AttributeError):
        return None


def main(arguments: list[str]) -> int:
    """Measure in a folder (default: the working directory) and print the score; return 1 where
    nothing can be written there."""
    try:
        score = measure(arguments[0] if arguments else ".")
    except OSError as error:
        sys.stderr.write(f"cannot measure: {error}\n")
        return 1
    payload = {
        name: getattr(score, name) for name in ("cpu_score", "io_score", "cores", "memory_mib")
    }
    sys.stdout.write(json.dumps(payload) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
