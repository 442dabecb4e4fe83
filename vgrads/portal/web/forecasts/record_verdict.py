"""How the past answers about a queue did, in one word, one colour and one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vgrads.api.queues.forecast_scores import ALARM, ALARM_LEVEL
from vgrads.kernel.units import format_count
from vgrads.portal.charts.curves import GREY, Curve, CurveChart, curves_svg

Json = Mapping[str, Any]
_FEW = 20
"""Bounds below which their share says little."""


@dataclass(frozen=True, slots=True)
class RecordVerdict:
    """``tone``: a class of the style sheet; ``sentence``: without a full stop."""

    word: str
    tone: str
    sentence: str


def judge_record(bounds: int, share: float | None, warning: str | None) -> RecordVerdict:
    """Judge the newest bounds at probability .95 of a queue, of which ``share`` were not
    exceeded."""
    if not bounds or share is None:
        return RecordVerdict("no record yet", "soft", "no job that an answer was about has started")
    stated = f"{ALARM_LEVEL:.0%}".replace("%", "\u202f%")
    waited = (
        f"{round(share * bounds)} of the last {format_count(bounds, 'answer')} at {stated} were "
        "right: the job waited no longer than stated"
    )
    if warning is not None or share < ALARM:
        return RecordVerdict("too low", "warn", waited)
    if bounds < _FEW:
        return RecordVerdict("few yet", "soft", waited)
    return RecordVerdict("reliable", "good", waited)


def verdict_of(score: Json) -> RecordVerdict:
    """Judge the score of a queue (:func:`vgrads.api.queues.forecast_scores.score`)."""
    watched = next(q for q in score["quantiles"] if q["quantile"] == ALARM_LEVEL)
    return judge_record(watched["bounds"], watched["coverage"], score["warning"])


def reliability_chart(rows: list[Json], what: str) -> str:
    """Draw stated probabilities against the share of ``what`` that came true, each with its 95 %
    interval (Wilson, doi:10.1080/01621459.1927.10502953); empty without any. ``rows``: ``stated``,
    ``observed``, ``statements``."""
    counted = [row for row in rows if row["statements"]]
    if not counted:
        return ""
    points = [(row["stated"], row["observed"]) for row in counted]
    # imported late: it loads much, and few look at the curves
    from statsmodels.stats.proportion import proportion_confint

    intervals = [
        (
            row["stated"],
            *proportion_confint(
                round(row["observed"] * row["statements"]), row["statements"], method="wilson"
            ),
        )
        for row in counted
    ]
    chart = CurveChart(
        title=f"{what}: stated and come true",
        x_label="stated probability",
        y_label="share that came true",
        curves=(
            Curve(label="come true", points=tuple(points), dots=True, intervals=tuple(intervals)),
            Curve(label="as stated", points=((0.0, 0.0), (1.0, 1.0)), colour=GREY, dashed=True),
        ),
        x_range=(0.0, 1.0),
        x_is_time=False,
    )
    return curves_svg([chart])


def chart_of(score: Json) -> str:
    """Draw the probabilities and bounds of a queue's answers against what came true."""
    bounds = [
        {"stated": q["quantile"], "observed": q["coverage"], "statements": q["bounds"]}
        for q in score["quantiles"]
    ]
    rows = [row for row in [*score["reliability"], *bounds] if row["statements"]]
    return reliability_chart(sorted(rows, key=lambda row: row["stated"]), "Answers")
