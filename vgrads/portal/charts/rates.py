"""Tasks finished per second and connected agents over time, as two pictures in a page."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from vgrads.portal.charts.curves import Curve, CurveChart, curves_svg, step_points

_TITLES = ("Tasks finished per second", "Connected agents")
_FEWEST = 5


def rate_chart(samples: Sequence[Sequence[float]]) -> Markup:
    """Draw (instant in seconds, tasks finished per second, agents) of each sample; empty where
    there are too few."""
    if len(samples) < _FEWEST:
        return Markup("")
    first_s, last_s = samples[0][0], samples[-1][0]
    rates = tuple((at_s - first_s, rate) for at_s, rate, _ in samples)
    agents = step_points(((at_s - first_s, count) for at_s, _, count in samples), last_s - first_s)
    charts = [
        CurveChart(
            title=title,
            x_label="time since the first measurement shown",
            y_label="",
            curves=(Curve(label=title, points=points),),
            x_range=(0.0, max(1.0, last_s - first_s)),
            y_most=max(y for _, y in points) or 1.0,
        )
        for title, points in zip(_TITLES, (rates, agents), strict=True)
    ]
    return Markup("").join(Markup(curves_svg([chart])) for chart in charts)
