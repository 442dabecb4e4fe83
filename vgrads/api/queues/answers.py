"""Answers about queues → the JSON of the contracts. Programs outside rely on these shapes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from vgrads.api.queues.queries import AskedQueue
from vgrads.qbets.forecast import Bound
from vgrads.vgrid.varq import Trajectory

Json = dict[str, Any]


def bound_json(bound: Bound, asked: AskedQueue) -> Json:
    """``vgrads bound --json``."""
    return {
        "bound_s": bound.bound_s,
        "probability": bound.probability,
        "confidence": bound.confidence,
        "method": bound.method,
        "jobs": bound.jobs,
        "since": asked.since,
        "cluster": asdict(bound.cluster),
        "reason": bound.reason,
        "downtime": downtime_json(asked),
        "history": {"jobs": asked.jobs, "distinct": asked.distinct},
    }


def probability_json(
    asked: AskedQueue, chance: float, within_s: float, jobs: int
) -> dict[str, Any]:
    """``vgrads probability --json``."""
    settings = asked.forecast.settings
    return {
        "probability": chance,
        "within_s": within_s,
        "confidence": settings.confidence,
        "method": asked.forecast.method,
        "jobs": jobs,
        "since": asked.since,
        "downtime": downtime_json(asked),
    }


def downtime_json(asked: AskedQueue) -> dict[str, Any] | None:
    """The present stall of the queue, if there is one."""
    stall = asked.forecast.downtime
    return (
        {"since": asked.instant(stall.since_s), "submissions": stall.submissions} if stall else None
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
