"""Ends per second and agents over time, as a small picture in a page."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

_W, _H, _L, _R, _B, _T = 560, 170, 52, 44, 24, 10


def rate_chart(samples: Sequence[Sequence[float]]) -> Markup:
    """Draw (instant in seconds, ends per second, agents) of each sample; empty where there are too
    few."""
    if len(samples) < 2:
        return Markup("")
    first, last = samples[0][0], samples[-1][0]
    most = max(1e-9, *(rate for _, rate, _ in samples))
    hosts = max(1.0, *(count for _, _, count in samples))

    def x(at: float) -> float:
        return _L + (at - first) / max(1e-9, last - first) * (_W - _L - _R)

    def y(share: float) -> float:
        return _T + (1 - share) * (_H - _B - _T)

    rates = " ".join(f"{x(at):.1f},{y(rate / most):.1f}" for at, rate, _ in samples)
    counts = " ".join(f"{x(at):.1f},{y(count / hosts):.1f}" for at, _, count in samples)
    text = (
        f"Solid: tasks finished per second, up to {most:,.3g}. Dashed: agents, up to "
        f"{hosts:,.0f}. "
        f"Over {last - first:,.0f} seconds."
    )
    lines = "".join(
        f'<line class="axis" x1="{_L}" x2="{_W - _R}" y1="{y(v):.1f}" y2="{y(v):.1f}"/>'
        for v in (0, 0.5, 1)
    )
    left = "".join(
        (
            f'<text class="label" x="{_L - 6}" y="{y(v) + 4:.1f}" '
            f'text-anchor="end">{v * most:,.3g}</text>'
        )
        for v in (0, 0.5, 1)
    )
    right = "".join(
        f'<text class="label" x="{_W - _R + 6}" y="{y(v) + 4:.1f}">{v * hosts:,.0f}</text>'
        for v in (0, 1)
    )
    below = "".join(
        f'<text class="label" x="{x(at):.1f}" y="{_H - 6}" text-anchor="middle">{at:,.0f} s</text>'
        for at in (first, last)
    )
    return Markup(
        f'<svg class="chart" viewBox="0 0 {_W} {_H}" role="img" '
        f'aria-label="{escape(text)}">{lines}{left}{right}{below}'
        f'<polyline class="requested" fill="none" points="{counts}"/><polyline class="line" '
        f'points="{rates}"/></svg>'
        f'<p class="soft">{escape(text)}</p>'
    )
