"""A pool's decided and running workers and its managers' capacity over time, as a picture in a
page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from vgrads.portal.charts.curves import BLUE, GREY, RED, Curve, CurveChart, curves_svg, step_points

_CURVES = (("capacity", RED), ("running", GREY), ("decided", BLUE))
"""The three curves of Yu 2013, figure 4.9; the last one is drawn on top."""
_ABOVE = 1.4
"""Height of the picture relative to decided and running workers; a capacity beyond that is drawn at
its upper edge."""


def pool_chart(moments: Sequence[tuple[float, Mapping[str, Any]]]) -> Markup:
    """Draw the chart. ``moments``: instant in seconds, and ``decided``, ``running``, ``capacity``
    in workers (None: unknown)."""
    # one instant has no curve
    if len(moments) < 2:
        return Markup("")
    first_s, last_s = moments[0][0], moments[-1][0]
    most = max(
        float(payload.get(name) or 0) for _, payload in moments for name in ("running", "decided")
    )
    chart = CurveChart(
        title="Workers",
        x_label="time since the first decision shown",
        y_label="",
        curves=tuple(
            Curve(
                label=name,
                points=step_points(
                    (
                        (at_s - first_s, float(payload[name]))
                        for at_s, payload in moments
                        if payload.get(name) is not None
                    ),
                    last_s - first_s,
                ),
                colour=colour,
                dashed=name == "capacity",
            )
            for name, colour in _CURVES
        ),
        x_range=(0.0, max(1.0, last_s - first_s)),
        y_most=math.ceil(max(1.0, most) * _ABOVE),
    )
    decided, running, capacity = (
        "unknown" if moments[-1][1].get(name) is None else f"{float(moments[-1][1][name]):,.4g}"
        for name in ("decided", "running", "capacity")
    )
    text = (
        f"Workers now: {decided} decided, {running} running, {capacity} of use at most (the "
        "capacity of the managers)."
    )
    page = '<div class="charts">{}</div><p class="soft">{}</p>'
    return Markup(page).format(Markup(curves_svg([chart])), text)
