"""Parameters of a bag that vary: ranges of numbers, tables."""

from __future__ import annotations

import csv
from io import TextIOWrapper
from pathlib import Path

from vgrads.bags.bag import TASK, Axis
from vgrads.dispatch.parameters import RangeSteps
from vgrads.dispatch.templates import PARAMETER
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count
from vgrads.kernel.user_files import open_user_file

MOST_TASKS = 100_000_000
"""Maximum number of tasks of a bag."""


def expand_range(values: tuple[int | float, ...], where: str) -> RangeSteps:
    """Return the numbers of a range: stop, or start, stop and step. Raise InputError for an invalid
    one."""
    start, stop = (0, values[0]) if len(values) == 1 else values[:2]
    step = values[2] if len(values) == 3 else 1
    if step == 0 or not all(map(_require_finite, (start, stop, step))):
        raise InputError("a range needs a step other than 0", where=where)
    # rounded up, as in Python's range: stop is excluded
    count = max(0, -int((start - stop) // step))
    if count > MOST_TASKS:
        raise InputError(
            f"has {format_count(count, 'value')}; at most {MOST_TASKS:,} are accepted", where=where
        )
    return RangeSteps(start, step, count)


def _require_finite(number: float) -> bool:
    # also false for NaN
    return abs(number) < 1e18


def read_table(path: Path) -> Axis:
    """Read a CSV file whose first line has the names of the parameters. Raise InputError with the
    line."""
    try:
        with open_user_file(path) as raw, TextIOWrapper(raw, "utf-8-sig", newline="") as file:
            rows = csv.reader(file)
            names = tuple(next(rows, ()))
            for name in names:
                if not PARAMETER.fullmatch(name) or name == TASK:
                    raise InputError(
                        f"line 1: '{name}' cannot be the name of a parameter", where="table"
                    )
            parts = []
            for row in rows:
                if row and len(row) != len(names):
                    raise InputError(
                        f"line {rows.line_num}: has {format_count(len(row), 'value')} for "
                        f"{len(names)} parameters",
                        where="table",
                    )
                if row:
                    parts.append(tuple(row))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where="table") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"is not a valid CSV file: {error}", where="table") from error
    return Axis(names, parts)
