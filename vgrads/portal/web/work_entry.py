"""An entry of the list of all work: a workflow set or a bag."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.web.set_display import DisplayState, PromiseSummary

StoredInstant = datetime | str
"""An instant as the database returns it: SQLite stores text."""


@dataclass(frozen=True, slots=True)
class NewestRun:
    """The newest run of a set; ``started``: as the database returns it."""

    id: str
    state: str
    started: StoredInstant

    @property
    def goes_on(self) -> bool:
        """True while it is not terminal."""
        return self.state in GOES_ON


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkEntry:
    """A set or a bag. ``promise``: of a set's plan, or the goal of a bag; ``run``: the newest one
    of a set; ``probability``: now while it goes on, else as promised; ``created_s``, ``due_s``:
    submission and deadline, Unix time; ``progress``: in words, of bags; ``spent_usd``: of bags;
    ``archived``: not listed with the others."""

    kind: Literal["set", "bag"]
    id: str
    name: str
    owner: str
    created_s: float
    promise: PromiseSummary
    run: NewestRun | None
    state: DisplayState
    probability: float | None
    due_s: float | None
    goes_on: bool
    progress: str = ""
    spent_usd: float | None = None
    archived: bool = False

    @property
    def path(self) -> str:
        """The address of its page."""
        return f"/{self.kind}s/{self.id}"


def unix_s(instant: StoredInstant) -> float:
    """Return an instant of the database, which is UTC, in seconds since 1970."""
    when = datetime.fromisoformat(instant) if isinstance(instant, str) else instant
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
