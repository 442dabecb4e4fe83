"""History of the bounds of one queue, as a picture: bound against wait over time on a log scale,
and below it the share of bounds that held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vgrads.api.queues.history_files import open_history
from vgrads.qbets.backtest import WINDOW, Trial, backtest, rolling_coverage
from vgrads.qbets.predictor import Settings
from vgrads.traces.log_queue import LogQueue

_W, _H, _LEFT, _RIGHT = 1100, 520, 62, 12
_UPPER, _LOWER = (34, 350), (372, 480)  # upper and lower edge of the two parts
_MOST_POINTS, _MOST_CHANGES, _DATES = 4000, 400, 6
_SHORTEST_S = 30.0  # shorter waits are drawn at the lower edge
_COVERED, _MISSED, _CHANGE = "#3b7dd8", "#d22f2f", "#c58a00"
_INK, _PAPER = ("#1c2430", "#e6e9ee"), ("#ffffff", "#14181f")  # of bright and dark pages
Values = NDArray[np.float64]


def record_picture(history: str, log_queue: LogQueue, dark: bool = False) -> bytes:
    """Draw bound against wait, and rolling coverage, as SVG."""
    return _picture(history, Path(history).stat().st_mtime_ns, log_queue, dark)


@lru_cache(maxsize=64)
def _picture(history: str, _changed_ns: int, log_queue: LogQueue, dark: bool) -> bytes:
    trial = backtest(
        open_history(history).only_queue(log_queue), history, "*", Settings(knows_user=False)
    )
    return history_svg(trial, dark).encode()


def history_svg(trial: Trial, dark: bool = False) -> str:
    """Return the picture of a backtest, also for dark pages; a text where the data never sufficed
    for a bound."""
    ink = _INK[dark]
    few = _text(_W / 2, _H / 2, "Too few waits are recorded for a bound.", ink, "middle")
    parts = _parts(trial, ink) if trial.scored.any() else [few]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_W} {_H}" width="{_W}" '
        f'height="{_H}" font-family="system-ui, sans-serif" font-size="12">'
        f'<rect width="{_W}" height="{_H}" fill="{_PAPER[dark]}"/>{"".join(parts)}</svg>'
    )


@dataclass(frozen=True, slots=True)
class _Frame:
    """One part of the picture: values at its edges, seconds and heights, and its edges' pixels."""

    seconds: tuple[float, float]
    heights: tuple[float, float]
    edges: tuple[int, int]

    def x(self, seconds: Values) -> Values:
        first, last = self.seconds
        share = (seconds - first) / max(last - first, 1e-9)
        return np.asarray(_LEFT + share * (_W - _LEFT - _RIGHT))

    def y(self, values: Values) -> Values:
        (low, high), (top, bottom) = self.heights, self.edges
        return np.asarray(bottom - (values - low) / (high - low) * (bottom - top))

    def places(self, seconds: Values, values: Values) -> list[str]:
        """Return points as they are written in a path."""
        pairs = zip(self.x(seconds).tolist(), self.y(values).tolist(), strict=True)
        return [f"{x:.1f} {y:.1f}" for x, y in pairs]


def _parts(trial: Trial, ink: str) -> list[str]:
    scored = trial.scored
    when, covered = trial.log.submit_s[scored], trial.log.wait_s[scored] <= trial.issued_s[scored]
    waits, bounds = _logs(trial.log.wait_s[scored]), _logs(trial.issued_s[scored])
    some = np.linspace(0, len(when) - 1, min(len(when), _MOST_POINTS)).astype(int)
    span = (float(when[0]), float(when[-1]))
    top = float(np.ceil(max(waits.max(), bounds.max()) + 1e-9))
    upper = _Frame(span, (float(np.log10(_SHORTEST_S / 3600.0)), top), _UPPER)
    kept, missed = some[covered[some]], some[~covered[some]]
    return [
        *_hours_axis(upper, ink),
        _changes(upper, trial.predictor.change_points),
        _dots(upper.places(when[kept], waits[kept]), _COVERED, 2.2),
        _dots(upper.places(when[missed], waits[missed]), _MISSED, 2.2),
        _dots(upper.places(when[some], bounds[some]), ink, 1.0),
        *_key(ink),
        *_coverage(span, when, covered, trial.predictor.settings.quantile, ink),
        *_dates(upper, trial.log.unix_start_s, ink),
    ]


def _logs(seconds: Values) -> Values:
    """Return logarithms of hours."""
    return np.asarray(np.log10(np.maximum(seconds, _SHORTEST_S) / 3600.0))


def _hours_axis(frame: _Frame, ink: str) -> list[str]:
    parts = [_title(frame, "wait (hours)", ink)]
    for decade in range(-2, int(frame.heights[1]) + 1):
        y = float(frame.y(np.array(max(float(decade), frame.heights[0]))))
        parts += [_line(y, ink, 0.2), _text(_LEFT - 6, y + 4, f"{10.0**decade:g}", ink, "end")]
    return parts


def _coverage(
    span: tuple[float, float], when: Values, covered: NDArray[np.bool_], level: float, ink: str
) -> list[str]:
    """Draw the share of the latest bounds that held, and the promised one."""
    shares = rolling_coverage(covered)
    low = min(0.85, float(shares.min()) - 0.01)
    frame = _Frame(span, (low, 1.005), _LOWER)
    some = np.linspace(0, len(shares) - 1, min(len(shares), _MOST_POINTS)).astype(int)
    path = "L".join(frame.places(when[len(when) - len(shares) :][some], shares[some]))
    parts = [_title(frame, f"coverage of {min(WINDOW, len(covered))}", ink)]
    for value in (low, level, 1.0):
        y, colour = float(frame.y(np.array(value))), _MISSED if value == level else ink
        label = _text(_LEFT - 6, y + 4, f"{value:.2f}", ink, "end")
        parts += [_line(y, colour, 1.0 if value == level else 0.2), label]
    return [*parts, f'<path d="M{path}" fill="none" stroke="{_COVERED}"/>']


def _title(frame: _Frame, name: str, ink: str) -> str:
    middle = sum(frame.edges) / 2
    turned = f' transform="rotate(-90 14 {middle:.0f})"'
    return _text(14, middle, name, ink, "middle", turned)


def _dates(frame: _Frame, unix_start_s: float, ink: str) -> list[str]:
    first, last = frame.seconds
    parts = []
    for n in range(_DATES):
        at_s = first + (last - first) * n / (_DATES - 1)
        date = datetime.fromtimestamp(unix_start_s + at_s, UTC).strftime("%Y-%m-%d")
        anchor = "start" if n == 0 else "end" if n == _DATES - 1 else "middle"
        parts.append(_text(float(frame.x(np.array(at_s))), _LOWER[1] + 22, date, ink, anchor))
    return parts


def _changes(frame: _Frame, instants: Sequence[float]) -> str:
    """Mark the change points, in both parts."""
    xs = frame.x(np.array(instants[:_MOST_CHANGES], float)).tolist()
    path = "".join(f"M{x:.1f} {_UPPER[0]}V{_LOWER[1]}" for x in xs if _LEFT <= x <= _W)
    return f'<path d="{path}" stroke="{_CHANGE}" stroke-width="0.5" opacity="0.6"/>'


def _key(ink: str) -> list[str]:
    named = (
        ("waited within the bound", _COVERED),
        ("waited longer", _MISSED),
        ("bound issued at submission", ink),
    )
    parts = []
    for n, (name, colour) in enumerate(named):
        x = _LEFT + 10 + 200 * n
        parts += [_dots([f"{x} 18"], colour, 8), _text(x + 10, 22, name, ink)]
    return parts


def _dots(places: Sequence[str], colour: str, width: float) -> str:
    path = "".join(f"M{place}h0" for place in places)
    return (
        f'<path d="{path}" stroke="{colour}" stroke-width="{width}" stroke-linecap="round" '
        'opacity="0.6"/>'
    )


def _line(y: float, colour: str, opacity: float) -> str:
    return (
        f'<path d="M{_LEFT} {y:.1f}H{_W - _RIGHT}" stroke="{colour}" stroke-opacity="{opacity}"/>'
    )


def _text(x: float, y: float, text: str, ink: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{ink}" text-anchor="{anchor}"{more}>{text}</text>'
