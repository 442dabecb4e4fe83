"""What became of the lines of a history: jobs, records that are no jobs, and records that could not
be used, by reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count

SMALL_SHARE = 0.01
"""Share of records that could not be used from which on the report is a warning."""
MOST_UNUSED = 0.5
"""Share from which on a history is refused unless its reading is forced."""
_LISTED = 4  # reasons that a line names


@dataclass(frozen=True, slots=True)
class Unused:
    """How many records could not be used for a reason, and the first line of them (from 1)."""

    records: int
    first_line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingReport:
    """What a reader made of a file.

    ``lines``: of the file that are not blank. ``jobs``: the records that are used. ``not_jobs``:
    records that never are jobs (steps, array parents, licences), by kind. ``not_used``: records
    that should be jobs, by reason. ``notes``: what the format does not state, and what was assumed
    instead.
    """

    format: str
    lines: int
    jobs: int
    not_jobs: Mapping[str, int] = field(default_factory=dict)
    not_used: Mapping[str, Unused] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def unused(self) -> int:
        """Number of records that should be jobs and could not be used."""
        return sum(reason.records for reason in self.not_used.values())

    @property
    def unused_share(self) -> float:
        """Share of these among the records that should be jobs."""
        return self.unused / max(1, self.unused + self.jobs)

    @property
    def complete(self) -> bool:
        """True if every record is a job or never is one."""
        return not self.not_used

    def summary(self) -> str:
        """Return one line: jobs, other records, and records not used, with the first line of each
        reason."""
        parts = [f"{format_count(self.jobs, 'job')} in {format_count(self.lines, 'line')}"]
        if self.not_jobs:
            kinds = ", ".join(format_count(n, kind) for kind, n in _format_most(self.not_jobs))
            parts.append(f"no jobs: {kinds}")
        if self.not_used:
            parts.append(f"not used: {self.reasons()}")
        return "; ".join(parts)

    def line(self) -> str:
        """Return the summary and the notes as one line."""
        return "; ".join((self.summary(), *self.notes))

    def reasons(self) -> str:
        """Return the reasons for which records were not used, the most frequent ones first."""
        counts = {why: unused.records for why, unused in self.not_used.items()}
        texts = [
            f"{count:,} {why} (first in line {self.not_used[why].first_line:,})"
            for why, count in _format_most(counts)
        ]
        more = len(texts) - _LISTED
        tail = [format_count(more, "other reason")] if more > 0 else []
        return ", ".join(texts[:_LISTED] + tail)

    def as_json(self) -> dict[str, Any]:
        """Return the document of ``--json``."""
        return {
            "format": self.format,
            "lines": self.lines,
            "jobs": self.jobs,
            "not_jobs": dict(self.not_jobs),
            "not_used": {
                why: {"records": unused.records, "first_line": unused.first_line}
                for why, unused in self.not_used.items()
            },
            "notes": list(self.notes),
        }

    def refuse_unusable(self, name: str, what: str, force: bool) -> None:
        """Raise InputError if there are no jobs, or if most of the records that should be jobs
        could not be used, unless the reading is forced."""
        if not self.jobs:
            other = "".join(f"; {format_count(n, kind)}" for kind, n in _format_most(self.not_jobs))
            detail = self.reasons() if self.not_used else "nothing else"
            raise InputError(
                f"no job of the history has a known wait (not used: {detail}{other})", where=name
            )
        if self.unused_share > MOST_UNUSED and not force:
            raise InputError(
                f"{self.unused:,} of {format_count(self.unused + self.jobs, 'record')} cannot be "
                f"used as {what}: {self.reasons()}",
                where=name,
                fix="give --format if it is another format, --force to use the rest",
            )


def _format_most(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


class ReportBuilder:
    """Counts what becomes of the lines of a file while it is read."""

    def __init__(self, format_name: str) -> None:
        self.format = format_name
        self.lines = 0
        self._not_jobs: dict[str, int] = {}
        self._not_used: dict[str, Unused] = {}
        self._notes: dict[str, None] = {}

    def skip(self, reason: str, line: int) -> None:
        """Count a record that should be a job and cannot be used."""
        before = self._not_used.get(reason, Unused(0, line))
        self._not_used[reason] = Unused(before.records + 1, min(before.first_line, line))

    def pass_over(self, kind: str, count: int = 1) -> None:
        """Count a record that never is a job."""
        self._not_jobs[kind] = self._not_jobs.get(kind, 0) + count

    def note(self, text: str) -> None:
        """Add what the format does not state; once."""
        self._notes[text] = None

    def report(self, jobs: int) -> ReadingReport:
        """Return the report of a file with so many jobs."""
        return ReadingReport(
            format=self.format,
            lines=self.lines,
            jobs=jobs,
            not_jobs=dict(self._not_jobs),
            not_used=dict(self._not_used),
            notes=tuple(self._notes),
        )
