"""``vgrads backtest``: replay histories, print and draw how bounds would have held."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vgrads.api.queues import backtests
from vgrads.operations.fields import About, OnCommandLine
from vgrads.operations.questions import BacktestRequest
from vgrads.operations.reading import make_reading_options
from vgrads.portal.cli.options import answer_with
from vgrads.portal.cli.queues import text as queue_text
from vgrads.portal.cli.requests import TableOutput
from vgrads.portal.cli.terminal import console, print_reading, progress_bar
from vgrads.qbets.predictor import Settings


@dataclass(frozen=True, kw_only=True)
class BacktestOutput(TableOutput):
    """``vgrads backtest``."""

    report: Annotated[
        Path | None,
        About("Write an HTML page with diagrams."),
        OnCommandLine(metavar="FILE.html", check="diagram_file"),
    ] = None


def backtest_now(request: BacktestRequest, output: BacktestOutput) -> int:
    """Replay each history, using no data before its time."""
    settings = Settings(
        method=request.method,
        quantile=request.probability,
        confidence=request.confidence,
        arrays=request.arrays,
        size=request.size,
        knows_user=request.question == "known",
        view=request.view,
    )
    reading = make_reading_options(request)
    replays = [
        backtests.BacktestJob(path=path, by=request.by, settings=settings, reading=reading)
        for path in request.histories
    ]
    with progress_bar("backtest") as callback:
        trials = [
            trial for results in backtests.backtest_all(replays, callback) for trial in results
        ]
    rows = backtests.backtest_rows(trials, request.by)
    if output.report:
        # imported late: it needs the library of diagrams
        from vgrads.portal.charts.backtest import write_report  # noqa: PLC0415

        write_report(output.report, trials)
    for log in {trial.log.name: trial.log for trial in trials}.values():
        print_reading(console(stderr=True), log.name, log)
    document = {
        "rows": [row.as_json() for row in rows],
        "histories": backtests.histories_json(trials),
    }
    answer_with(output.as_json, document, lambda: queue_text.backtest_table(rows))
    return 0
