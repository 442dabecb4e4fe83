"""A queue history as columns: one row per job, seconds on the log's own clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, tzinfo

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.errors import InputError
from vgrads.traces.log_queue import ALL_QUEUES, LogQueue, SiteQueue
from vgrads.traces.report import ReadingReport

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingQueue:
    """The jobs that still wait when a history is taken: columns as those of :class:`JobLog`, on its
    clock, and ``taken_s``, the instant at which it was taken. ``is_listed``: False for a history
    that may be of a kind that never lists waiting jobs, so that it says nothing that there are
    none."""

    taken_s: float
    is_listed: bool
    submit_s: Floats
    procs: Ints
    request_s: Floats
    user: Ints
    queue: Ints

    def __len__(self) -> int:
        return len(self.submit_s)

    def select(self, mask: Bools) -> WaitingQueue:
        """Return the same queue with only these jobs."""
        plain = ("taken_s", "is_listed")
        columns = {f.name: getattr(self, f.name)[mask] for f in fields(self) if f.name not in plain}
        return WaitingQueue(taken_s=self.taken_s, is_listed=self.is_listed, **columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLog:
    """Columns of equal length, sorted by submission.

    ``wait_s`` is the time in the queue: until the start if ``started``, otherwise until the job was
    cancelled, a right-censored wait. Unknown numbers are −1; waits are never negative. ``bag``: the
    number of the bag of tasks of a job, if the log has bags. ``zone``: local time zone of the
    machine's users. ``report``: what became of the lines of its file; ``warnings``: what users must
    see of it. ``submit_s`` is the instant from which a job could start, where the history states it
    (held and dependent jobs do not wait in the queue). ``waiting``: the jobs that have not left the
    queue yet, if the history is of a queue that goes on.
    """

    name: str
    submit_s: Floats
    wait_s: Floats
    run_s: Floats
    procs: Ints
    request_s: Floats
    user: Ints
    queue: Ints
    started: Bools
    unix_start_s: float = 0.0
    max_procs: int = 0
    queue_names: Mapping[int, str] = field(default_factory=dict)
    user_names: Mapping[int, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    report: ReadingReport | None = None
    waiting: WaitingQueue | None = None
    bag: Ints | None = None
    zone: tzinfo = UTC

    def __len__(self) -> int:
        return len(self.submit_s)

    @property
    def start_s(self) -> Floats:
        """When each job left the queue (started or cancelled)."""
        return self.submit_s + self.wait_s

    @property
    def end_s(self) -> float:
        """The last instant in the log, or that at which it was taken; 0 for an empty log."""
        last_s = float(self.start_s.max()) if len(self) else 0.0
        return last_s if self.waiting is None else max(last_s, self.waiting.taken_s)

    def select(self, mask: Bools | Ints) -> JobLog:
        """Return the same log with only these rows, in this order."""
        columns = {name: getattr(self, name)[mask] for name in COLUMNS}
        columns["bag"] = None if self.bag is None else self.bag[mask]
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in columns}
        return JobLog(**columns, **rest)

    def queue_code(self, queue: str | int) -> int:
        """Return the number of ``queue`` in this log; InputError lists the existing ones."""
        return self._code("queue", queue, self.queue, self.queue_names)

    def user_code(self, user: str | int) -> int:
        """Return the number of a user in this log; InputError lists some existing ones."""
        return self._code("user", user, self.user, self.user_names)

    def _code(
        self, what: str, required: str | int, column: Ints, name_of_code: Mapping[int, str]
    ) -> int:
        names = {name_of_code.get(code, str(code)): code for code in map(int, np.unique(column))}
        codes = {str(code): code for code in names.values()}
        # a queue may be named like the number of another: the name comes first
        count = names.get(str(required), codes.get(str(required)))
        if count is None:
            raise InputError(
                f"no {what} '{required}'",
                where=self.name,
                fix=f"it has: {', '.join(sorted(names)[:40])}",
            )
        return count

    def only_queue(self, queue: LogQueue) -> JobLog:
        """Return the jobs of one queue; InputError for an unknown name or number. Those that still
        wait remain: queues share a machine."""
        codes = self._queue_codes(queue)
        return self.select(np.isin(self.queue, codes)) if codes else self

    def waiting_in(self, queue: LogQueue) -> WaitingQueue | None:
        """Return the jobs of one queue that still wait; InputError as for :meth:`only_queue`."""
        codes = self._queue_codes(queue)
        if self.waiting is None or not codes:
            return self.waiting
        return self.waiting.select(np.isin(self.waiting.queue, codes))

    def _queue_codes(self, queue: LogQueue) -> list[int]:
        """Return the numbers of a queue; none for all jobs."""
        if isinstance(queue, SiteQueue):
            return self._codes_of(queue.name)
        return [] if queue in (None, ALL_QUEUES) else [self.queue_code(queue)]

    def largest_queue(self, queue: LogQueue) -> int:
        """Return the number of a queue; of several, that with most jobs; −1 for all queues."""
        if queue in (None, ALL_QUEUES):
            return -1
        codes = self._codes_of(queue.name) if isinstance(queue, SiteQueue) else []
        if isinstance(queue, SiteQueue):
            return max(codes, key=lambda code: int((self.queue == code).sum()), default=-1)
        return self.queue_code(queue)

    def has_queue(self, name: str) -> bool:
        """True if there are jobs of a queue of this name."""
        return bool(self._codes_of(name))

    @property
    def named_queues(self) -> frozenset[str]:
        """Names of all queues of the history, also where this is a part without their jobs; empty
        if it has only numbers."""
        return frozenset(n for text in self.queue_names.values() for n in text.split(","))

    def named_queue(self, name: str) -> int:
        """Return the number of a queue of this name in the history, also where this is a part
        without its jobs; −1 if there is none."""
        texts = self.queue_names.items()
        return next((code for code, text in texts if name in text.split(",")), -1)

    def _codes_of(self, name: str) -> list[int]:
        """Return the numbers of a queue's jobs; for a job that was submitted to several queues the
        log has all their names."""
        codes = sorted(set(self.queue.tolist()))
        return [code for code in codes if name in self.queue_names.get(code, str(code)).split(",")]

    def instant(self, at: float | datetime | None) -> float:
        """Return an instant on this log's clock; the end of the log for ``None``."""
        if at is None:
            return self.end_s
        return at.timestamp() - self.unix_start_s if isinstance(at, datetime) else at

    def local_s(self, at_s: Floats) -> Floats:
        """Convert instants of this log's clock to seconds since 1970 in local time of its zone,
        with daylight saving time."""
        import pandas as pd  # noqa: PLC0415 late: answers from what was learned before need none of it

        instants = pd.to_datetime(self.unix_start_s + at_s, unit="s", utc=True)
        local = instants.tz_convert(self.zone).tz_localize(None).to_numpy("datetime64[us]")
        return np.asarray(local.astype(np.int64) / 1e6)

    def check(self) -> None:
        """Check for equal lengths, order of submission, no negative wait, no NaN."""
        lengths = {name: len(getattr(self, name)) for name in COLUMNS}
        if self.bag is not None:
            lengths["bag"] = len(self.bag)
        if len(set(lengths.values())) > 1:
            raise AssertionError(f"columns differ in length: {lengths}")
        if np.any(np.diff(self.submit_s) < 0) or np.any(self.wait_s < 0):
            raise AssertionError(f"{self.name}: unsorted submissions or negative waits")
        if any(np.isnan(getattr(self, name)).any() for name in ("submit_s", "wait_s", "run_s")):
            raise AssertionError(f"{self.name}: NaN in a column")


COLUMNS = ("submit_s", "wait_s", "run_s", "procs", "request_s", "user", "queue", "started")
