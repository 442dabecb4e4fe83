"""Quality of bounds: every method on every log, on the same jobs.

``bmbp`` and ``qbets`` use past waits, ``state`` also the queue. As ``vgrads backtest``, with all
methods at once and a picture that compares them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from vgrads.kernel.process_pool import process_pool
from vgrads.kernel.report_page import html_table, write_page
from vgrads.kernel.units import format_duration
from vgrads.qbets.backtest import BacktestRow, backtest
from vgrads.qbets.predictor import METHODS, Settings
from vgrads.traces.history import history_name, read_history
from vgrads_studies.picture import diagrams
from vgrads_studies.report import markdown_table, need_files, picture, study_parser

HEAD = (
    "log",
    "method",
    "scored",
    "coverage",
    "worst 500",
    "pinball (s)",
    "÷ qbets",
    "median bound",
    "quick bounded",
    "jobs/s",
)


_TOLERANCE = 0.01  # of coverage


def _row(job: tuple[Path, str, float, int | None]) -> BacktestRow:
    path, method, quantile, first = job
    log = read_history(path)
    if first is not None:
        log = log.select(np.arange(min(first, len(log))))
    return backtest(
        log, history_name(path), settings=Settings(method=method, quantile=quantile)
    ).row()


def study(
    logs: Sequence[Path], methods: Sequence[str], quantile: float, first: int | None
) -> list[BacktestRow]:
    """Run all logs and methods, on all cores, with a progress bar."""
    jobs = [(path, method, quantile, first) for path, method in product(logs, methods)]
    with process_pool() as pool:
        done = pool.map(_row, jobs)
        return list(track(done, "replaying", total=len(jobs), console=Console(stderr=True)))


def rows_of(rows: Sequence[BacktestRow]) -> list[list[str]]:
    """Return a line for each log and method."""
    base = {row.history: row.pinball_s for row in rows if row.method == "qbets"}
    return [
        [
            row.history,
            row.method,
            f"{row.scored:,}",
            _share(row.coverage),
            _share(row.worst_window_coverage),
            "–" if row.pinball_s is None else f"{row.pinball_s:,.0f}",
            _ratio(row.pinball_s, base.get(row.history)),
            "–" if row.median_bound_s is None else format_duration(row.median_bound_s),
            _share(row.quick_bounded),
            f"{row.jobs_per_s:,.0f}",
        ]
        for row in rows
    ]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _ratio(value: float | None, other: float | None) -> str:
    return f"{value / other:.2f}" if value is not None and other else "–"


def draw(rows: Sequence[BacktestRow], quantile: float, path: Path) -> None:
    """Draw coverage, pinball loss against qbets, and bounds of quick jobs, a bar for each
    method."""
    logs = list(dict.fromkeys(row.history for row in rows))
    methods = list(dict.fromkeys(row.method for row in rows))
    result = {(row.history, row.method): row for row in rows}
    with diagrams(path, 3, (14, 1.5 + 0.45 * len(logs))) as axes:
        for n, method in enumerate(methods):
            spots = np.arange(len(logs)) + 0.8 * n / len(methods)
            mine = [result[log, method] for log in logs]
            base = [
                result[log, "qbets"].pinball_s if (log, "qbets") in result else None for log in logs
            ]
            losses = [
                (r.pinball_s or 0) / b if b else np.nan for r, b in zip(mine, base, strict=True)
            ]
            height = 0.8 / len(methods)
            axes[0].plot([r.coverage for r in mine], spots, "o", label=method)
            axes[1].barh(spots, losses, height)
            axes[2].barh(spots, [r.quick_bounded or 0 for r in mine], height)
        axes[0].axvline(quantile, color="#999", linestyle=":")
        for axis, title in zip(
            axes, ("coverage", "pinball loss ÷ qbets", "quick jobs bounded within 1 h"), strict=True
        ):
            axis.set(title=title)
            axis.set_yticks(np.arange(len(logs)) + 0.3, [log[:16] for log in logs])
            axis.invert_yaxis()
        axes[0].legend(frameon=False)


def _conclusion(rows: Sequence[BacktestRow], quantile: float) -> str:
    """Return for each method on how many logs its bounds were kept as often as stated."""
    methods = dict.fromkeys(row.method for row in rows)
    counts = []
    for method in methods:
        shares = [row.coverage for row in rows if row.method == method and row.coverage is not None]
        kept = sum(share >= quantile - _TOLERANCE for share in shares)
        counts.append(f"{method} on {kept} of {len(shares)} logs")
    share = f"{quantile - _TOLERANCE:g}"
    return f"Bounds were kept at least {share} of the time by {', '.join(counts)}."


def main(arguments: Sequence[str] | None = None) -> None:
    parser = study_parser("bounds", __doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument(
        "--probability", type=float, default=0.95, help="quantile of the wait that is bounded"
    )
    parser.add_argument("--method", action="append", choices=tuple(METHODS), help="default: all")
    parser.add_argument("--first", type=int, help="number of jobs to read of each log")
    chosen = parser.parse_args(arguments)
    need_files(chosen.logs)
    rows = study(chosen.logs, chosen.method or tuple(METHODS), chosen.probability, chosen.first)
    if chosen.report:
        shown = picture(lambda file: draw(rows, chosen.probability, file))
        parts = [shown, html_table(HEAD, rows_of(rows))]
        conclusion = _conclusion(rows, chosen.probability)
        write_page(chosen.report, "How good are the bounds?", conclusion, parts)
    if chosen.json:
        sys.stdout.write(json.dumps({"rows": [row.as_json() for row in rows]}) + "\n")
    else:
        sys.stdout.write(markdown_table(HEAD, rows_of(rows)) + "\n")


if __name__ == "__main__":
    main()
