"""The jobs of a history as a view shows them (:mod:`vgrads.qbets.views`): in which order they
appear, and which view a history permits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.errors import InputError
from vgrads.qbets.views import ENDED, FULL, STARTED, VIEWS
from vgrads.traces.records import JobLog

_NEWEST, _HARDLY_LONGER = 10_000, 0.999
_GRACE_S, _FORGOTTEN_S = 86_400.0, 30 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewedLog:
    """The jobs that a view of a history shows, in the order in which they appear in it.

    ``rows``: their rows in the history, which has ``count``; ``shown_s``: when each appears,
    ascending.
    """

    log: JobLog
    rows: Ints
    shown_s: Floats
    count: int

    def count_at(self, at_s: float | None) -> int:
        """Return how many jobs have appeared by an instant; all of them for None."""
        if at_s is None:
            return len(self.log)
        return int(np.searchsorted(self.shown_s, at_s, side="right"))

    def until(self, at_s: float) -> ViewedLog:
        """Return the jobs that have appeared by an instant."""
        count = self.count_at(at_s)
        if count == len(self.log):
            return self
        return ViewedLog(
            log=self.log.select(np.arange(count)),
            rows=self.rows[:count],
            shown_s=self.shown_s[:count],
            count=self.count,
        )

    def in_history(self, values: Floats) -> Floats:
        """Return values of these jobs in the order of the history; NaN for other jobs."""
        result = np.full(self.count, np.nan)
        result[self.rows] = values
        return result


def run_times(log: JobLog) -> Floats:
    """Return the run time of each job; if unknown, its requested time."""
    return np.where(log.run_s < 0, np.maximum(log.request_s, 0.0), log.run_s)


def bound_runs(log: JobLog) -> Floats:
    """Return for how long each job may have run: a record without an end, or with a later one, is
    of a job whose end was not recorded."""
    return np.where(log.request_s > 0, log.request_s + _GRACE_S, _FORGOTTEN_S)


def list_ends(log: JobLog) -> Floats:
    """Return when each job ended, or left the queue without a start; NaN for one that still runs
    when the history is taken."""
    end_s = log.start_s + np.where(log.started, run_times(log), 0.0)
    runs = log.started & (log.run_s < 0) & (log.waiting is not None)
    return np.where(runs, np.nan, end_s)


def select_view(log: JobLog, view: str) -> ViewedLog:
    """Return the jobs of a history as a view shows them. Views without waiting jobs omit jobs that
    never started: nothing of their waits is known while it matters. Raise InputError for a view
    that does not exist."""
    if view not in VIEWS:
        raise InputError(f"unknown view '{view}'", where="view", fix=f"known: {', '.join(VIEWS)}")
    if view == FULL:
        return ViewedLog(log=log, rows=np.arange(len(log)), shown_s=log.submit_s, count=len(log))
    shown_s = log.start_s if view == STARTED else list_ends(log)
    rows = np.flatnonzero(log.started & ~np.isnan(shown_s))
    rows = rows[np.argsort(shown_s[rows], kind="stable")]
    return ViewedLog(log=log.select(rows), rows=rows, shown_s=shown_s[rows], count=len(log))


def choose_view_at(log: JobLog, at_s: float | None = None) -> str:
    """Return which view of a history answers questions at an instant (None: when it was taken).

    Long before its end a history shows all jobs, because those that waited have left the queue
    since. Later only one that lists waiting jobs does.
    """
    waiting = log.waiting
    if waiting is not None and waiting.is_listed:
        return FULL
    view = ENDED if waiting is None else STARTED
    if at_s is None:
        return view
    return FULL if at_s <= end_of(log, view) - find_longest_delay_s(log, view) else view


def find_longest_delay_s(log: JobLog, view: str) -> float:
    """Return a time after their submission by which hardly any of the newest jobs, one in a
    thousand, had still to leave the queue, or to end in a view of ended jobs."""
    delay_s = (list_ends(log) if view == ENDED else log.start_s) - log.submit_s
    newest = delay_s[-_NEWEST:]
    newest = newest[~np.isnan(newest)]
    return float(np.quantile(newest, _HARDLY_LONGER)) if len(newest) else 0.0


def end_of(log: JobLog, view: str) -> float:
    """Return the last instant of a view of a history: when it was taken, or the last end of a job,
    but for ends that cannot be right."""
    if view != ENDED:
        return log.end_s
    has_ended = log.started & (log.run_s >= 0) & (log.run_s <= bound_runs(log))
    return max(log.end_s, float((log.start_s + log.run_s)[has_ended].max(initial=0.0)))
