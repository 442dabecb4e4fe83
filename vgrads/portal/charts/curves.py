"""Line charts for pages and notebooks: inline SVG without scripts, and PNG where matplotlib is
installed."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from vgrads.kernel.units import format_duration
from vgrads.portal.charts.gantt import tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float]
BLUE, RED, AMBER, GREY = "#0072b2", "#b3261e", "#b06a00", "#8a8f98"
_RED_OF_PAGE = f"var(--bad, {RED})"
_SOFT = "#737b87"  # readable on white and on the dark background of a page
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 284, 52, 18, 38, 54


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line through points; ``dots``: mark each point, with this radius (0: none), and a tooltip
    (``titles``); ``intervals``: (x, low, high) bars."""

    label: str
    points: tuple[Point, ...]
    colour: str = BLUE
    dashed: bool = False
    dots: float = 0.0
    titles: tuple[str, ...] = ()
    intervals: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveChart:
    """Curves over seconds (``x_is_time``) or over probabilities; y is a probability, or a number
    from 0 to about ``y_most``, with ticks at whole numbers if that is whole. What is beyond the
    axis is drawn at its edge.

    ``x_labels``: ticks of an x axis of anything else. ``marks``: (x, text) of vertical lines,
    ``levels``: (y, text) of horizontal ones. ``y_least``: where the axis of probabilities begins.
    ``in_words``: what the chart shows, for those who do not see it; else its title.
    """

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    x_range: tuple[float, float]
    x_is_time: bool = True
    x_labels: tuple[tuple[float, str], ...] = ()
    y_least: float = 0.0
    y_most: float | None = None
    marks: tuple[tuple[float, str], ...] = ()
    mark_colour: str = _RED_OF_PAGE
    levels: tuple[tuple[float, str], ...] = ()
    in_words: str = ""

    @property
    def x_ticks(self) -> list[tuple[float, str]]:
        """Positions and labels of the x axis."""
        low, high = self.x_range
        if self.x_labels:
            return list(self.x_labels)
        if not self.x_is_time:
            return [(value, f"{value:g}") for value in _list_shares(low)]
        step = tick(1.7 * high)  # about six labels fit
        return [(n * step, format_duration(n * step)) for n in range(int(high / step) + 1)]

    @property
    def y_ticks(self) -> list[float]:
        """Positions of the y axis."""
        if self.y_most is None:
            return _list_shares(self.y_least)
        step = _round_step(self.y_most)
        # a quotient that is whole up to rounding needs no further step
        return [n * step for n in range(math.ceil(self.y_most / step - 1e-9) + 1)]

    @property
    def y_range(self) -> tuple[float, float]:
        """Where the y axis begins and ends."""
        return (self.y_least, 1.0) if self.y_most is None else (0.0, self.y_ticks[-1])


def _list_shares(least: float) -> list[float]:
    step = 0.25 if least < 0.4 else 0.1
    count = round((1.0 - least) / step)
    # counted from 1, which is always a tick
    return [round(1.0 - n * step, 2) for n in range(count, -1, -1)]


def _round_step(most: float) -> float:
    """Return a round step for at most five ticks up to ``most``, which is above 0."""
    unit = 10.0 ** math.floor(math.log10(most / 4))
    step = next(n * unit for n in (1, 2, 5, 10) if 4 * n * unit >= most)
    return max(step, 1.0) if most == int(most) else step


def step_points(samples: Iterable[Point], end_x: float) -> tuple[Point, ...]:
    """Return the points of a step curve up to ``end_x``: a value applies until the next one."""
    points: list[Point] = []
    for x, y in samples:
        if points:
            points.append((x, points[-1][1]))
        points.append((x, y))
    if points:
        points.append((max(end_x, points[-1][0]), points[-1][1]))
    return tuple(points)


def curves_svg(charts: Sequence[CurveChart]) -> str:
    """The charts, one after the other. Pages permit no styles within the document: the class
    ``curve`` has those of their style sheet."""
    return "".join(map(_make_svg, charts))


def _make_svg(chart: CurveChart) -> str:
    parts = [
        *_draw_grid(chart),
        *(part for level in chart.levels for part in _draw_level(chart, *level)),
        *(part for curve in chart.curves for part in _draw_curve(chart, curve)),
        *(part for mark in chart.marks for part in _mark(chart, *mark)),
        *_draw_legend(chart),
    ]
    words = escape(chart.in_words or chart.title)
    return (
        f'<svg class="curve" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'role="img" aria-label="{words}" font-family="system-ui, sans-serif" '
        f'font-size="11" width="100%">{"".join(parts)}</svg>'
    )


def _find_x(chart: CurveChart, value: float) -> float:
    low, high = chart.x_range
    # a range may have no length
    share = (min(max(value, low), high) - low) / max(high - low, 1e-9)
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _find_y(chart: CurveChart, value: float) -> float:
    low, high = chart.y_range
    share = (min(max(value, low), high) - low) / (high - low)
    return _TOP + (1.0 - share) * (_HEIGHT - _TOP - _BOTTOM)


def _draw_grid(chart: CurveChart) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = [_draw_text(_LEFT, 14, chart.title, "start", "currentColor", "600")]
    for value in chart.y_ticks:
        y = _find_y(chart, value)
        parts += [
            _draw_line((_LEFT, y), (right, y), "#8884"),
            _draw_text(_LEFT - 6, y + 4, f"{value:,.10g}", "end"),
        ]
    for value, label in chart.x_ticks:
        x = _find_x(chart, value)
        parts += [
            _draw_line((x, bottom), (x, bottom + 4), "#999"),
            _draw_text(x, bottom + 15, label, "middle"),
        ]
    parts.append(_draw_text(right, bottom + 29, chart.x_label, "end"))
    parts.append(_draw_text(_LEFT - 44, _TOP - 9, chart.y_label, "start"))
    return parts


def _draw_curve(chart: CurveChart, curve: Curve) -> list[str]:
    dash = ' stroke-dasharray="4 3"' if curve.dashed else ""
    places = [(_find_x(chart, x), _find_y(chart, y)) for x, y in curve.points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [
        f'<polyline points="{line}" fill="none" stroke="{curve.colour}" stroke-width="1.8"{dash}/>'
    ]
    for x, low, high in curve.intervals:
        at = _find_x(chart, x)
        parts.append(
            _draw_line((at, _find_y(chart, low)), (at, _find_y(chart, high)), curve.colour, 4, 0.35)
        )
    if curve.dots:
        titles = curve.titles or ("",) * len(places)
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{curve.dots:g}" fill="{curve.colour}">'
            f"{f'<title>{escape(title)}</title>' if title else ''}</circle>"
            for (x, y), title in zip(places, titles, strict=True)
        ]
    return parts


def _draw_level(chart: CurveChart, value: float, text: str) -> list[str]:
    y, right = _find_y(chart, value), _WIDTH - _RIGHT
    return [
        f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{_RED_OF_PAGE}" '
        f'stroke-dasharray="4 3"/>',
        _draw_text(right, _TOP - 6, f"- - {text}", "end", _RED_OF_PAGE),  # no curve is up there
    ]


def _mark(chart: CurveChart, value: float, text: str) -> list[str]:
    x = _find_x(chart, value)
    # the text is on the side that has more room
    anchor, shift = ("end", -5) if x > _WIDTH / 2 else ("start", 5)
    y = _HEIGHT - _BOTTOM - 8
    return [
        _draw_line((x, _TOP), (x, _HEIGHT - _BOTTOM), chart.mark_colour),
        _draw_text(x + shift, y, text, anchor, chart.mark_colour),
    ]


def _draw_legend(chart: CurveChart) -> list[str]:
    if len(chart.curves) < 2:
        return []
    parts, x, y = [], float(_LEFT), _HEIGHT - 6
    for curve in filter(lambda curve: curve.label, chart.curves):
        parts += [
            _draw_line((x, y - 4), (x + 16, y - 4), curve.colour),
            _draw_text(x + 21, y, curve.label),
        ]
        # letters of the legend are about 5.8 wide
        x += 40 + 5.8 * len(curve.label)
    return parts


def _draw_line(
    start: Point, end: Point, colour: str, width: float = 1.2, opacity: float = 1
) -> str:
    return (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
        f'stroke="{colour}" stroke-width="{width}" stroke-opacity="{opacity}"/>'
    )


def _draw_text(
    x: float, y: float, text: str, anchor: str = "start", colour: str = _SOFT, weight: str = "400"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )


def curves_png(charts: Sequence[CurveChart]) -> bytes | None:
    """The charts side by side as PNG; None where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 loads late
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        return None
    figure = Figure(figsize=(5.2 * len(charts), 3.1), layout="constrained")
    # without pyplot, whose figures would be kept until it closes them
    FigureCanvasAgg(figure)
    for axes, chart in zip(figure.subplots(1, len(charts), squeeze=False)[0], charts, strict=True):
        _draw(axes, chart)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()


def _draw(axes: Axes, chart: CurveChart) -> None:
    for curve in chart.curves:
        xs, ys = [x for x, _ in curve.points], [y for _, y in curve.points]
        axes.plot(
            xs,
            ys,
            color=curve.colour,
            linestyle="--" if curve.dashed else "-",
            marker="o" if curve.dots else None,
            label=curve.label,
        )
        for x, low, high in curve.intervals:
            axes.plot([x, x], [low, high], color=curve.colour, linewidth=4, alpha=0.35)
    for value, _ in chart.levels:
        axes.axhline(value, color=RED, linewidth=1, linestyle="--")
    for value, text in chart.marks:
        axes.axvline(value, color=RED, linewidth=1)
        axes.annotate(text, (value, chart.y_least + 0.02), color=RED, fontsize=8, ha="right")
    axes.set(xlim=chart.x_range, ylim=chart.y_range, xlabel=chart.x_label)
    axes.set_xticks([value for value, _ in chart.x_ticks], [text for _, text in chart.x_ticks])
    axes.set_title(chart.title, loc="left", fontsize=10)
    axes.set_ylabel(chart.y_label)
    if len(chart.curves) > 1:
        axes.legend(fontsize=8)
