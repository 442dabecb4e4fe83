"""Why this bound? What it would be if one side of the queue's state were as usual, side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vgrads.qbets.knots import wait_at
from vgrads.qbets.queue_state import FEATURES
from vgrads.qbets.state_forecast import StateForecast

SIDES = {
    "the size of the job": (
        "processors",
        "requested time",
        "processors × time",
        "share of the machine",
    ),
    "the hour and the weekday": ("hour", "weekday"),
    "who and how much waits already": (
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
    "what runs and how much is free": (
        "jobs running",
        "free share",
        "free beyond this job",
        "work left running",
        "expected work left running",
        "room by request",
        "room by expectation",
    ),
    "when schedulers' rules would start it": (
        "start by FCFS",
        "start by EASY",
        "start by conservative",
        "start by expected runs",
    ),
    "how long jobs waited lately": (
        "last 10 waits",
        "last 100 waits",
        "longest of 30 waits",
        "waits of like jobs",
        "longest wait of like jobs",
        "queue's waits",
        "last wait of the same",
        "longest wait of the same",
    ),
    "for how long others wait already": (
        "oldest waiting",
        "mean age waiting",
        "oldest as small waiting",
        "like jobs waiting for long",
        "oldest same waiting",
    ),
    "how fast jobs come and start": (
        "since the last start",
        "starts lately",
        "arrivals lately",
        "since the same came",
        "since the same started",
    ),
}
"""Side of a queue's state, in words → its features; the rest is not known of a job that nobody
submitted."""
_TOLD = {
    "who and how much waits already": ("jobs waiting", "{:.0f} jobs wait, usually {:.0f}"),
    "what runs and how much is free": (
        "free share",
        "{:.0%} of the machine is free, usually {:.0%}",
    ),
    "how fast jobs come and start": (
        "starts lately",
        "{:.0f} jobs started within the last hour, usually {:.0f}",
    ),
    "the hour and the weekday": ("hour", "it is {:.0f} o'clock of the log, usually {:.0f}"),
}
_TIMES = {
    "when schedulers' rules would start it": "start by EASY",
    "how long jobs waited lately": "waits of like jobs",
    "for how long others wait already": "oldest waiting",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One side of the state: the bound if it were as usual, the bound as it is, and what is
    unusual.

    ``seconds``: the same as times (now, usually), None where ``told`` says it.
    """

    side: str
    bound_s: float
    usual_bound_s: float
    told: str | None
    seconds: tuple[float, float] | None

    @property
    def moved_s(self) -> float:
        """By how much this side moved the bound up (or, negative, down)."""
        return self.bound_s - self.usual_bound_s


def explain(
    known: StateForecast, procs: int, walltime_s: float, probability: float
) -> list[Reason]:
    """The sides of the state, the one that moved the bound most first. The size is that of the job.

    Sides act together, so what they moved does not add up to the whole. Nothing moved a bound that
    past waits gave.
    """
    if known.bound(procs, walltime_s, probability).method == "qbets":
        return []
    features, usual = known.features(procs, walltime_s), known.model.typical
    score, shape = known.curve(procs, walltime_s).score(probability), (procs, walltime_s, 0)
    bound_s = float(wait_at(known.blend(features, shape), score))
    reasons = []
    for side, names in SIDES.items():
        columns = [FEATURES.index(name) for name in names]
        other = features.copy()
        other[columns] = usual[columns]
        usual_s = float(wait_at(known.blend(other, shape), score))
        reasons.append(
            Reason(
                side=side,
                bound_s=bound_s,
                usual_bound_s=usual_s,
                told=_told(side, features, usual),
                seconds=_seconds(side, features, usual),
            )
        )
    return sorted(reasons, key=lambda reason: -abs(reason.moved_s))


def _told(side: str, now: np.ndarray, usual: np.ndarray) -> str | None:
    if side not in _TOLD:
        return None
    name, sentence = _TOLD[side]
    column = FEATURES.index(name)
    return sentence.format(now[column], usual[column])


def _seconds(side: str, now: np.ndarray, usual: np.ndarray) -> tuple[float, float] | None:
    """Times are kept as log(1 + seconds)."""
    if side not in _TIMES:
        return None
    column = FEATURES.index(_TIMES[side])
    here, usually = np.expm1(np.nan_to_num([now[column], usual[column]]))
    return float(here), float(usually)
