"""Which queue of a log counts."""

from __future__ import annotations

from dataclasses import dataclass

ALL_QUEUES = "*"


@dataclass(frozen=True, slots=True)
class SiteQueue:
    """The queue of a log that has the name of a site's queue, as written; the whole log if it has
    none."""

    name: str


LogQueue = str | int | SiteQueue | None
"""A queue of a log, by name or number; all of them for ``None`` and ``"*"``."""
