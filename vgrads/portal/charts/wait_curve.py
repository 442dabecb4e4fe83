"""Probability of a start within a time, as a picture for a page: inline, in the page's colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgrads.portal.charts.wait_axis import WaitAxis, wait_words

_W, _H, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 300, 48, 16, 14, 250
_LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
_APART = 0.075  # of two labels below it

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitCurve:
    """P(start within t) at ascending times on an axis; ``marks``: bounds with their probabilities,
    ``interval``: two bounds between which the wait probably lies."""

    axis: WaitAxis
    points: Points
    marks: Points
    interval: tuple[float, float]

    def _x(self, seconds: float) -> float:
        return _LEFT + self.axis.share(seconds) * (_W - _LEFT - _RIGHT)

    def svg(self) -> str:
        """Return the picture."""
        low, high = self.interval
        name = (
            "Probability of a start within a time; with probability .5 within "
            f"{wait_words(low)}, with probability .95 within {wait_words(high)}"
        )
        parts = [self._band(), *self._axes(), self._line(), *self._marks()]
        return (
            f'<svg class="wait-curve" viewBox="0 0 {_W} {_H}" width="{_W}" height="{_H}" '
            f'role="img" aria-label="{name}">{"".join(parts)}</svg>'
        )

    def _band(self) -> str:
        left, right = (self._x(seconds) for seconds in self.interval)
        return (
            f'<rect class="band" x="{left:.1f}" y="{_TOP}" width="{max(right - left, 1.0):.1f}" '
            f'height="{_BOTTOM - _TOP}"/>'
        )

    def _axes(self) -> list[str]:
        parts = []
        for level in _LEVELS:
            y = _find_y(level)
            parts.append(f'<path class="axis" d="M{_LEFT} {y:.1f}H{_W - _RIGHT}"/>')
            parts.append(_label(_LEFT - 6, y + 4, f"{level:g}", "end"))
        for seconds, words in self.axis.ticks(_APART):
            x = self._x(seconds)
            parts.append(f'<path class="axis" d="M{x:.1f} {_TOP}V{_BOTTOM + 4}"/>')
            parts.append(_label(x, _BOTTOM + 18, words))
        middle = (_LEFT + _W - _RIGHT) / 2
        parts.append(_label(middle, _BOTTOM + 38, "time from submission to start"))
        return parts

    def _line(self) -> str:
        path = "L".join(f"{self._x(t):.1f} {_find_y(p):.1f}" for t, p in self.points)
        return f'<path class="line" d="M{path}"/>'

    def _marks(self) -> list[str]:
        return [
            f'<circle class="mark" cx="{self._x(seconds):.1f}" cy="{_find_y(level):.1f}" r="4.5">'
            f"<title>with probability {level:g} within {wait_words(seconds)}</title></circle>"
            for seconds, level in self.marks
        ]


def _find_y(level: float) -> float:
    return _BOTTOM - level * (_BOTTOM - _TOP)


def _label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'
