"""A pool's decided and running workers and its managers' capacity over time, as a picture in a
page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

_W, _H, _L, _R, _B, _T = 760, 220, 52, 12, 24, 10
_CURVES = (("capacity", "requested"), ("running", "running"), ("decided", "line"))
"""The three curves of Yu 2013, figure 4.9; the last one is drawn on top."""
_ABOVE = 1.4
"""Height of the picture relative to decided and running workers; a capacity beyond that is drawn at
its upper edge."""


def pool_chart(moments: Sequence[tuple[float, Mapping[str, Any]]]) -> Markup:
    """Draw the chart. ``moments``: instant in seconds, and ``decided``, ``running``, ``capacity``
    in workers (None: unknown)."""
    if len(moments) < 2:
        return Markup("")
    first, last = moments[0][0], moments[-1][0]
    values = [
        float(payload.get(name) or 0) for _, payload in moments for name in ("running", "decided")
    ]
    most = max(1.0, *values) * _ABOVE

    def x(at: float) -> float:
        return _L + (at - first) / max(1e-9, last - first) * (_W - _L - _R)

    def y(value: float) -> float:
        return _T + (1 - min(1.0, value / most)) * (_H - _B - _T)

    lines = "".join(
        f'<polyline class="{style}" fill="none" points="{path}"><title>{name}</title></polyline>'
        for name, style in _CURVES
        if (
            path := " ".join(
                _steps([(x(a), y(float(t[name]))) for a, t in moments if t.get(name) is not None])
            )
        )
    )
    grid = "".join(
        f'<line class="axis" x1="{_L}" x2="{_W - _R}" y1="{y(v * most):.1f}" '
        f'y2="{y(v * most):.1f}"/>'
        f'<text class="label" x="{_L - 6}" y="{y(v * most) + 4:.1f}" '
        f'text-anchor="end">{v * most:,.4g}</text>'
        for v in (0, 0.5, 1)
    )
    below = "".join(
        f'<text class="label" x="{x(at):.1f}" y="{_H - 6}" text-anchor="{anchor}">{words}</text>'
        for at, anchor, words in (
            (first, "start", f"{last - first:,.0f} s ago"),
            (last, "end", "now"),
        )
    )
    now = moments[-1][1]
    text = "Workers over time: " + ", ".join(
        f"{words} {'unknown' if now.get(name) is None else format(float(now[name]), ',.4g')} now"
        for name, words in (
            ("decided", "decided (solid)"),
            ("running", "running (thick, pale)"),
            ("capacity", "capacity of the managers (dashed)"),
        )
    )
    return Markup(
        f'<svg class="chart" viewBox="0 0 {_W} {_H}" role="img" '
        f'aria-label="{escape(text)}">{grid}{below}{lines}</svg>'
        f'<p class="soft">{escape(text)}.</p>'
    )


def _steps(points: Sequence[tuple[float, float]]) -> list[str]:
    """Return a step curve: a value holds until the next one."""
    texts, before = list[str](), None
    for at, value in points:
        if before is not None:
            texts.append(f"{at:.1f},{before:.1f}")
        texts.append(f"{at:.1f},{value:.1f}")
        before = value
    return texts
