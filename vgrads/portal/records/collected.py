"""Collected accounting of a site: lines by job, stored as the histories of its queues."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from vgrads.drivers.batch_site import AccountingLines
from vgrads.kernel.units import format_count
from vgrads.portal.records.site_records import SiteRecords
from vgrads.portal.records.tables import HistoryRow
from vgrads.vgrid.catalog import Site

Json = dict[str, Any]
_OVERLAP_S = 3600.0  # jobs may be recorded late
COLLECTED = "collected.txt.gz"
"""The file name that distinguishes collected accounting from a user's log."""


class _Job(NamedTuple):
    """A job as its site records it."""

    queue: str
    line: str


class CollectedHistories:
    """The histories of one site's queues, as lines of the site's own accounting by job.

    Queues that share nodes are one machine, and the history of each of them has the jobs of all, so
    that the machine is learned as a whole. ``accounted``: (job, queue) of a line in the site's
    dialect; None for a header. ``machines``: queue → the queues of its machine; those that it lacks
    share nodes with no other.
    """

    def __init__(
        self,
        site: Site,
        accounted: Callable[[str], tuple[str, str] | None],
        records: SiteRecords,
        machines: Mapping[str, frozenset[str]],
    ) -> None:
        self.site, self._records = site, records
        self.added, self.changed = 0, 0
        self._unread, self._first_unread, self._elsewhere = 0, "", Counter[str]()
        self._machines = {q.name: machines.get(q.name, frozenset({q.name})) for q in site.queues}
        self._jobs: dict[frozenset[str], dict[str, _Job]] = {m: {} for m in self._machines.values()}
        self._touched: set[frozenset[str]] = set()
        for row in records.histories_of(site.name):
            if row.file == COLLECTED and row.queue in self._machines:
                jobs = self._jobs[self._machines[row.queue]]
                for line in gzip.decompress(row.body).decode().splitlines():
                    who = accounted(line)
                    if who is None or self._names(who[1]) & self._machines[row.queue]:
                        jobs[who[0] if who else ""] = _Job(who[1] if who else "", line)

    def start_s(self, earliest_s: float) -> float:
        """Return the start of the next collection, in seconds since 1970."""
        until = self._records.collected_until(self.site.name)
        return earliest_s if until is None else max(earliest_s, until - _OVERLAP_S)

    def merge(self, result: AccountingLines) -> None:
        """Add jobs; the empty key is the header of every queue's file. Jobs of other queues, and
        lines that are no jobs, are counted."""
        self._unread += len(result.unread)
        self._first_unread = self._first_unread or next(iter(result.unread), "")
        for key, (queue, line) in result.jobs.items():
            names = self._names(queue)
            if key and not any(names & machine for machine in self._jobs):
                self._elsewhere[queue] += 1
            for machine, jobs in self._jobs.items():
                before = jobs.get(key)
                if (key and not names & machine) or (before and before.line == line):
                    continue
                jobs[key] = _Job(queue, line)
                self._touched.add(machine)
                if key:
                    self.added += before is None
                    self.changed += before is not None

    def save(self, until_s: float) -> None:
        """Store the changes and the end of the collection, in one step."""
        bodies = {machine: self._body(machine) for machine in self._touched}
        rows = [
            HistoryRow(
                site=self.site.name,
                queue=name,
                file=COLLECTED,
                changed=datetime.now(UTC),
                body=bodies[machine],
            )
            for name, machine in sorted(self._machines.items())
            # without jobs of its own, a history would be that of the others
            if machine in bodies and self._count(name)
        ]
        self._records.put_collected(self.site.name, until_s, rows)
        self._touched.clear()

    def _body(self, machine: frozenset[str]) -> bytes:
        jobs = self._jobs[machine]
        head = [jobs[""].line] if "" in jobs else []
        text = "\n".join([*head, *(jobs[key].line for key in sorted(jobs) if key)]) + "\n"
        # without the time: the same lines give the same bytes
        return gzip.compress(text.encode(), mtime=0)

    def _count(self, name: str) -> int:
        """Return the number of jobs of a queue."""
        jobs = self._jobs[self._machines[name]]
        return sum(name in self._names(job.queue) for key, job in jobs.items() if key)

    @staticmethod
    def _names(queue: str) -> frozenset[str]:
        """Return the queues for which a job counts: a waiting job may name several."""
        return frozenset(queue.split(","))

    def summary(self) -> Json:
        """Return each queue with its number of jobs, and the number of new ones."""
        queues = [
            {
                "site": self.site.name,
                "queue": name,
                "jobs": self._count(name),
                "shares_nodes_with": sorted(machine - {name}),
            }
            for name, machine in self._machines.items()
        ]
        return {
            "site": self.site.name,
            "queues": queues,
            "added": self.added,
            "changed": self.changed,
            "not_used": self._not_used(),
        }

    def _not_used(self) -> list[str]:
        """Describe what the site printed and is in no history: jobs of queues that it does not have
        here, and lines that are no jobs."""
        jobs = [
            f"{format_count(count, 'job')} of queue '{queue}'"
            for queue, count in self._elsewhere.most_common()
        ]
        if self._unread:
            lines = format_count(self._unread, "line")
            jobs.append(f"{lines} that are no jobs, the first is {self._first_unread[:80]!r}")
        return jobs
