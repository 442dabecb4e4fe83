"""Charts of the answers about a queue and of backtests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from vgrads.api.queues.queries import QueueQuery
from vgrads.kernel.units import format_duration
from vgrads.portal.charts.curves import BLUE, GREY, Curve, CurveChart

_POINTS = 121
_SHORTEST_S = 600.0


class BoundNumbers(Protocol):
    """A bound that a chart marks."""

    @property
    def bound_s(self) -> float | None:
        """Seconds."""

    @property
    def confidence(self) -> float:
        """Of the bound."""


def start_chart(
    query: QueueQuery, procs: int, walltime_s: float, bound: BoundNumbers
) -> CurveChart:
    """P(start within t) over t, with the bound."""
    waits = query.forecast.waits(procs, walltime_s)
    longest_s = float(waits[-1]) if len(waits) else 0.0
    # the curve goes on beyond the bound, so that its mark is not at the edge
    end_s = max(1.5 * (longest_s if bound.bound_s is None else bound.bound_s), _SHORTEST_S)
    within = np.linspace(0.0, end_s, _POINTS)
    chances = query.forecast.probability(procs, walltime_s, within, bound.confidence)
    marks = () if bound.bound_s is None else (_bound_mark(bound.bound_s),)
    return CurveChart(
        title="Start within a time",
        x_label="wait",
        y_label="probability",
        curves=(Curve(label="start", points=_format_points(within.tolist(), chances.tolist())),),
        x_range=(0.0, end_s),
        marks=marks,
    )


def _bound_mark(bound_s: float) -> tuple[float, str]:
    return bound_s, f"bound {format_duration(bound_s)}"


def _format_points(xs: Sequence[float], ys: Sequence[float]) -> tuple[tuple[float, float], ...]:
    return tuple(zip(xs, ys, strict=True))


def trajectory_chart(
    points: Sequence[tuple[float, float]], start_by_s: float, submit_in_s: float | None
) -> CurveChart:
    """P(running by T) over the instant of submission, with the latest one that suffices."""
    step = max(1, len(points) // _POINTS)
    marks = () if submit_in_s is None else ((submit_in_s, "latest submission"),)
    return CurveChart(
        title=f"Running by {format_duration(start_by_s)}",
        x_label="submission",
        y_label="probability",
        # the step may pass over the last point, where the chart ends
        curves=(Curve(label="running", points=(*points[::step], points[-1])),),
        x_range=(0.0, max(start_by_s, 1.0)),
        marks=marks,
    )


def reliability_chart(points: Sequence[tuple[float, float, float, float]]) -> CurveChart:
    """Share of jobs within their bound over its stated probability; ``points``: (probability,
    share, low, high)."""
    least = min([0.4, *(low - 0.05 for _, _, low, _ in points)])
    # usual bounds have high probabilities, whose differences a scale from zero would hide
    least = 0.0 if least < 0.4 else 0.4
    ideal = Curve(
        label="stated = observed", points=((least, least), (1.0, 1.0)), colour=GREY, dashed=True
    )
    observed = Curve(
        label="observed, with 95 % intervals",
        points=tuple((stated, share) for stated, share, _, _ in points),
        intervals=tuple((stated, low, high) for stated, _, low, high in points),
        colour=BLUE,
        dots=3.5,
    )
    return CurveChart(
        title="Reliability of the bounds",
        x_label="stated probability",
        y_label="share of jobs within the bound",
        curves=(ideal, observed),
        x_range=(least, 1.0),
        x_is_time=False,
        y_least=least,
    )
