"""Which started job shows the wait that a forecast was about.

A forecast for a shape is scored by the first job of the same class of shapes that was submitted
within an hour after it, unless a newer forecast for the class came in between. Forecasts for later
submissions are matched separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.api.queues.issued import ObservedStart
from vgrads.traces.records import JobLog

WINDOW_S = 3600.0
"""Longest time from a forecast to the submission of the job that scores it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenForecast:
    """A forecast that waits for a start. ``submit_s``: the submission that it was about, in the
    time of its history; ``is_ahead``: it was issued for a later submission."""

    id: str
    submit_s: float
    procs: int
    walltime_s: float
    is_ahead: bool = False


def shape_class(procs: int, walltime_s: float) -> tuple[int, int]:
    """Return the class of a shape: the same power of two of processors, and of seconds.

    >>> shape_class(64, 3600.0) == shape_class(100, 4000.0)
    True
    """
    return max(1, int(procs)).bit_length(), max(1, int(walltime_s)).bit_length()


def match_starts(log: JobLog, forecasts: Iterable[OpenForecast]) -> Mapping[str, ObservedStart]:
    """Return the start that scores each forecast, where there is one. The result depends only on
    the jobs of the log, not on the order in which they became known."""
    by_class: dict[tuple[int, int, bool], list[OpenForecast]] = {}
    for entry in forecasts:
        group = (*shape_class(entry.procs, entry.walltime_s), entry.is_ahead)
        by_class.setdefault(group, []).append(entry)
    if not by_class or not len(log):
        return {}
    earliest_s = min(e.submit_s for entries in by_class.values() for e in entries)
    submit_s = log.unix_start_s + log.submit_s
    rows = np.flatnonzero(log.started & (submit_s >= earliest_s))
    has_requests = bool((log.request_s[rows] > 0).mean() > 0.5) if len(rows) else True
    of_procs, of_time = _bit_lengths(log.procs[rows]), _bit_lengths(log.request_s[rows])
    result: dict[str, ObservedStart] = {}
    for (procs, time, _), entries in by_class.items():
        alike = rows[(of_procs == procs) & ((of_time == time) | (not has_requests))]
        result |= _first_starts(submit_s[alike], log.wait_s[alike], entries)
    return result


def _bit_lengths(values: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.int64]:
    _, exponents = np.frexp(np.maximum(values, 1).astype(np.int64).astype(np.float64))
    return exponents.astype(np.int64)


def _first_starts(
    submit_s: NDArray[np.float64], wait_s: NDArray[np.float64], entries: list[OpenForecast]
) -> dict[str, ObservedStart]:
    """Return the same for one class; jobs in the order of submission."""
    instants = np.unique([entry.submit_s for entry in entries])
    nearest = np.searchsorted(instants, submit_s, side="right") - 1
    starts: dict[float, ObservedStart] = {}
    for job, place in enumerate(nearest):
        if place >= 0 and submit_s[job] - instants[place] <= WINDOW_S:
            observed = ObservedStart(submit_s=float(submit_s[job]), wait_s=float(wait_s[job]))
            starts.setdefault(float(instants[place]), observed)
    return {e.id: starts[e.submit_s] for e in entries if e.submit_s in starts}
