"""Answers to queries of queues, as issued forecasts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vgrads.api.queues.issued import LEVELS, Bounds, IssuedForecast, Probabilities
from vgrads.api.queues.queries import QueueQuery
from vgrads.vgrid.varq import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastTarget:
    """What a forecast was about: a queue of a site, or of a file that belongs to none
    (``history``).

    ``is_live``: about jobs that are submitted at the current time, not at the end of the history.
    """

    site: str
    queue: str
    history: str = ""
    owner: str = ""
    is_live: bool = False
    retrospective: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What was stated about a shape: bounds, probabilities, or when to submit it (``path``) for a
    ``requested`` probability."""

    bounds: Bounds = ()
    probabilities: Probabilities = ()
    path: Trajectory | None = None
    requested: float | None = None


def issue(
    query: QueueQuery,
    target: ForecastTarget,
    kind: str,
    shape: tuple[int, float],
    stated: Statement,
    submit_in_s: float = 0.0,
) -> IssuedForecast:
    """Return the forecast of a query for a shape, as issued."""
    # a live answer is about this moment, however old the history is
    at_s = time.time() if target.is_live else query.log.unix_start_s + query.at_s
    return IssuedForecast(
        site=target.site,
        queue=target.queue,
        history=target.history,
        owner=target.owner,
        retrospective=target.retrospective,
        procs=shape[0],
        walltime_s=shape[1],
        instant_s=at_s,
        submit_in_s=submit_in_s,
        kind=kind,
        method=query.forecast.method,
        view=query.forecast.settings.view,
        bounds=stated.bounds,
        probabilities=stated.probabilities,
    )


def issue_stated(
    query: QueueQuery, target: ForecastTarget, shape: tuple[int, float], stated: Statement
) -> IssuedForecast:
    """Return an answer about a shape as issued, with the standard quantiles; of a trajectory, the
    instant that was recommended, or the best."""
    if stated.path is not None:
        promised = None if stated.path.chosen is None else stated.requested
        issued = _issue_path(query, target, shape[0], stated.path)
        return replace(issued, promised=promised)
    kind = "bound" if stated.bounds else "probability"
    bounds = {**dict(compute_stated_bounds(query, *shape)), **dict(stated.bounds)}
    with_standard = Statement(
        bounds=tuple(sorted(bounds.items())), probabilities=stated.probabilities
    )
    return issue(query, target, kind, shape, with_standard)


def _issue_path(
    query: QueueQuery, target: ForecastTarget, procs: int, path: Trajectory
) -> IssuedForecast:
    at = path.recommended
    submit_in_s = float(path.submit_s[at])
    within_s = float(path.submit_s[-1]) - submit_in_s
    stated = Statement(probabilities=((within_s, float(path.probabilities[at])),))
    shape = (procs, float(path.walltimes_s[at]))
    return issue(query, target, "trajectory", shape, stated, submit_in_s)


def compute_stated_bounds(
    query: QueueQuery, procs: int, walltime_s: float, levels: Sequence[float] = LEVELS
) -> Bounds:
    """Return the bounds of a query at some quantiles; None where there is none."""
    confidence = query.forecast.settings.confidence
    waits_s = query.starts.bounds(procs, walltime_s, levels, confidence)
    return tuple(
        (level, float(wait_s) if np.isfinite(wait_s) else None)
        for level, wait_s in zip(levels, waits_s.tolist(), strict=True)
    )
