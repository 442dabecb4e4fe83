"""Conversion of queue forecasts to the JSON of the contracts. External programs rely on these
shapes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np

from vgrads.api.queues.queries import QueueQuery
from vgrads.qbets.forecast import Bound
from vgrads.traces.records import JobLog
from vgrads.vgrid.varq import Trajectory

Json = dict[str, Any]


def bound_json(bound: Bound, query: QueueQuery) -> Json:
    """``vgrads bound --json``."""
    return {
        "bound_s": bound.bound_s,
        "probability": bound.probability,
        "confidence": bound.confidence,
        "method": bound.method,
        "jobs": bound.jobs,
        "since": query.since,
        "cluster": asdict(bound.cluster),
        "reason": bound.reason,
        "downtime": downtime_json(query),
        "history": {"jobs": query.jobs, "distinct": query.distinct},
        "reading": reading_json(query.log),
    }


def probability_json(
    query: QueueQuery, chance: float, within_s: float, jobs: int
) -> dict[str, Any]:
    """``vgrads probability --json``."""
    settings = query.forecast.settings
    return {
        "probability": chance,
        "within_s": within_s,
        "confidence": settings.confidence,
        "method": query.forecast.method,
        "jobs": jobs,
        "since": query.since,
        "downtime": downtime_json(query),
        "reading": reading_json(query.log),
    }


def reading_json(log: JobLog, more: Iterable[str] = ()) -> dict[str, Any] | None:
    """Return what became of the lines of a history's file, and warnings on its values, with
    ``more``; None if it was not read from a file."""
    if log.report is None:
        return None
    return log.report.as_json() | {"warnings": [*log.warnings, *more]}


def downtime_json(query: QueueQuery) -> dict[str, Any] | None:
    """Return the current stall of the queue, if there is one."""
    stall = query.forecast.downtime
    return (
        {"since": query.instant(stall.since_s), "submissions": stall.submissions} if stall else None
    )


def trajectory_json(path: Trajectory) -> Json:
    """``vgrads trajectory --json``."""
    chosen, best = path.chosen, path.best
    at = chosen if chosen is not None else best
    return {
        "submit_in_s": float(path.submit_s[chosen]) if chosen is not None else None,
        "probability": float(path.probabilities[at]),
        "walltime_s": float(path.walltimes_s[at]),
        "best": {
            "submit_in_s": float(path.submit_s[best]),
            "probability": float(path.probabilities[best]),
        },
        "trajectory": np.column_stack([path.submit_s, path.probabilities]).round(6).tolist(),
    }
