"""Deadlines of sets and bags: durations, or instants."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import LONGEST_S, parse_duration

_BARE = re.compile(r"\d+\.?\d*|\.\d+")


def parse_deadline(deadline: str | float | datetime, now: datetime | None, where: str) -> float:
    """Return the seconds from ``now`` to a deadline: a duration, or an instant with a time zone.
    Raise InputError for anything else."""
    instant = _parse_instant(deadline)
    if instant is None:
        seconds = parse_duration(deadline, where)  # type: ignore[arg-type]  # a datetime is an instant
    elif instant.tzinfo is None:
        raise InputError(
            f"'{deadline}' has no time zone", where=where, fix="end it with Z or +01:00"
        )
    else:
        seconds = (instant - (now or datetime.now(UTC))).total_seconds()
    if seconds <= 0:
        what = "must be above 0" if instant is None else f"'{deadline}' is in the past"
        raise InputError(what, where=where)
    if seconds > LONGEST_S:
        raise InputError(f"'{deadline}' is more than thirty years away", where=where)
    return seconds


def is_bare(deadline: str) -> bool:
    """Return True for a duration without a unit: it means seconds, perhaps by mistake."""
    return _BARE.fullmatch(deadline.strip()) is not None


def as_written(deadline: str | float | datetime) -> str:
    """Return a deadline as its author wrote it: ``3`` is read as 3.0."""
    return f"{deadline:.10g}" if isinstance(deadline, float) else str(deadline)


def _parse_instant(deadline: Any) -> datetime | None:
    if isinstance(deadline, datetime):
        return deadline
    try:
        return datetime.fromisoformat(deadline) if len(str(deadline)) >= 10 else None
    except (ValueError, TypeError):
        return None
