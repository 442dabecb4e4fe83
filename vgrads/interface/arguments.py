"""Arguments of the public functions: durations, instants, probabilities, files; and error messages
that name arguments where the command line names options."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from vgrads.kernel.errors import VgradsError
from vgrads.kernel.units import parse_duration, parse_instant
from vgrads.operations.fields import describe_fields

Duration = float | str | timedelta
"""Seconds, a text such as ``"2h"`` or ``"1h30m"``, or a timedelta."""
Instant = float | str | datetime
"""Seconds of a log's own clock, RFC 3339 text, or a datetime with a time zone."""
FileName = str | os.PathLike[str]
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")


def seconds_of(value: Duration, name: str) -> float:
    """Seconds of a duration; InputError names the argument.

    >>> seconds_of("1h30m", "walltime"), seconds_of(timedelta(minutes=2), "walltime")
    (5400.0, 120.0)
    """
    plain = value.total_seconds() if isinstance(value, timedelta) else value
    return parse_duration(plain, name)


def instant_of(value: Instant | None, name: str = "at") -> float | datetime | None:
    """An instant of a history; None is its end."""
    if value is None:
        return None
    return parse_instant(value.isoformat() if isinstance(value, datetime) else value, name)


def path_of(value: FileName) -> Path:
    """A path; ``~`` is the home folder."""
    return Path(value).expanduser()


def deadline_text(value: Duration | datetime, name: str) -> str:
    """A deadline as a set states it."""
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    seconds = f"{seconds_of(value, name):.6f}".rstrip("0").rstrip(".")
    return f"{seconds}s" if isinstance(value, timedelta) else seconds


@contextmanager
def named_arguments(*requests: type) -> Iterator[None]:
    """Errors of the body name arguments (``walltime``) instead of options (``--walltime``), and
    instead of the fields of ``requests`` (``walltime_s``)."""
    try:
        yield
    except VgradsError as error:
        words = {field.name: field.word for of in requests for field in describe_fields(of)}
        error.where, error.fix = (
            _OPTION.sub(_name_argument, text) for text in (error.where, error.fix)
        )
        error.where = ", ".join(words.get(name, name) for name in error.where.split(", "))
        raise


def _name_argument(option: re.Match[str]) -> str:
    return option[1].replace("-", "_")


def joined_names(value: str | Sequence[str]) -> str:
    """Names with commas between them."""
    return value if isinstance(value, str) else ",".join(value)
