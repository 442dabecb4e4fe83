"""The report of a backtest: one self-contained page."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.extras import require
from vgrads.kernel.files import write_text
from vgrads.kernel.report_page import figure_of, report_page, scrolling
from vgrads.kernel.units import format_count, format_duration, format_share
from vgrads.qbets.backtest import WINDOW, BacktestRow, Trial, compute_rolling_coverage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_POINTS = 6000
_TOLERANCE = 0.01  # of coverage
_COVERED, _MISSED, _BOUND, _CHANGE = "#3b7dd8", "#d22f2f", "#9a5fd0", "#c58a00"
"""All are visible on bright and on dark pages: many points are a picture within the picture."""
_INK = "#1c2430"  # becomes that of the page


def write_report(path: Path, trials: Sequence[Trial]) -> None:
    """Write the page of these backtests. Raise InputError where it cannot be written."""
    require("plots", "a report with diagrams", str(path))
    body = "".join(
        [_make_overview(trials), *(_make_section(trial) for trial in trials if trial.scored.any())]
    )
    title = "Would the bounds have held?"
    write_text(path, report_page(title, _draw_conclusion(trials), _INTRODUCTION + body))


def _import_pyplot() -> ModuleType:
    """Return matplotlib's functions; pictures are written to the page, not shown on a screen."""
    import matplotlib as mpl  # noqa: PLC0415 of an extra

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    return plt


def _make_overview(trials: Sequence[Trial]) -> str:
    rows = "".join(_make_line(trial.row()) for trial in trials)
    heads = (
        "history",
        "queue",
        "method",
        "scored",
        "coverage",
        "worst 500",
        "pinball",
        "median bound",
        "quick ≤ 1 h",
        "change points",
        "downtimes",
    )
    head = "".join(f"<th>{name}</th>" for name in heads)
    return (
        f"{scrolling(f'<table><tr>{head}</tr>{rows}</table>')}{_make_svg(_draw_coverage(trials))}"
    )


def _make_line(row: BacktestRow) -> str:
    cells = [
        row.history,
        row.queue,
        row.method,
        f"{row.scored:,}",
        format_share(row.coverage),
        format_share(row.worst_window_coverage),
        format_duration(row.pinball_s),
        format_duration(row.median_bound_s),
        format_share(row.quick_bounded),
        str(row.change_points),
        str(row.downtimes),
    ]
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _draw_coverage(trials: Sequence[Trial]) -> Figure:
    """Draw the coverage of each history and queue with its 95 % binomial interval (Wilson)."""
    from statsmodels.stats.proportion import proportion_confint  # noqa: PLC0415 loads for a second

    shown = [trial for trial in trials if trial.scored.any()]
    figure, axes = _import_pyplot().subplots(figsize=(9, 0.8 + 0.28 * max(len(shown), 1)))
    for height, trial in enumerate(reversed(shown)):
        covered, count = int(_format_covered(trial).sum()), int(trial.scored.sum())
        low, high = proportion_confint(covered, count, method="wilson")
        axes.plot([low, high], [height, height], color=_COVERED, linewidth=5, solid_capstyle="butt")
        axes.plot(covered / count, height, "o", color=_INK, markersize=4)
    names = [f"{t.history} {t.queue if t.queue != '*' else ''}" for t in reversed(shown)]
    axes.set_yticks(range(len(shown)), names)
    for level in {trial.probability for trial in shown}:
        axes.axvline(level, color=_MISSED, linewidth=1)
    axes.set_xlabel("coverage, with its 95 % interval; the red line is the promised coverage")
    return cast("Figure", figure)


def _make_section(trial: Trial) -> str:
    name = f"{trial.history}{'' if trial.queue == '*' else ', queue ' + trial.queue}"
    figures = (_draw_history(trial), _draw_tightness(trial))
    return f"<h2>{escape(name)}</h2>{''.join(map(_make_svg, figures))}"


def _format_covered(trial: Trial) -> NDArray[np.bool_]:
    scored = trial.scored
    return np.asarray(trial.log.wait_s[scored] <= trial.issued_s[scored])


def _draw_history(trial: Trial) -> Figure:
    """Draw bound against wait over time on a log scale, change points marked; rolling coverage
    below."""
    scored, covered = trial.scored, _format_covered(trial)
    when = _list_dates(trial, trial.log.submit_s[scored])
    waits = _convert_to_hours(trial.log.wait_s[scored])
    some = np.linspace(0, len(waits) - 1, min(len(waits), _MOST_POINTS)).astype(int)
    figure, (top, bottom) = _import_pyplot().subplots(
        2, 1, figsize=(11, 5.2), sharex=True, height_ratios=[3, 1]
    )
    for chosen, colour, label in (
        (covered[some], _COVERED, "waited within the bound"),
        (~covered[some], _MISSED, "waited longer"),
    ):
        top.plot(
            when[some][chosen],
            waits[some][chosen],
            ".",
            color=colour,
            markersize=2,
            alpha=0.5,
            label=label,
        )
    bounds = _convert_to_hours(trial.issued_s[scored])
    top.plot(when[some], bounds[some], ",", color=_BOUND, label="bound issued at submission")
    for change_s in trial.predictor.change_points[:400]:
        top.axvline(
            _list_dates(trial, np.array([change_s]))[0], color=_CHANGE, linewidth=0.4, alpha=0.6
        )
    top.set_yscale("log")
    top.yaxis.set_major_formatter(lambda hours, _: f"{hours:g}")
    top.set_ylabel("wait (hours)")
    top.legend(
        loc="lower left", bbox_to_anchor=(0, 1), markerscale=6, fontsize=8, ncols=3, frameon=False
    )
    _draw_rolling(bottom, when, covered, trial.probability)
    return cast("Figure", figure)


def _convert_to_hours(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return hours for a log scale: values below half a minute are drawn at its lower end."""
    return np.asarray(np.maximum(seconds, 30.0) / 3600.0)


def _draw_rolling(axes: Axes, when: NDArray[Any], covered: NDArray[np.bool_], level: float) -> None:
    shares = compute_rolling_coverage(covered)
    axes.plot(when[len(when) - len(shares) :], shares, color=_COVERED, linewidth=0.8)
    axes.axhline(level, color=_MISSED, linewidth=0.8)
    axes.set_ylim(min([0.85, *(shares - 0.01)]), 1.005)
    axes.set_ylabel(f"coverage of {min(WINDOW, len(covered))}")


def _draw_tightness(trial: Trial) -> Figure:
    """Draw the lengths of bounds and of waits: two distributions."""
    scored = trial.scored
    figure, axes = _import_pyplot().subplots(figsize=(11, 2.6))
    for values, colour, label in (
        (trial.log.wait_s[scored], _COVERED, "waits"),
        (trial.issued_s[scored], _BOUND, "bounds"),
    ):
        axes.plot(
            np.maximum(np.sort(values), 1.0),
            np.linspace(0, 1, len(values)),
            color=colour,
            label=label,
        )
    axes.axvline(3600.0, color=_CHANGE, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("seconds (the line: one hour)")
    axes.set_ylabel("share of jobs at most")
    axes.legend(fontsize=8)
    return cast("Figure", figure)


def _list_dates(trial: Trial, log_s: NDArray[np.float64]) -> NDArray[Any]:
    zero = trial.log.unix_start_s
    return np.array(
        [datetime.fromtimestamp(zero + float(t), UTC).replace(tzinfo=None) for t in log_s]
    )


def _make_svg(figure: Figure) -> str:
    """Return a figure as inline SVG; scattered points as a picture inside it, since the page would
    otherwise have tens of MB."""
    for axes in figure.axes:
        for line in axes.lines:
            line.set_rasterized(np.size(line.get_xdata()) > 1000)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", dpi=130)
    _import_pyplot().close(figure)
    return figure_of(buffer.getvalue())


_INTRODUCTION = (
    "<p>Every history was replayed with nothing known before its time. A job counts as kept when "
    "it waited no longer than the bound that it was given at its submission. Every started job "
    "from the first that was given a bound is counted.</p>"
)


def _draw_conclusion(trials: Sequence[Trial]) -> str:
    """Return in how many queues the bounds were kept as often as stated, and the worst."""
    rows = [(trial.probability, row) for trial in trials if (row := trial.row()).coverage]
    if not rows:
        return "No job was given a bound: the histories are too short."
    kept = sum((row.coverage or 0.0) >= quantile - _TOLERANCE for quantile, row in rows)
    quantile, worst = min(rows, key=lambda item: (item[1].coverage or 0.0) - item[0])
    return (
        f"{kept} of {len(rows)} backtests kept their bounds as often as stated, within "
        f"{_TOLERANCE}; the lowest is {worst.history} ({worst.queue}, {worst.method}): "
        f"{format_share(worst.coverage)} of {format_count(worst.scored, 'job')}, where "
        f"{quantile} was stated."
    )
