"""Collected accounting of a site: lines by job, stored as the histories of its queues."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from vgrads.portal.records.site_records import SiteRecords
from vgrads.portal.records.tables import HistoryRow
from vgrads.vgrid.catalog import Site

Json = dict[str, Any]
_OVERLAP_S = 3600.0  # jobs may be recorded late
COLLECTED = "collected.txt.gz"
"""The file name that distinguishes collected accounting from a user's log."""


class CollectedHistories:
    """The histories of one site's queues, as lines of the site's own accounting by job.

    ``accounted``: (job, queue) of a line in the site's dialect; None for a header.
    """

    def __init__(
        self, site: Site, accounted: Callable[[str], tuple[str, str] | None], records: SiteRecords
    ) -> None:
        self.site, self._records = site, records
        self.added, self.changed = 0, 0
        self._lines: dict[str, dict[str, str]] = {q.name: {} for q in site.queues}
        self._touched: set[str] = set()
        self._rows = {row.queue: row for row in records.histories_of(site.name)}
        for queue, row in self._rows.items():
            if row.file == COLLECTED and queue in self._lines:
                for line in gzip.decompress(row.body).decode().splitlines():
                    who = accounted(line)
                    self._lines[queue][who[0] if who else ""] = line

    def start_s(self, earliest_s: float) -> float:
        """Return the start of the next collection, in seconds since 1970."""
        until = self._records.collected_until(self.site.name)
        return earliest_s if until is None else max(earliest_s, until - _OVERLAP_S)

    def merge(self, result: Mapping[str, tuple[str, str]]) -> None:
        """Add jobs; the empty key is the header of every queue's file."""
        for key, (queue, line) in result.items():
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
        """Store the changes and the end of the collection, in one step."""
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
        """Return each queue with its number of jobs, and the number of new ones."""
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


def _queues(queue: str, existing: Iterable[str]) -> list[str]:
    """Return our queues for which a job counts: a waiting job may name several."""
    return [name for name in queue.split(",") if name in existing]
