"""What a queue would make usual jobs wait now, and what runs and waits in it.

Imported late: it needs forecasts, without which the service starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from vgrads.api.queues.histories import AS_QUESTION
from vgrads.kernel.units import format_count, format_duration
from vgrads.operations.queue_questions import JobLimits, OpenQueue
from vgrads.portal.charts.curves import BLUE, GREY, Curve, CurveChart, curves_svg
from vgrads.portal.charts.wait_axis import wait_words
from vgrads.qbets.state.queue_tables import BUSY, MOST, RUNNING
from vgrads.qbets.state_forecast import AnyForecast, StateForecast
from vgrads.qbets.views import ENDED

_HALF, _MOST = 0.5, 0.95
_PARTS = (0, 16, 4)
"""Parts of the most processors of a job that a small (one processor), medium and large job has."""
_TIMES_S = (3600.0, 4 * 3600.0, 12 * 3600.0)
_WEEK_S, _WEEKS = 7 * 86400.0, 26
_FEWEST_JOBS = 5  # of a week that is drawn
_FEWEST_WEEKS = 3
_AT_ONCE_S = 1.0  # schedulers look at their queues less often
Shape = tuple[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeWait:
    """The wait of a shape in words; empty where it is not known."""

    procs: int
    walltime_s: float
    half: str
    most: str

    @property
    def job(self) -> str:
        """The shape in words: "4 processors, 2h"."""
        return f"{format_count(self.procs, 'processor')}, {format_duration(self.walltime_s)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLoad:
    """Running jobs and free processors; ``most``: processors that were ever busy at once."""

    running: int
    free: int
    most: int


def widths_of(limits: JobLimits) -> list[int]:
    """Return the processors of a small, a medium and a large job that a queue permits."""
    return sorted({max(1, limits.procs // part) if part else 1 for part in _PARTS})


def times_of(limits: JobLimits) -> list[float]:
    """Return requested times that a queue permits, of about the same three kinds."""
    return sorted({min(seconds, limits.walltime_s) for seconds in _TIMES_S})


def usual_shapes(limits: JobLimits) -> list[Shape]:
    """Return a small, a medium and a large job; fewer of a queue that permits only small ones."""
    widths, times = widths_of(limits), times_of(limits)
    count = max(len(widths), len(times))
    return [(widths[min(n, len(widths) - 1)], times[min(n, len(times) - 1)]) for n in range(count)]


def waits_of(opened: OpenQueue, shapes: Iterable[Shape]) -> list[ShapeWait]:
    """Return how long jobs would wait if they were submitted now."""
    return [_wait(opened, *shape) for shape in shapes]


def _wait(opened: OpenQueue, procs: int, walltime_s: float) -> ShapeWait:
    starts = opened.query.starts
    bounds = starts.bounds(procs, walltime_s, [_HALF, _MOST], AS_QUESTION.confidence)
    half, most = (_format_wait(float(bound_s)) for bound_s in bounds)
    return ShapeWait(procs=procs, walltime_s=walltime_s, half=half, most=most)


def _format_wait(wait_s: float) -> str:
    if not math.isfinite(wait_s):
        return ""
    return wait_words(wait_s) if wait_s >= _AT_ONCE_S else "at once"


def start_words(wait_s: float) -> str:
    """Say when a job starts that waits at most so long: "at once", "within 4 min"."""
    return "at once" if wait_s < _AT_ONCE_S else f"within {wait_words(wait_s)}"


def load_of(forecast: AnyForecast) -> MachineLoad | None:
    """Return what runs on the machine from which a forecast was made; None for past waits, and
    where running jobs are not known."""
    if not isinstance(forecast, StateForecast) or forecast.settings.view == ENDED:
        return None
    numbers = forecast.state.tables.numbers
    return MachineLoad(
        running=int(numbers[RUNNING]),
        free=int(numbers[MOST] - numbers[BUSY]),
        most=int(numbers[MOST]),
    )


def trend_chart(opened: OpenQueue) -> str:
    """Draw how long jobs waited, by the week of their submission, in the last half year of the
    history; empty where too few weeks have jobs."""
    log = opened.query.log
    end_s = log.end_s
    ago = ((end_s - log.submit_s) // _WEEK_S).astype(int)
    halves, mosts = [], []
    for week in range(min(_WEEKS, int(ago.max(initial=0)) + 1)):
        waits_s = log.wait_s[ago == week]
        if len(waits_s) >= _FEWEST_JOBS:
            half, most = np.quantile(waits_s, [_HALF, _MOST])
            halves.append((-float(week), float(half)))
            mosts.append((-float(week), float(most)))
    if len(halves) < _FEWEST_WEEKS:
        return ""
    begin = min(halves[-1][0], -4.0)
    longest_s = max(seconds for _, seconds in mosts)
    unit, size = ("hours", 3600.0) if longest_s > 3600.0 else ("minutes", 60.0)
    chart = CurveChart(
        title="Waits by week of submission",
        x_label="weeks before the end of the history",
        y_label=unit,
        curves=(
            Curve(label="half of the jobs", points=_scale_points(halves, size), colour=BLUE),
            Curve(label="95 in 100", points=_scale_points(mosts, size), colour=GREY, dashed=True),
        ),
        x_range=(begin, 0.0),
        y_most=max(longest_s / size, 0.001),
        x_labels=tuple((-float(week), f"{week}") for week in _name_weeks(-begin)),
    )
    return curves_svg([chart])


def _scale_points(
    points: Iterable[tuple[float, float]], size: float
) -> tuple[tuple[float, float], ...]:
    return tuple(sorted((x, y / size) for x, y in points))


def _name_weeks(count: float) -> range:
    return range(0, int(count) + 1, max(1, round(count / 6)))
