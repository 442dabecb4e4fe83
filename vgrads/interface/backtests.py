"""Would the bounds have been right? Histories replayed without knowledge of later records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from statsmodels.stats.proportion import proportion_confint

from vgrads.api.queues.backtests import BacktestJob, backtest_all, backtest_rows, histories_json
from vgrads.interface.arguments import FileName, path_of
from vgrads.interface.html import bare_table, box_html, charts_html
from vgrads.interface.wait_charts import reliability_chart
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, format_duration, format_share, parse_probability
from vgrads.operations.questions import BacktestOptions
from vgrads.operations.reading import make_reading_options
from vgrads.portal.charts.curves import CurveChart, curves_png, curves_svg
from vgrads.qbets.backtest import BacktestRow, Trial
from vgrads.qbets.predictor import Settings

LEVELS = (0.5, 0.75, 0.9)
_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityPoint:
    """The bounds of one stated probability against the waits that followed.

    ``stated``: that probability. ``observed``: share of scored jobs that waited no longer than
    their bound. ``low``, ``high``: 95 % interval of that share (Wilson). ``scored``: number of
    jobs with a bound.
    """

    stated: float
    observed: float
    low: float
    high: float
    scored: int


@dataclass(frozen=True, kw_only=True, repr=False)
class BacktestResult:
    """Rows of a backtest and the reliability curve of its bounds.

    ``rows``: one for each log, queue or cluster, with coverage and tightness
    (:class:`vgrads.qbets.backtest.BacktestRow`). ``reliability``: one point for each stated
    probability, over all histories. ``probability``: of the bounds in ``rows``. ``histories``: what
    was read of each file.
    """

    rows: tuple[BacktestRow, ...]
    reliability: tuple[ReliabilityPoint, ...]
    probability: float
    histories: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The JSON of ``vgrads backtest --json``."""
        return {"rows": [row.as_json() for row in self.rows], "histories": list(self.histories)}

    def __iter__(self) -> Iterator[BacktestRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        lines = [
            f"BacktestResult: {format_count(len(self.rows), 'row')}, bounds of {self.probability:g}"
        ]
        for row in self.rows[:_MOST_SHOWN]:
            lines.append(
                f"  {row.history} {row.queue}: {row.scored} scored, "
                f"coverage {format_share(row.coverage, row.scored)}, "
                f"median bound {format_duration(row.median_bound_s)}"
            )
        more = len(self.rows) - _MOST_SHOWN
        return "\n".join([*lines, *([f"  … {more} more"] if more > 0 else [])])

    def _repr_html_(self) -> str:
        return box_html(
            bare_table(
                ("history", "queue", "scored", "coverage", "worst 500", "median bound"),
                map(_make_cells, self.rows),
            ),
            charts_html(curves_svg(self._charts())),
        )

    def _repr_png_(self) -> bytes | None:
        charts = self._charts()
        return curves_png(charts) if charts else None

    def _charts(self) -> list[CurveChart]:
        points = [(p.stated, p.observed, p.low, p.high) for p in self.reliability]
        return [reliability_chart(points)] if points else []


def _make_cells(row: BacktestRow) -> tuple[str, ...]:
    return (
        row.history,
        row.queue,
        f"{row.scored:,}",
        format_share(row.coverage, row.scored),
        format_share(row.worst_window_coverage, row.scored),
        format_duration(row.median_bound_s),
    )


def backtest_histories(
    histories: FileName | Sequence[FileName],
    levels: Sequence[float],
    on_progress: Callable[[float, float], None] | None,
    options: BacktestOptions,
) -> BacktestResult:
    """Replay histories; the arguments are those of :func:`vgrads.backtest`."""
    requested_level = options.probability
    stated = sorted({requested_level, *(parse_probability(level, "levels") for level in levels)})
    settings = Settings(
        method=options.method,
        quantile=requested_level,
        confidence=options.confidence,
        arrays=options.arrays,
        size=options.size,
        knows_user=options.question == "known",
        view=options.view,
    )
    replay = BacktestJob(
        path=Path(),
        by=options.by,
        settings=settings,
        reading=make_reading_options(options),
        probabilities=tuple(stated),
    )
    jobs = [replace(replay, path=file) for file in _list_files(histories)]
    by_level: dict[float, list[Trial]] = {level: [] for level in stated}
    for finished in backtest_all(jobs, on_progress):
        for trial in finished:
            by_level[trial.probability].append(trial)
    return BacktestResult(
        rows=tuple(backtest_rows(by_level[requested_level], options.by)),
        histories=tuple(histories_json(by_level[requested_level])),
        reliability=tuple(
            point for level in stated for point in _make_point(level, by_level[level])
        ),
        probability=requested_level,
    )


def _list_files(histories: FileName | Sequence[FileName]) -> list[Path]:
    if isinstance(histories, str | os.PathLike):
        return [path_of(histories)]
    if not histories:
        raise InputError("names no log", where="histories")
    return [path_of(file) for file in histories]


def _make_point(level: float, trials: Sequence[Trial]) -> Iterator[ReliabilityPoint]:
    """The point of one level; none where no job has a bound."""
    scored = sum(int(trial.scored.sum()) for trial in trials)
    if not scored:
        return
    covered = sum(int((trial.log.wait_s <= trial.issued_s)[trial.scored].sum()) for trial in trials)
    low, high = proportion_confint(covered, scored, method="wilson")
    yield ReliabilityPoint(
        stated=level, observed=covered / scored, low=float(low), high=float(high), scored=scored
    )
