"""Which job shows the wait that a forecast was about, and how much of its wait is known.

A forecast for a shape is scored by the job of the most similar shape, of several the first, that
was submitted within an hour after it, unless a newer forecast for such a job came in between.
Forecasts for later submissions are matched separately. What scores it need not have started: a job
that has waited for longer than a bound has missed it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vgrads.api.queues.issued import ForecastOutcome
from vgrads.kernel.arrays import Bools, Floats
from vgrads.traces.records import JobLog

WINDOW_S = 3600.0
"""Longest time from a forecast to the submission of the job that scores it."""
PROCS_RATIO, TIME_RATIO = 1.25, 1.5
"""Most that processors, and requested times, of a forecast and of the job that scores it differ by,
as ratios: a width of 4 or less is scored by its own, or by that of 5."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenForecast:
    """A forecast that waits for a start. ``submit_s``: the submission that it was about, in the
    time of its history; ``is_ahead``: it was issued for a later submission; ``longest_s``: the
    longest wait that it stated anything about."""

    id: str
    submit_s: float
    procs: int
    walltime_s: float
    is_ahead: bool = False
    longest_s: float = math.inf


def match_starts(log: JobLog, forecasts: Iterable[OpenForecast]) -> Mapping[str, ForecastOutcome]:
    """Return what is known of the job that scores each forecast, also where none is known. The
    result depends only on the jobs of the log, not on the order in which they became known."""
    entries = sorted(forecasts, key=lambda entry: -entry.submit_s)
    if not entries or not (len(log) or log.waiting):
        return {}
    jobs, horizon = _select_jobs(log, entries[-1].submit_s), _find_horizon(log)
    taken = {ahead: np.full(len(jobs.submit_s), np.nan) for ahead in (False, True)}
    result: dict[str, ForecastOutcome] = {}
    for entry in entries:
        first = np.searchsorted(jobs.submit_s, entry.submit_s, side="left")
        end = np.searchsorted(jobs.submit_s, entry.submit_s + WINDOW_S, side="right")
        window = slice(int(first), int(end))
        request_s = jobs.request_s[window] if jobs.has_requests else None
        distances = _compute_distances(jobs.procs[window], request_s, entry.procs, entry.walltime_s)
        taken_by = taken[entry.is_ahead][window]
        distances[~np.isnan(taken_by) & (taken_by != entry.submit_s)] = np.inf
        taken_by[np.isfinite(distances)] = entry.submit_s
        # one that was withdrawn shows something where it had waited for longer than all bounds
        shows_nothing = jobs.withdrawn[window] & (jobs.wait_s[window] <= entry.longest_s)
        distances[shows_nothing] = np.inf
        result[entry.id] = _find_nearest(jobs, window, distances, entry, horizon)
    return result


class _Jobs(NamedTuple):
    """Jobs in the order of submission, in seconds since 1970; ``wait_s``: NaN of one that waits;
    ``withdrawn``: it left the queue without a start."""

    submit_s: Floats
    procs: Floats
    request_s: Floats
    wait_s: Floats
    withdrawn: Bools
    has_requests: bool


class _Horizon(NamedTuple):
    """Until when a history shows what happened, in seconds since 1970, and whether also the jobs
    that have not ended yet."""

    until_s: float
    is_complete: bool


def _select_jobs(log: JobLog, since_s: float) -> _Jobs:
    """Return the jobs of a log since an instant, with those that still wait."""
    columns = [(log.submit_s, log.procs, log.request_s, log.wait_s, ~log.started)]
    if log.waiting is not None:
        queue = log.waiting
        wait_s, withdrawn = np.full(len(queue), np.nan), np.zeros(len(queue), dtype=bool)
        columns.append((queue.submit_s, queue.procs, queue.request_s, wait_s, withdrawn))
    joined = [np.concatenate(column) for column in zip(*columns, strict=True)]
    submit_s = joined[0] + log.unix_start_s
    order = np.argsort(submit_s, kind="stable")
    order = order[submit_s[order] >= since_s]
    _, procs, request_s, wait_s, withdrawn = (column[order] for column in joined)
    return _Jobs(
        submit_s=submit_s[order],
        procs=procs.astype(np.float64),
        request_s=request_s,
        wait_s=wait_s,
        withdrawn=withdrawn,
        has_requests=not len(order) or bool((request_s > 0).mean() > 0.5),
    )


def _find_horizon(log: JobLog) -> _Horizon:
    """Return the horizon of a log. One that lists neither waiting nor running jobs may be of
    ended jobs alone."""
    ends_s = (log.start_s + np.maximum(log.run_s, 0.0)).max(initial=0.0)
    until_s = log.end_s if log.waiting is not None else max(log.end_s, float(ends_s))
    return _Horizon(log.unix_start_s + until_s, log.waiting is not None)


def _compute_distances(
    procs: Floats, request_s: Floats | None, width: int, walltime_s: float
) -> Floats:
    """Return how much shapes of jobs differ from one, inf where they are not alike; without
    requested times by their processors."""
    wider = np.abs(np.log(np.maximum(procs, 1.0) / max(width, 1)))
    alike = wider <= math.log(PROCS_RATIO) + _ROUNDING
    if request_s is None:
        return np.where(alike, wider, np.inf)
    longer = np.abs(np.log(np.maximum(request_s, 1.0) / max(walltime_s, 1.0)))
    alike &= (request_s > 0) & (longer <= math.log(TIME_RATIO) + _ROUNDING)
    return np.where(alike, wider + longer, np.inf)


def _find_nearest(
    jobs: _Jobs, window: slice, distances: Floats, entry: OpenForecast, horizon: _Horizon
) -> ForecastOutcome:
    """Return what is known of the nearest job; where there is none, of one that the log may not
    show yet: it would, had it started by ``observed_s`` and ended by its limit."""
    nearest = distances.min(initial=np.inf)
    if not np.isfinite(nearest):
        observed_s = 0.0  # there is none
        if not horizon.is_complete:
            observed_s = horizon.until_s - entry.submit_s - WINDOW_S - entry.walltime_s
        return ForecastOutcome(submit_s=None, wait_s=None, observed_s=max(0.0, observed_s))
    row = window.start + int(np.argmax(distances <= nearest + _ROUNDING))
    submit_s, wait_s = float(jobs.submit_s[row]), float(jobs.wait_s[row])
    observed_s = horizon.until_s - submit_s
    if math.isnan(wait_s):
        return ForecastOutcome(submit_s=submit_s, wait_s=None, observed_s=observed_s)
    if jobs.withdrawn[row]:
        return ForecastOutcome(submit_s=submit_s, wait_s=None, observed_s=wait_s)
    if not horizon.is_complete:
        limit_s = float(jobs.request_s[row])
        observed_s -= limit_s if limit_s > 0 else entry.walltime_s
    return ForecastOutcome(submit_s=submit_s, wait_s=wait_s, observed_s=max(observed_s, wait_s))
