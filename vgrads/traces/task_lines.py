"""Common parts of readers of task records: rows of tables, cells to numbers, names to kinds.

A reader is a generator over a file. It yields a :class:`TaskRecord` for an attempt, a text with the
reason for one that is no observation, and a :class:`Broken` for malformed input.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import parse_duration
from vgrads.traces.lines import CUT_OFF, CutOffError, open_lines
from vgrads.traces.table import BadRow, TableRow, read_table
from vgrads.traces.task_record import TaskRecord

NO_TIME, BACKWARDS = "no time", "clock ran backwards"
KILLED = frozenset({129, 130, 137, 138, 140, 143, 152})  # 128 + HUP INT KILL USR1 USR2 TERM XCPU
KILL = 137  # left by the memory killer of a kernel or a container

_MISSING = {"", "-", "na", "n/a", "nan", "none", "null", "unknown", "invalid"}
_BYTES = re.compile(r"([0-9.]+(?:e[+-]?\d+)?)\s*([kmgtp]?)(i?)b?[nc]?$", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SHELLS = {
    "bash",
    "sh",
    "dash",
    "zsh",
    "env",
    "exec",
    "nice",
    "time",
    "srun",
    "mpirun",
    "mpiexec",
    "python",
    "python2",
    "python3",
    "perl",
    "Rscript",
    "java",
    "singularity",
    "apptainer",
}
_SETTINGS = {
    "set",
    "cd",
    "mkdir",
    "export",
    "module",
    "source",
    ".",
    "rm",
    "echo",
    "unset",
    "ulimit",
    "[",
    "[[",
    "test",
    "printf",
    "ln",
    "for",
    "while",
    "done",
    "fi",
    "def",
    "xargs",
}
_QUOTING = frozenset("'\"\\#")
_KEYWORDS = {"if", "then", "else", "do", "!"}


@dataclass(frozen=True, slots=True)
class Broken:
    """A malformed place of a file: ``line`` from 1 (0: unknown), ``field``, and the reason."""

    line: int
    field: str
    why: str


Item = TaskRecord | Broken | str
Row = Mapping[str, str]


def rows(path: Path, columns: Sequence[str] | None = None) -> Iterator[tuple[int, Row | Broken]]:
    """Return rows of a table by the names of its header (lower case), with the line of each, as
    :mod:`vgrads.traces.table` reads them; lines that are no rows are :class:`Broken`, and so is
    what follows where a compressed file is cut off. ``columns``: of a table without a header."""
    try:
        for item in read_table(open_lines(path), str(path), columns):
            if isinstance(item, TableRow):
                cells = map(str.strip, item.cells)
                yield item.line, dict(zip(item.header.names, cells, strict=False))
            elif isinstance(item, BadRow):
                yield item.line, Broken(item.line, "", f"is a row {item.why}")
    except CutOffError:
        yield 0, Broken(0, "", CUT_OFF)


def cell(row: Row, *names: str) -> str:
    """Return the first non-empty one of the named cells; empty if there is none."""
    for name in names:
        value = row.get(name, "")
        if value.lower() not in _MISSING:
            return value
    return ""


def seconds(text: str, plain_s: float = 1.0) -> float | str:
    """Parse seconds of ``1h 2m 3s``, ``00:02:03``, ``1-02:00:00``, or of a number in units of
    ``plain_s``; otherwise return the reason.

    >>> seconds("1m 3s"), seconds("127", 0.001), seconds("-5"), seconds("-"), seconds("soon")
    (63.0, 0.127, 'clock ran backwards', 'no time', 'unreadable')
    """
    text = text.strip()
    if text.lower() in _MISSING:
        return NO_TIME
    number = parse_number(text)
    if number is not None:
        return BACKWARDS if number < 0 else number * plain_s
    if text.startswith("-"):
        return BACKWARDS
    try:
        return parse_duration(text)
    except (InputError, ValueError, OverflowError):
        return "unreadable"


def parse_number(value: object) -> float | None:
    """Return a finite number from a number or its text; None for everything else."""
    # for Python a truth value is an integer too
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def parse_bytes(text: str, plain: float = 1.0) -> float | None:
    """Parse bytes of ``1.2 GB``, ``300K`` (powers of 1024, as Nextflow and Slurm count) or a number
    of ``plain`` bytes.

    >>> parse_bytes("1.5 KB"), parse_bytes("2", 1048576), parse_bytes("0"), parse_bytes("-")
    (1536.0, 2097152.0, None, None)
    """
    match = _BYTES.match(text.strip())
    number = parse_number(match[1]) if match else None
    if match is None or not number:
        return None
    size = number * (
        1024.0 ** _POWER[match[2].lower()] if match[2] or "b" in text.lower() else plain
    )
    return size if math.isfinite(size) else None


def parse_procs(value: object) -> int:
    """Return processors, at least one; one if not stated."""
    number = parse_number(value)
    return max(1, round(number)) if number is not None and number < 1e6 else 1


def parse_task_instant(value: object) -> float | None:
    """Return seconds since 1970 of an ISO time (without a zone: UTC), of seconds or of milliseconds
    since 1970."""
    number = parse_number(value)
    if number is not None:
        # milliseconds exceed 1e11 since 1973, seconds not before the year 5138
        return number / 1000 if number > 1e11 else number if number > 1e6 else None
    try:
        when = datetime.fromisoformat(str(value).strip())
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def find_tool(command: object) -> str:
    """Return the program that a command really runs, without its folder; empty if unknown.

    >>> find_tool("set -eu; cd x && OMP=1 /usr/bin/python3 -u scripts/fit.py a")
    'fit.py'
    >>> find_tool("(bwa mem r.fa) 2> log")
    'bwa'
    >>> find_tool("[ -f a ] || ln -s b a; for x in 1 2; do fastqc $x; done")
    'fastqc'
    """
    return next((program for program, _ in find_programs(command)), "")


def find_programs(command: object) -> Iterator[tuple[str, str]]:
    """Return the programs that a command really runs, without their folders, each with its part of
    the command."""
    for part in re.split(r"&&|\|\||[;|\n]", str(command or "")[:4000].replace("\\\n", " ")):
        words = [w for w in _split_words(part.strip().lstrip("({ ")) if not re.match(r"\w+=", w)]
        while words and words[0] in _KEYWORDS:
            words = words[1:]
        if not words or words[0] in _SETTINGS:
            continue
        while len(words) > 1 and (
            PurePosixPath(words[0]).name in _SHELLS or words[0].startswith("-")
        ):
            words = words[1:]
        name = PurePosixPath(words[0]).name
        if name and not name.startswith("-"):
            yield name, part


def _split_words(text: str) -> list[str]:
    if _QUOTING.isdisjoint(text):  # ten times as fast
        return text.split()
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()
