"""The present of a queue, for its page: bounds, the curve, the best instant to submit, and jobs.

Imported late: it needs forecasts, without which the service starts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vgrads.api.queues import queries
from vgrads.api.queues.histories import AS_QUESTION
from vgrads.api.queues.queries import QueueQuery
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_instant, parse_duration
from vgrads.operations.forecasts import downtime_json
from vgrads.operations.queue_questions import OpenQueue, closure_of
from vgrads.operations.recommended_submission import recommend
from vgrads.portal.charts.wait_axis import minute_words
from vgrads.portal.charts.wait_curve import WaitCurve
from vgrads.qbets.state.queue_tables import BUSY, MOST, RUNNING
from vgrads.qbets.state_forecast import AnyForecast, StateForecast
from vgrads.qbets.views import ENDED
from vgrads.vgrid.varq import STEP_S, Reservation, Trajectory

Json = dict[str, Any]
LEVELS = (0.5, 0.75, 0.9, 0.95, 0.99)
_MEDIAN, _HIGH = 0, 3  # places of .5 and .95
_POINTS, _INSTANTS = 160, 240
_SHORTEST_S, _LEAST_SPAN = 1.0, 100.0
_SOONEST_S, _FARTHEST_S = 3600.0, 31 * 86400.0  # of the default start, and of all
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuestion:
    """A shape, and when it must have started: a duration from now, empty for the default."""

    procs: int
    walltime_s: float
    start_by: str
    probability: float


def queue_now(opened: OpenQueue, question: PageQuestion) -> Json:
    """Return what the page of a queue shows of the present."""
    query, shape = opened.query, (question.procs, question.walltime_s)
    bounds = [query.starts.bound(*shape, level, AS_QUESTION.confidence) for level in LEVELS]
    rows = [{"probability": entry.probability, "bound_s": entry.bound_s} for entry in bounds]
    high = bounds[_HIGH]
    return {
        "bounds": rows,
        "jobs": high.jobs,
        "method": high.method,
        "reason": next((b.reason for b in bounds if b.reason), None) or opened.reason,
        "since": query.since,
        "as_of": query.instant(query.at_s),
        "downtime": downtime_json(query),
        "curve": _curve(query, question, rows),
        "machine": machine_numbers(query.forecast),
        "machine_queues": queries.machine_queues(query),
        "view": opened.view,
        "closure": closure_of(query, shape, LEVELS[_HIGH]),
        "reading": query.log.report and query.log.report.line(),
        "history_warnings": query.log.warnings,
        **_submission(opened, question, high.bound_s),
    }


def _curve(query: QueueQuery, question: PageQuestion, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the picture of P(start within t); empty where there are none up to .95."""
    marks = [(row["bound_s"], row["probability"]) for row in rows if row["bound_s"] is not None]
    if len(marks) <= _HIGH:
        return ""
    begin_s = max(_SHORTEST_S, marks[0][0] / 10.0)
    end_s = max(2.0 * marks[-1][0], _LEAST_SPAN * begin_s)
    times = np.geomspace(begin_s, end_s, _POINTS)
    times = np.unique([*times, *(s for s, _ in marks if begin_s <= s <= end_s)])
    chances = query.starts.probability(question.procs, question.walltime_s, times)
    curve = WaitCurve(
        points=list(zip(times.tolist(), chances.tolist(), strict=True)),
        marks=marks,
        interval=(marks[_MEDIAN][0], marks[_HIGH][0]),
    )
    return curve.svg()


def machine_numbers(forecast: AnyForecast) -> Json | None:
    """Return the running jobs and free processors of the machine from which a forecast was made;
    None for past waits, and where running jobs are not known."""
    if not isinstance(forecast, StateForecast) or forecast.settings.view == ENDED:
        return None
    numbers = forecast.state.tables.numbers
    return {
        "running": int(numbers[RUNNING]),
        "free": int(numbers[MOST] - numbers[BUSY]),
        "most": int(numbers[MOST]),
    }


def _submission(opened: OpenQueue, question: PageQuestion, bound_s: float | None) -> Json:
    """Return the default start, and the best instant to submit a job that must start by then, with
    what contradicts it in the record of such answers."""
    default_s = min(max(_SOONEST_S, 2.0 * (bound_s or 0.0)), _FARTHEST_S)
    start_by_s = default_s
    if question.start_by.strip():
        start_by_s = parse_duration(question.start_by, "start_by")
    if not 0 < start_by_s <= _FARTHEST_S:
        raise InputError("must be between now and a month from now", where="start_by")
    default = minute_words(-(-default_s // _MINUTE_S) * _MINUTE_S)
    if bound_s is None:
        return {"default_start_by": default, "submission": None}
    reservation = Reservation(
        procs=question.procs,
        walltime_s=question.walltime_s,
        start_by_s=start_by_s,
        probability=question.probability,
        max_walltime_s=opened.limits.walltime_s,
    )
    step_s = max(STEP_S, start_by_s / _INSTANTS)
    recommended = recommend(opened.query.separate(), opened.record, reservation, step_s)
    required = recommended.required
    best = best_submission(recommended.path, required.level, time.time() + start_by_s)
    more = {
        "level": required.level,
        "level_reason": required.reason,
        "warning": recommended.warning,
    }
    return {"default_start_by": default, "submission": best | more}


def best_submission(path: Trajectory, level: float, start_by_unix_s: float) -> Json:
    """Return the instants that reach a level: those right before the latest one, without a gap;
    where there are none, the best instant."""
    best = path.recommended
    first = best
    while path.chosen is not None and first and path.probabilities[first - 1] >= level:
        first -= 1
    from_s = -(-float(path.submit_s[first]) // _MINUTE_S) * _MINUTE_S
    return {
        "suffices": path.chosen is not None,
        "permitted": bool(path.probabilities[best] > 0),
        "from": minute_words(from_s),
        "until": minute_words(float(path.submit_s[best])),
        "probability": float(path.probabilities[best]),
        "walltime_s": float(path.walltimes_s[best]),
        "start_by": format_instant(round(start_by_unix_s / _MINUTE_S) * _MINUTE_S),
    }
