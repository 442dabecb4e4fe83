"""A recorded history as events in time order, and its jobs as they were known at submission."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.arrays import Floats, Ints
from vgrads.qbets.predictor import JobArrival, Settings
from vgrads.qbets.state.queue_tables import END, END_AT_ONCE, LEAVE, SUBMIT
from vgrads.qbets.viewed_log import list_ends, run_times
from vgrads.qbets.views import ENDED, FULL
from vgrads.traces.records import JobLog


class QueueEvents(NamedTuple):
    """Times, kinds and rows of the log, in time order; a kind is a constant of
    :mod:`vgrads.qbets.state.queue_tables`."""

    times: Floats
    kinds: Ints
    rows: Ints

    def part(self, first: int, last: int) -> QueueEvents:
        """Return the events of these places."""
        part = slice(first, last)
        return QueueEvents(self.times[part], self.kinds[part], self.rows[part])

    def submitted(self, first: int = 0) -> Ints:
        """Return the rows of submissions, in order of time, from row ``first`` on."""
        rows: Ints = self.rows[(self.kinds == SUBMIT) & (self.rows >= first)]
        return rows


def make_events(log: JobLog, ends: bool = False, view: str = FULL) -> QueueEvents:
    """Return the events of a log, or of that of a view, submissions first among simultaneous ones.

    Submissions first: at the second of another job's start, that start is not known yet. Then, if
    requested, ends, then starts, which may need the processors of the ended jobs. A view of ended
    jobs has their starts at their ends.
    """
    count = len(log)
    rows, kinds = np.tile(np.arange(count), 2), np.repeat([SUBMIT, LEAVE], count)
    times = np.concatenate([log.submit_s, list_ends(log) if view == ENDED else log.start_s])
    if ends and view != ENDED:
        started, run_s = np.flatnonzero(log.started), run_times(log)
        rows = np.concatenate([rows, started])
        # a job without run time must start before it ends, although ends come before starts
        times = np.concatenate([times, (log.start_s + run_s)[started]])
        kinds = np.concatenate([kinds, np.where(run_s[started] > 0, END, END_AT_ONCE)])
    # lexsort orders by its last key first
    order = np.lexsort((rows, kinds, times))
    return QueueEvents(times[order], kinds[order], rows[order])


def make_arrivals(log: JobLog, settings: Settings) -> list[JobArrival]:
    """Return every job as it was known at its submission, by the properties that distinguish jobs
    of this log."""
    users = list_users(log)
    shapes = zip(log.procs.tolist(), log.request_s.tolist(), strict=True)
    others = zip(users.tolist(), log.queue.tolist(), strict=True)
    return [
        JobArrival(*settings.shape(*shape), *other)
        for shape, other in zip(shapes, others, strict=True)
    ]


def list_users(log: JobLog) -> Ints:
    """Return the user of each job; −1 for all if the log does not distinguish users."""
    return log.user if _identifies_users(log) else np.full(len(log), -1)


def adapt_settings(settings: Settings, log: JobLog) -> Settings:
    """Return settings for questions to this log: properties that it lacks are ignored in questions.

    Requested times (or processors) that most jobs lack, or that are equal for all, are fixed to
    that value for every question: otherwise the question would be matched with the largest jobs, or
    with none. A user number that all jobs share identifies no user.
    """
    return replace(
        settings,
        knows_user=settings.knows_user and _identifies_users(log),
        knows_queue=settings.knows_queue and len(np.unique(log.queue)) > 1,
        procs=None if (procs := _select_only_value(log.procs, 1.0)) is None else int(procs),
        request_s=_select_only_value(log.request_s, -1.0),
    )


def _identifies_users(log: JobLog) -> bool:
    return len(np.unique(log.user[log.user >= 0])) > 1


def _select_only_value(column: NDArray[Any], unknown: float) -> float | None:
    """Return the value for every job: ``unknown`` if most lack it, the value that all have; None if
    they differ."""
    message = np.unique(column[column > 0])
    if 2 * int((column > 0).sum()) < max(1, len(column)):
        return unknown
    return float(message[0]) if len(message) == 1 else None
