"""A probability over time in the size of a word, as SVG."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

_WIDTH, _HEIGHT, _MARGIN = 84.0, 22.0, 3.0


def sparkline(points: Sequence[tuple[float, float]], requested: float) -> Markup:
    """Render instants and probabilities (0 to 1), with a line at the requested probability."""
    last_s = max((at_s for at_s, _ in points), default=0.0) or 1.0
    places = [(_x(at_s / last_s), _y(probability)) for at_s, probability in points]
    if len(places) == 1:
        places.append((_x(1.0), places[0][1]))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    level, (end_x, end_y) = _y(requested), places[-1]
    first, now = points[0][1], points[-1][1]
    return Markup(
        f'<svg class="spark" width="{_WIDTH:.0f}" height="{_HEIGHT:.0f}" '
        f'viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" '
        f'aria-label="probability: first {first:.0%}, now {now:.0%}">'
        f'<line class="requested" x1="0" x2="{_WIDTH:.0f}" y1="{level:.1f}" y2="{level:.1f}"/>'
        f'<polyline class="line" points="{line}"/>'
        f'<circle class="mark" cx="{end_x:.1f}" cy="{end_y:.1f}" r="2.5"/></svg>'
    )


def _x(share: float) -> float:
    return _MARGIN + share * (_WIDTH - 2 * _MARGIN)


def _y(probability: float) -> float:
    return _MARGIN + (1.0 - probability) * (_HEIGHT - 2 * _MARGIN)
