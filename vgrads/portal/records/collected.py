"""What was collected of a site's accounting: lines by job, kept as the histories of its queues."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from vgrads.portal.records.site_records import SiteRecords
from vgrads.portal.records.tables import HistoryRow
from vgrads.vgrid.catalog import Site

Json = dict[str, Any]
_OVERLAP_S = 3600.0  # what has just ended may be written down late
COLLECTED = "collected.txt.gz"
"""The file name that tells collected accounting from a log that somebody gave."""


class CollectedHistories:
    """The histories of one site's queues, as lines of the site's own accounting by job.

    ``accounted``: of a line, (job, queue) as the site's dialect reads it; None for a header.
    """

    def __init__(
        self, site: Site, accounted: Callable[[str], tuple[str, str] | None], records: SiteRecords
    ) -> None:
        self.site, self._records = site, records
        self.added, self.changed = 0, 0
        self._lines: dict[str, dict[str, str]] = {q.name: {} for q in site.queues}
        self._touched: set[str] = set()
        self._rows = {row.queue: row for row in records.rows()[2] if row.site == site.name}
        for queue, row in self._rows.items():
            if row.file == COLLECTED and queue in self._lines:
                for line in gzip.decompress(row.body).decode().splitlines():
                    who = accounted(line)
                    self._lines[queue][who[0] if who else ""] = line

    def start_s(self, earliest_s: float) -> float:
        """Where the next collection begins, in seconds since 1970."""
        until = self._records.collected_until(self.site.name)
        return earliest_s if until is None else max(earliest_s, until - _OVERLAP_S)

    def merge(self, found: Mapping[str, tuple[str, str]]) -> None:
        """Take jobs over; the empty key is the header of every queue's file."""
        for key, (queue, line) in found.items():
            for name in self._lines if key == "" else _queues(queue, self._lines):
                before = self._lines[name].get(key)
                if before == line:
                    continue
                self._lines[name][key] = line
                self._touched.add(name)
                if key:
                    self.added += before is None
                    self.changed += before is not None

    def save(self, until_s: float) -> None:
        """Keep what has changed, and how far it goes, in one step."""
        rows = []
        for name in sorted(self._touched):
            lines = self._lines[name]
            head = [lines[""]] if "" in lines else []
            text = "\n".join([*head, *(lines[key] for key in sorted(lines) if key)]) + "\n"
            body = gzip.compress(text.encode(), mtime=0)
            rows.append(
                HistoryRow(
                    site=self.site.name,
                    queue=name,
                    file=COLLECTED,
                    changed=datetime.now(UTC),
                    body=body,
                )
            )
        self._records.put_collected(self.site.name, until_s, rows)
        self._touched.clear()

    def summary(self) -> Json:
        """Each queue with the jobs that are now known of it, and what this collection brought."""
        queues = [
            {"site": self.site.name, "queue": name, "jobs": sum(bool(key) for key in lines)}
            for name, lines in self._lines.items()
        ]
        return {
            "site": self.site.name,
            "queues": queues,
            "added": self.added,
            "changed": self.changed,
        }


def _queues(queue: str, known: Iterable[str]) -> list[str]:
    """The queues of ours that a job counts for: a waiting job may name several."""
    return [name for name in queue.split(",") if name in known]
