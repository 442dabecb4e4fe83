"""The present of a queue, for its page: bounds, the curve, the best instant to submit, and jobs.

Imported late: it needs forecasts, without which the service starts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from vgrads.api.queues import queries
from vgrads.api.queues.histories import AS_QUESTION
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_chance, format_count, format_duration, parse_duration
from vgrads.operations.forecasts import downtime_json
from vgrads.operations.queue_questions import OpenQueue, explain_closure
from vgrads.operations.recommended_submission import recommend
from vgrads.portal.charts.pages import unix_clock
from vgrads.portal.charts.wait_axis import WaitAxis, minute_words, wait_words
from vgrads.portal.charts.wait_curve import WaitCurve
from vgrads.portal.web.forecasts.queue_waits import (
    load_of,
    start_words,
    times_of,
    trend_chart,
    waits_of,
    widths_of,
)
from vgrads.vgrid.varq import STEP_S, Reservation, Trajectory

Json = dict[str, Any]
LEVELS = (0.5, 0.75, 0.9, 0.95, 0.99)
_MEDIAN, _HIGH = 0, 3  # places of .5 and .95
_POINTS, _INSTANTS = 160, 240
_BEYOND = 1.15  # of the longest bound, that the curve shows
_SOONEST_S, _FARTHEST_S = 3600.0, 31 * 86400.0  # of the default start, and of all
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuestion:
    """A shape, and when it must have started: a duration from now, empty for the default."""

    procs: int
    walltime_s: float
    start_by: str
    probability: float

    @property
    def job(self) -> str:
        """The shape in words."""
        return f"{format_count(self.procs, 'processor')} for {format_duration(self.walltime_s)}"


def queue_now(opened: OpenQueue, question: PageQuestion) -> Json:
    """Return what the page of a queue shows of the present."""
    query, shape = opened.query, (question.procs, question.walltime_s)
    bounds = [query.starts.bound(*shape, level, AS_QUESTION.confidence) for level in LEVELS]
    rows = [{"probability": entry.probability, "bound_s": entry.bound_s} for entry in bounds]
    high = bounds[_HIGH]
    widths, times = widths_of(opened.limits), times_of(opened.limits)
    closures = query.availability.closures
    default, submission = _describe_submission(opened, question, high.bound_s)
    return {
        "bounds": rows,
        "sentence": _describe_wait(question, rows),
        "jobs": high.jobs,
        "method": high.method,
        "reason": next((b.reason for b in bounds if b.reason), None) or opened.reason,
        "since": query.since,
        "as_of": query.instant(query.at_s),
        "downtime": downtime_json(query),
        "curve": Markup(_draw_curve(query, question, rows)),
        "widths": widths,
        "by_time": [(t, waits_of(opened, [(procs, t) for procs in widths])) for t in times],
        "trend": Markup(trend_chart(opened)),
        "load": load_of(query.forecast),
        "machine_queues": queries.list_machine_queues(query),
        "view": opened.view,
        "next_closure": query.availability.describe(closures[0]) if closures else "",
        "closure": explain_closure(query, shape, LEVELS[_HIGH]),
        "reading": query.log.report and query.log.report.line(),
        "history_warnings": query.log.warnings,
        "default_start_by": default,
        "submission": submission,
    }


def _describe_wait(question: PageQuestion, rows: Sequence[Json]) -> str:
    """Say how long the job of a question waits."""
    half_s, most_s = rows[_MEDIAN]["bound_s"], rows[_HIGH]["bound_s"]
    if half_s is None:
        return f"Not known: too few jobs like {question.job} have waited"
    most = "" if most_s is None else f", 95 in 100 {start_words(most_s)}"
    return f"Half of the jobs of {question.job} start {start_words(half_s)}{most}"


def _draw_curve(query: queries.QueueQuery, question: PageQuestion, rows: Sequence[Json]) -> str:
    """Return the picture of P(start within t); empty where there are none up to .95."""
    marks = [(row["bound_s"], row["probability"]) for row in rows if row["bound_s"] is not None]
    if len(marks) <= _HIGH:
        return ""
    axis = WaitAxis.up_to(marks[_HIGH][0], max(_BEYOND * marks[-1][0], _MINUTE_S))
    even = (axis.wait_at(n / _POINTS) for n in range(_POINTS + 1))
    # with the marks themselves, so that the curve passes through them
    times = np.unique([*even, *(s for s, _ in marks)])
    chances = query.starts.probability(question.procs, question.walltime_s, times)
    curve = WaitCurve(
        axis=axis,
        points=list(zip(times.tolist(), chances.tolist(), strict=True)),
        marks=marks,
        interval=(marks[_MEDIAN][0], marks[_HIGH][0]),
    )
    return curve.svg()


def _describe_submission(
    opened: OpenQueue, question: PageQuestion, bound_s: float | None
) -> tuple[str, Json | None]:
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
        return default, None
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
    best = best_submission(recommended.path, required.level)
    start = Markup("within {}").format(minute_words(start_by_s) or wait_words(start_by_s))
    if opened.target.is_live:
        start = Markup("by {}").format(
            unix_clock(round((time.time() + start_by_s) / _MINUTE_S) * _MINUTE_S)
        )
    more = {
        "sentence": submission_sentence(best, start, question.probability, required.level),
        "level_reason": required.reason,
        "warning": recommended.warning,
    }
    return default, best | more


def best_submission(path: Trajectory, level: float) -> Json:
    """Return the instants that reach a level: those right before the latest one, without a gap;
    where there are none, the best instant."""
    best = path.recommended
    first = best
    while path.chosen is not None and first and path.probabilities[first - 1] >= level:
        first -= 1
    # rounded up: the minute before does not reach the level
    from_s = -(-float(path.submit_s[first]) // _MINUTE_S) * _MINUTE_S
    return {
        "suffices": path.chosen is not None,
        "permitted": bool(path.probabilities[best] > 0),
        "from": minute_words(from_s),
        "until": minute_words(float(path.submit_s[best])),
        "probability": float(path.probabilities[best]),
        "walltime_s": float(path.walltimes_s[best]),
    }


def submission_sentence(best: Json, start: Markup, probability: float, level: float) -> Markup:
    """Say when to submit. ``start``: by when the job must start, with its preposition;
    ``probability``: of that, as requested; ``level``: what an instant must reach for it."""
    if not best["suffices"]:
        at = f"in {best['until']}" if best["until"] else "now"
        reaches = (
            f", {at}, reaches {format_chance(best['probability'])}"
            if best["permitted"]
            else " has 0"
        )
        return Markup("No instant reaches a probability of {} of a start {}: the best{}.").format(
            f"{100 * level:.3g}\u202f%", start, reaches
        )
    when = "now"
    if best["until"]:
        when = f"within the next {best['until']}"
    if best["from"]:
        when = f"between {best['from']} and {best['until']} from now"
        if best["from"] == best["until"]:
            when = f"in {best['until']}"
    return Markup("Submit {} to start {} with a probability of {}.").format(
        when, start, format_chance(probability)
    )
