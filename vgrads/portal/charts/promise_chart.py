"""The probability that a promise is kept, over the time of a run, as a picture in a page."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from vgrads.kernel.units import format_duration
from vgrads.portal.charts.curves import BLUE, Curve, CurveChart, curves_svg
from vgrads.portal.charts.layout import axis_end

_COLOUR = f"var(--accent, {BLUE})"
_NONE_YET = "No promise can be given until the group has run once."


def promise_chart(
    points: Sequence[tuple[float, float | None]],
    end_s: float,
    deadline_s: float,
    none_yet: str = _NONE_YET,
) -> Markup:
    """Draw promises, (seconds since the begin, probability or None), up to ``end_s``, with the
    deadline; where none could be given, return the sentence ``none_yet``."""
    drawn = [(at_s, share) for at_s, share in points if share is not None]
    if not drawn:
        return Markup('<p class="soft">{}</p>').format(none_yet)
    drawn.append((max(end_s, drawn[-1][0]), drawn[-1][1]))
    axis_s = axis_end(drawn[-1][0], deadline_s)
    beyond_s = deadline_s - axis_s
    more = f", {format_duration(beyond_s)} beyond \u2192" if beyond_s > 0 else ""
    chart = CurveChart(
        title="Probability that the deadline is met",
        x_label="time since the first submission",
        y_label="",
        curves=(Curve(label="probability", points=tuple(drawn), colour=_COLOUR),),
        x_range=(0.0, axis_s),
        marks=((deadline_s, f"deadline {format_duration(deadline_s)}{more}"),),
    )
    return Markup(curves_svg([chart]))
