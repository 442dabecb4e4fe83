"""Explanation of a bound: what each side of the queue's state adds to the bound of a usual state.

The parts add up to the bound. Sides interact, so each part is the mean of two: what the side adds
where it is the first to leave the usual state, in order, and the last. Features of a side interact
too: that more processors are free can lengthen a bound where the model takes it for the sign of a
wide job that waits. Such a feature is true of the model and no reason for a reader, so each feature
has the direction in which users expect it to move a wait, and is named only where it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vgrads.kernel.arrays import Floats
from vgrads.kernel.units import format_duration
from vgrads.qbets.knots import wait_at
from vgrads.qbets.state.queue_features import FEATURES, USUAL
from vgrads.qbets.state_forecast import StateForecast
from vgrads.qbets.views import ENDED, FULL, STARTED

_SIZE = "size of the job"
SIDES = {
    _SIZE: (
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
        "same waiting",
    ),
    "this user's jobs and waits": (
        "own jobs waiting",
        "own work waiting",
        "own processors running",
        "user's last wait",
        "user's waits",
    ),
    "this queue's jobs and waits": (
        "queue",
        "jobs of this queue waiting",
        "work of this queue waiting",
        "oldest of this queue waiting",
        "processors of this queue running",
        "free share of this queue",
        "queue's waits",
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
"""Side of a queue's state, as text → its features: all of them."""
_COUNTS = {
    "processors": "processors",
    "own jobs waiting": "waiting jobs of this user",
    "own processors running": "processors on which this user runs",
    "jobs waiting": "waiting jobs",
    "jobs as short waiting": "waiting jobs as short",
    "jobs as narrow waiting": "waiting jobs as narrow",
    "same waiting": "waiting jobs that are equal",
    "jobs of this queue waiting": "waiting jobs of this queue",
    "jobs running": "running jobs",
    "like jobs waiting for long": "like jobs that have waited for over an hour",
    "starts lately": "jobs started within the last hour",
    "arrivals lately": "jobs submitted within the last hour",
}
_CLOCKS = {"hour": "time of day, by the log's clock", "weekday": "day of the log's weeks"}
_SHARES = {
    "share of the machine": "{} of the machine, usually {}",
    "processors waiting": "waiting jobs request {} of the machine, usually {}",
    "processors of this queue running": "jobs of this queue run on {} of the machine, usually {}",
    "free share": "{} of the machine is free, usually {}",
    "free share of this queue": "{} of this queue's processors are free, usually {}",
}
_TIMES = {
    "requested time": "requested time",
    "work waiting": "waiting jobs would fill the machine for",
    "expected work waiting": "waiting jobs would fill the machine, by expected run times, for",
    "work of smaller jobs waiting": "waiting jobs as small would fill the machine for",
    "own work waiting": "waiting jobs of this user would fill the machine for",
    "work of this queue waiting": "waiting jobs of this queue would fill the machine for",
    "work left running": "running jobs would still fill the machine for",
    "expected work left running": (
        "running jobs would still fill the machine, by expected run times, for"
    ),
    "user's last wait": "last wait of this user",
    "user's waits": "mean wait of this user",
    "oldest of this queue waiting": "longest wait so far in this queue",
    "queue's waits": "mean wait in this queue",
    "room by request": "processors are free, by requested times, after",
    "room by expectation": "processors are free, by expected run times, after",
    "start by FCFS": "start in order of submission after",
    "start by EASY": "start with EASY backfilling after",
    "start by conservative": "start with conservative backfilling after",
    "start by expected runs": "start with EASY backfilling by expected run times after",
    "last 10 waits": "mean of the last 10 waits",
    "last 100 waits": "mean of the last 100 waits",
    "longest of 30 waits": "longest of the last 30 waits",
    "waits of like jobs": "mean wait of like jobs",
    "longest wait of like jobs": "longest wait of like jobs",
    "last wait of the same": "last wait of equal jobs",
    "longest wait of the same": "longest wait of equal jobs",
    "oldest waiting": "longest wait so far",
    "mean age waiting": "mean wait so far",
    "oldest as small waiting": "longest wait so far of jobs as small",
    "oldest same waiting": "longest wait so far of equal jobs",
    "since the last start": "time since the last start",
    "since the same came": "time since the last equal job came",
    "since the same started": "time since the last equal job started",
}
"""Features with a description; times are stored as log(1 + seconds)."""
_SHORTEN = ("free share", "free share of this queue")
"""Features of which more is expected to shorten a wait."""
_EITHER = (
    "processors",
    "requested time",
    "share of the machine",
    "hour",
    "weekday",
    "since the last start",
    "starts lately",
    "arrivals lately",
    "since the same came",
    "since the same started",
)
"""Features that may move a wait either way: some schedulers prefer large jobs, and many starts are
the sign of a fast queue as well as of a crowded machine. Of all others, more is expected to
lengthen a wait."""
TOGETHER = "no single value explains this, only all of them together"
"""Text of a side that moves a bound in a direction that none of its features explains."""

_NOT_SHOWN = {
    FULL: (),
    STARTED: ("waiting jobs", "waits of the jobs still in the queue"),
    ENDED: (
        "waiting jobs",
        "waits of the jobs still in the queue",
        "running jobs and free processors",
        "start times under scheduling rules",
    ),
}
"""Sides that a view does not show. Their features depend on the size of the job alone there."""
_ARRIVALS = {
    STARTED: {"arrivals lately": "jobs started within the last hour"},
    ENDED: {"arrivals lately": "jobs ended within the last hour"},
}
"""Features that mean something else in a view: a job counts as an arrival when it appears."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundReason:
    """One side of the state: the seconds that it adds to the bound (or, negative, takes from it),
    and its feature that moves the bound most in a direction that users expect of it, now and
    usually; :data:`TOGETHER` if there is none, None for a side that moves nothing."""

    side: str
    moved_s: float
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A bound as that of a usual state, and what each side adds; the largest part first."""

    bound_s: float
    usual_bound_s: float
    reasons: tuple[BoundReason, ...]


def explain(
    forecast: StateForecast, procs: int, walltime_s: float, probability: float
) -> Explanation | None:
    """Return what moved a bound; None where there is none, and for one from past waits, which has
    no such reasons."""
    bound = forecast.bound(procs, walltime_s, probability)
    if bound.bound_s is None or bound.method == "qbets":
        return None
    now, usual = forecast.features(procs, walltime_s), forecast.models[-1].typical
    score, shape = forecast.curve(procs, walltime_s).score(probability), (procs, walltime_s, 0)

    def bound_of(features: Floats) -> float:
        return float(wait_at(forecast.blend(features, shape), score))

    view = forecast.settings.view
    sides = _select_sides(view)
    states, bounds_s = (now, usual), (bound_of(now), bound_of(usual))
    # what a side adds depends on which sides moved before it: the mean of two opposite orders
    first = _walk(bound_of, states, bounds_s[1], list(sides.items()))
    last = _walk(bound_of, states, bounds_s[1], list(sides.items())[::-1])
    counts = _COUNTS | _ARRIVALS.get(view, {})
    reasons = []
    for side, names in sides.items():
        moved_s = (first[side] + last[side]) / 2
        text = _describe_side(names, counts, moved_s, bound_of, states) if round(moved_s) else None
        reasons.append(BoundReason(side=side, moved_s=moved_s, text=text))
    return Explanation(
        bound_s=bounds_s[0],
        usual_bound_s=bounds_s[1],
        reasons=tuple(sorted(reasons, key=lambda reason: -abs(reason.moved_s))),
    )


def _select_sides(view: str) -> dict[str, tuple[str, ...]]:
    """Return the sides that a view shows, with their features."""
    hidden = _NOT_SHOWN[view]
    shown = {side: features for side, features in SIDES.items() if side not in hidden}
    # all that hidden features still depend on is the size of the job
    shown[_SIZE] += tuple(name for side in hidden for name in SIDES[side])
    return shown


def _walk(
    bound_of: Callable[[Floats], float],
    states: tuple[Floats, Floats],
    before_s: float,
    sides: Sequence[tuple[str, tuple[str, ...]]],
) -> dict[str, float]:
    """Return what each side adds, in this order, from the usual state to the present one."""
    (now, usual), added = states, {}
    features = usual.copy()
    for side, names in sides:
        columns = [FEATURES.index(name) for name in names]
        features[columns] = now[columns]
        after_s = bound_of(features)
        added[side], before_s = after_s - before_s, after_s
    return added


def _describe_side(
    names: Sequence[str],
    counts: Mapping[str, str],
    moved_s: float,
    bound_of: Callable[[Floats], float],
    states: tuple[Floats, Floats],
) -> str:
    """Describe the feature of a side that moves the bound most in the direction of the side's part,
    of those from which users expect it; ``counts``: how features that count jobs are described."""
    now, usual = states
    bounds_s = bound_of(now), bound_of(usual)
    most_s, result = 0.0, TOGETHER
    for name in names:
        column = FEATURES.index(name)
        text = _describe_feature(name, float(now[column]), float(usual[column]), counts)
        if text is None or not _is_expected(name, now[column] - usual[column], moved_s):
            continue
        without, alone = now.copy(), usual.copy()
        without[column], alone[column] = usual[column], now[column]
        # features interact: the mean of taking it from the present state and adding it to the usual
        effect_s = (bounds_s[0] - bound_of(without) + bound_of(alone) - bounds_s[1]) / 2
        if effect_s * np.sign(moved_s) > most_s:
            most_s, result = abs(effect_s), text
    return result


def _is_expected(name: str, change: float, moved_s: float) -> bool:
    """Return whether users expect of a feature's change that it moves a wait in this direction."""
    if name in _EITHER:
        return True
    # of features that shorten a wait the opposite is expected
    return bool((change > 0) == (moved_s > 0)) != (name in _SHORTEN)


def _describe_feature(
    name: str, now: float, usual: float, counts: Mapping[str, str] = _COUNTS
) -> str | None:
    """Describe a feature; None where it has no description, a value is not known, or both are
    printed alike."""
    words = {**counts, **_CLOCKS, **_SHARES, **_TIMES}.get(name)
    if words is None or np.isnan(now) or usual == USUAL:  # models have this for unknown values
        return None
    values = _format_feature(name, now), _format_feature(name, usual)
    if values[0] == values[1]:
        return None
    if name in _SHARES:
        return words.format(*values)
    return f"{words}{'' if name in _TIMES else ':'} {values[0]}, usually {values[1]}"


def _format_feature(name: str, value: float) -> str:
    if name == "hour":
        return _format_time_of_day(value)
    if name == "weekday":
        return _format_day_of_week(value)
    if name in _SHARES:
        return f"{value:.0%}"
    if name in _TIMES:
        # requested time and processors are stored as plain logarithms: they are never 0
        return format_duration(np.exp(value) if name == "requested time" else np.expm1(value))
    return f"{np.exp(value) if name == 'processors' else value:,.0f}"


def _format_time_of_day(hours: float) -> str:
    """Return hours since midnight as a time.

    >>> _format_time_of_day(23.99), _format_time_of_day(0.5)
    ('23:59', '00:30')
    """
    # a whole minute may be stored as slightly less in binary fractions of an hour
    minutes = int(hours * 60 + 1e-6) % (24 * 60)
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _format_day_of_week(days: float) -> str:
    """Return the number of a day, from 1 to 7."""
    return str(int(days) % 7 + 1)
