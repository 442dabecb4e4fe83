"""History of the bounds of one queue, as a picture: bound against wait over time, and below it the
share of bounds that held.

The bounds are those of the predictor that answers questions about the queue: by the state of its
machine, whose queues share it, or from its past waits alone while there is too little to learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vgrads.api.queues.histories import AS_QUESTION
from vgrads.api.queues.history_files import open_history
from vgrads.portal.charts.wait_axis import WaitAxis
from vgrads.qbets.backtest import WINDOW, backtest, compute_rolling_coverage
from vgrads.qbets.state_predictor import StatePredictor
from vgrads.qbets.viewed_log import choose_view_at
from vgrads.traces.log_queue import LogQueue
from vgrads.traces.records import JobLog

_W, _H, _LEFT, _RIGHT = 1100, 520, 76, 12
_UPPER, _LOWER = (34, 350), (372, 480)  # upper and lower edge of the two parts
_MOST_POINTS, _MOST_CHANGES, _DATES = 4000, 400, 6
_APART = 0.07  # of two labels of waits
_MOST_DRAWN, _LEARNED_BEFORE = 20_000, 10_000  # newest submissions of a log
_COVERED, _MISSED, _CHANGE = "#3b7dd8", "#d22f2f", "#c58a00"
_ON_DARK = {_COVERED: "#6fa8ff", _MISSED: "#ff6f66", _CHANGE: "#e0b050"}
_INK, _PAPER = ("#1c2430", "#e6e9ee"), ("#ffffff", "#14181f")  # of bright and dark pages
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundRecord:
    """Every drawn job of a queue that had a bound: when it was submitted, its wait and its bound.
    ``changes``: where past waits stopped to apply; none for bounds by the state."""

    submit_s: Values
    wait_s: Values
    bound_s: Values
    unix_start_s: float
    level: float
    by_state: bool
    changes: tuple[float, ...] = ()


def record_picture(history: str, log_queue: LogQueue, dark: bool = False) -> bytes:
    """Draw bound against wait, and rolling coverage, as SVG."""
    return _draw_picture(history, Path(history).stat().st_mtime_ns, log_queue, dark)


@lru_cache(maxsize=64)
def _draw_picture(history: str, changed_ns: int, log_queue: LogQueue, dark: bool) -> bytes:
    return history_svg(_record(history, changed_ns, log_queue), dark).encode()


@lru_cache(maxsize=8)
def _record(history: str, _changed_ns: int, log_queue: LogQueue) -> BoundRecord:
    return record_of(open_history(history), log_queue)


def record_of(log: JobLog, log_queue: LogQueue) -> BoundRecord:
    """Replay the newest part of a log with the predictor that answers, in the view that the log
    permits now, and return its bounds for jobs of a queue."""
    first = max(0, len(log) - _MOST_DRAWN)
    # those before are learned from, and not drawn
    used = log.select(np.arange(max(0, first - _LEARNED_BEFORE), len(log)))
    codes = np.unique(log.only_queue(log_queue).queue)
    named = log.largest_queue(log_queue) >= 0
    settings = replace(AS_QUESTION, view=choose_view_at(log))
    trial = backtest(used, log.name, "*", replace(settings, knows_queue=named))
    by_state = isinstance(trial.predictor, StatePredictor) and bool(trial.predictor.models)
    changes: Sequence[float] = ()
    if not by_state:
        own = used.select(np.isin(used.queue, codes))
        trial = backtest(own, log.name, "*", replace(settings, method="qbets"))
        changes = trial.predictor.change_points
    since_s = float(log.submit_s[first]) if len(log) else 0.0
    drawn = trial.scored & np.isin(trial.log.queue, codes) & (trial.log.submit_s >= since_s)
    return BoundRecord(
        submit_s=trial.log.submit_s[drawn],
        wait_s=trial.log.wait_s[drawn],
        bound_s=trial.issued_s[drawn],
        unix_start_s=log.unix_start_s,
        level=AS_QUESTION.quantile,
        by_state=by_state,
        changes=tuple(changes),
    )


def history_svg(record: BoundRecord, dark: bool = False) -> str:
    """Return the picture of a record, also for dark pages; a text where the data never sufficed
    for a bound."""
    ink = _INK[dark]
    few = _draw_text(_W / 2, _H / 2, "Too few waits are recorded for a bound.", ink, "middle")
    drawn = "".join(_draw_parts(record, ink)) if len(record.submit_s) else few
    for colour, lighter in _ON_DARK.items() if dark else ():
        drawn = drawn.replace(colour, lighter)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_W} {_H}" width="{_W}" '
        f'height="{_H}" font-family="system-ui, sans-serif" font-size="12">'
        f'<rect width="{_W}" height="{_H}" fill="{_PAPER[dark]}"/>{drawn}</svg>'
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


def _draw_parts(record: BoundRecord, ink: str) -> list[str]:
    when, covered = record.submit_s, record.wait_s <= record.bound_s
    axis = _find_axis(record)
    waits, bounds = (np.log1p(seconds / axis.knee_s) for seconds in (record.wait_s, record.bound_s))
    some = np.linspace(0, len(when) - 1, min(len(when), _MOST_POINTS)).astype(int)
    span = (float(when[0]), float(when[-1]))
    upper = _Frame(span, (0.0, axis.height), _UPPER)
    within, missed = some[covered[some]], some[~covered[some]]
    return [
        *_wait_axis(upper, axis, ink),
        _draw_changes(upper, record.changes),
        _draw_dots(upper.places(when[within], waits[within]), _COVERED, 2.2),
        _draw_dots(upper.places(when[missed], waits[missed]), _MISSED, 2.2),
        _draw_dots(upper.places(when[some], bounds[some]), ink, 1.5),
        *_draw_key(record, ink),
        *_draw_coverage(span, when, covered, record.level, ink),
        *_draw_dates(upper, record.unix_start_s, ink),
    ]


def _find_axis(record: BoundRecord) -> WaitAxis:
    """Return the axis of waits: none is longer."""
    both = np.concatenate([record.wait_s, record.bound_s])
    return WaitAxis.up_to(float(np.quantile(both, 0.9)), 1.05 * float(both.max()))


def _wait_axis(frame: _Frame, axis: WaitAxis, ink: str) -> list[str]:
    top, bottom = frame.edges
    parts = [_draw_title(frame, "wait", ink)]
    for seconds, words in axis.ticks(_APART):
        y = bottom - axis.share(seconds) * (bottom - top)
        parts += [_draw_line(y, ink, 0.2), _draw_text(_LEFT - 6, y + 4, words, ink, "end")]
    return parts


def _draw_coverage(
    span: tuple[float, float], when: Values, covered: NDArray[np.bool_], level: float, ink: str
) -> list[str]:
    """Draw the share of the latest bounds that held, and the promised one."""
    shares = compute_rolling_coverage(covered)
    low = min(0.85, float(shares.min()) - 0.01)
    frame = _Frame(span, (low, 1.005), _LOWER)
    some = np.linspace(0, len(shares) - 1, min(len(shares), _MOST_POINTS)).astype(int)
    path = "L".join(frame.places(when[len(when) - len(shares) :][some], shares[some]))
    parts = [_draw_title(frame, f"coverage of {min(WINDOW, len(covered))}", ink)]
    for value in (low, level, 1.0):
        y, colour = float(frame.y(np.array(value))), _MISSED if value == level else ink
        label = _draw_text(_LEFT - 6, y + 4, f"{value:.2f}", ink, "end")
        parts += [_draw_line(y, colour, 1.0 if value == level else 0.2), label]
    return [*parts, f'<path d="M{path}" fill="none" stroke="{_COVERED}"/>']


def _draw_title(frame: _Frame, name: str, ink: str) -> str:
    middle = sum(frame.edges) / 2
    turned = f' transform="rotate(-90 14 {middle:.0f})"'
    return _draw_text(14, middle, name, ink, "middle", turned)


def _draw_dates(frame: _Frame, unix_start_s: float, ink: str) -> list[str]:
    first, last = frame.seconds
    parts = []
    for n in range(_DATES):
        at_s = first + (last - first) * n / (_DATES - 1)
        date = datetime.fromtimestamp(unix_start_s + at_s, UTC).strftime("%Y-%m-%d")
        anchor = "start" if n == 0 else "end" if n == _DATES - 1 else "middle"
        parts.append(_draw_text(float(frame.x(np.array(at_s))), _LOWER[1] + 22, date, ink, anchor))
    return parts


def _draw_changes(frame: _Frame, instants: Sequence[float]) -> str:
    """Mark the change points, in both parts."""
    xs = frame.x(np.array(instants[:_MOST_CHANGES], float)).tolist()
    path = "".join(f"M{x:.1f} {_UPPER[0]}V{_LOWER[1]}" for x in xs if _LEFT <= x <= _W)
    return f'<path d="{path}" stroke="{_CHANGE}" stroke-width="0.5" opacity="0.6"/>'


def _draw_key(record: BoundRecord, ink: str) -> list[str]:
    names = [
        ("waited within the bound", _COVERED),
        ("waited longer", _MISSED),
        (f"bound at submission (method {'state' if record.by_state else 'qbets'})", ink),
    ]
    if record.changes:
        names.append(("the queue changed", _CHANGE))
    parts = []
    for n, (name, colour) in enumerate(names):
        x = _LEFT + 10 + 230 * n
        parts += [_draw_dots([f"{x} 18"], colour, 8), _draw_text(x + 10, 22, name, ink)]
    return parts


def _draw_dots(places: Sequence[str], colour: str, width: float) -> str:
    path = "".join(f"M{place}h0" for place in places)
    return (
        f'<path d="{path}" stroke="{colour}" stroke-width="{width}" stroke-linecap="round" '
        'opacity="0.6"/>'
    )


def _draw_line(y: float, colour: str, opacity: float) -> str:
    return (
        f'<path d="M{_LEFT} {y:.1f}H{_W - _RIGHT}" stroke="{colour}" stroke-opacity="{opacity}"/>'
    )


def _draw_text(
    x: float, y: float, text: str, ink: str, anchor: str = "start", more: str = ""
) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{ink}" text-anchor="{anchor}"{more}>{text}</text>'
