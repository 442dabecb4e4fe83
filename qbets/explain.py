"""Explanation of a bound: its value if one side of the queue's state were as usual, for each
side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vgrads.qbets.knots import wait_at
from vgrads.qbets.queue_state import FEATURES
from vgrads.qbets.state_forecast import StateForecast

SIDES = {
    "size of the job": (
        "processors",
        "requested time",
        "processors × time",
        "share of the machine",
    ),
    "hour and weekday": ("hour", "weekday"),
    "waiting jobs": (
        "jobs waiting",
        "processors waiting",
        "work waiting",
        "expected work waiting",
        "work of smaller jobs waiting",
        "jobs as short waiting",
        "jobs as narrow waiting",
        "jobs of this queue waiting",
        "same waiting",
    ),
    "running jobs and free processors": (
        "jobs running",
        "free share",
        "free beyond this job",
        "work left running",
        "expected work left running",
        "room by request",
        "room by expectation",
    ),
    "start times under scheduling rules": (
        "start by FCFS",
        "start by EASY",
        "start by conservative",
        "start by expected runs",
    ),
    "recent waits": (
        "last 10 waits",
        "last 100 waits",
        "longest of 30 waits",
        "waits of like jobs",
        "longest wait of like jobs",
        "queue's waits",
        "last wait of the same",
        "longest wait of the same",
    ),
    "waits of the jobs still in the queue": (
        "oldest waiting",
        "mean age waiting",
        "oldest as small waiting",
        "like jobs waiting for long",
        "oldest same waiting",
    ),
    "rates of arrivals and starts": (
        "since the last start",
        "starts lately",
        "arrivals lately",
        "since the same came",
        "since the same started",
    ),
}
"""Side of a queue's state, as text → its features; the other features are not known for a job that
was not submitted."""
_DESCRIPTIONS = {
    "waiting jobs": ("jobs waiting", "{:.0f} jobs wait, usually {:.0f}"),
    "running jobs and free processors": (
        "free share",
        "{:.0%} of the machine is free, usually {:.0%}",
    ),
    "rates of arrivals and starts": (
        "starts lately",
        "{:.0f} jobs started within the last hour, usually {:.0f}",
    ),
    "hour and weekday": ("hour", "it is {:.0f} o'clock of the log, usually {:.0f}"),
}
_TIMES = {
    "start times under scheduling rules": "start by EASY",
    "recent waits": "waits of like jobs",
    "waits of the jobs still in the queue": "oldest waiting",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundReason:
    """One side of the state: the bound if it were as usual, the bound as it is, and the unusual
    values.

    ``seconds``: the values as times (now, usually), None if ``text`` has them.
    """

    side: str
    bound_s: float
    usual_bound_s: float
    text: str | None
    seconds: tuple[float, float] | None

    @property
    def moved_s(self) -> float:
        """Amount by which this side moved the bound up (or, negative, down)."""
        return self.bound_s - self.usual_bound_s


def explain(
    forecast: StateForecast, procs: int, walltime_s: float, probability: float
) -> list[BoundReason]:
    """Return the sides of the state, the one that moved the bound most first. The size is that of
    the job.

    Sides interact, so their amounts do not add up to the whole. A bound from past waits has no such
    reasons.
    """
    if forecast.bound(procs, walltime_s, probability).method == "qbets":
        return []
    features, usual = forecast.features(procs, walltime_s), forecast.model.typical
    score, shape = forecast.curve(procs, walltime_s).score(probability), (procs, walltime_s, 0)
    bound_s = float(wait_at(forecast.blend(features, shape), score))
    reasons = []
    for side, names in SIDES.items():
        columns = [FEATURES.index(name) for name in names]
        other = features.copy()
        other[columns] = usual[columns]
        usual_s = float(wait_at(forecast.blend(other, shape), score))
        reasons.append(
            BoundReason(
                side=side,
                bound_s=bound_s,
                usual_bound_s=usual_s,
                text=_describe_side(side, features, usual),
                seconds=_seconds(side, features, usual),
            )
        )
    return sorted(reasons, key=lambda reason: -abs(reason.moved_s))


def _describe_side(side: str, now: np.ndarray, usual: np.ndarray) -> str | None:
    if side not in _DESCRIPTIONS:
        return None
    name, sentence = _DESCRIPTIONS[side]
    column = FEATURES.index(name)
    return sentence.format(now[column], usual[column])


def _seconds(side: str, now: np.ndarray, usual: np.ndarray) -> tuple[float, float] | None:
    """Convert times, which are stored as log(1 + seconds)."""
    if side not in _TIMES:
        return None
    column = FEATURES.index(_TIMES[side])
    here, usually = np.expm1(np.nan_to_num([now[column], usual[column]]))
    return float(here), float(usually)
