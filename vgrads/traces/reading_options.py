"""How to read a history, where its file does not say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from vgrads.kernel.units import parse_instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """How to read a history: its ``format`` (None: detected), the ``columns`` of a table without a
    header, the time ``zone`` of local times (a name such as Europe/Paris; None: UTC), at which
    instant it was taken (``taken_at_s``, since 1970; None: at its newest event), and whether to
    ``force`` the reading of a file whose records are mostly unusable."""

    format: str | None = None
    columns: tuple[str, ...] | None = None
    zone: str | None = None
    force: bool = False
    taken_at_s: float | None = None


DETECTED = ReadingOptions()


def parse_reading_options(
    format_name: str | None,
    columns: str | Sequence[str] | None,
    zone: str | None,
    taken_at: str | float | datetime | None,
    force: bool,
) -> ReadingOptions:
    """Return the options that a user states; ``columns``: names, or a text with commas between
    them; ``taken_at``: seconds since 1970, or RFC 3339, as text."""
    names = parse_columns(columns) if isinstance(columns, str) else columns
    taken = parse_instant(taken_at, "--taken-at") if isinstance(taken_at, str) else taken_at
    return ReadingOptions(
        format=format_name,
        columns=None if names is None else tuple(names),
        zone=zone,
        force=force,
        taken_at_s=taken.timestamp() if isinstance(taken, datetime) else taken,
    )


def parse_columns(text: str | None) -> tuple[str, ...] | None:
    """Parse the names of columns between commas; None for none.

    >>> parse_columns("JobID, User,Submit")
    ('JobID', 'User', 'Submit')
    """
    return None if text is None else tuple(name.strip() for name in text.split(","))
