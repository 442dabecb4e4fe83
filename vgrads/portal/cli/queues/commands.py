"""Commands that query a queue's history: bound, probability, trajectory, backtest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import parse_duration, parse_probability
from vgrads.portal.cli.options import (
    AsJson,
    At,
    ByArrays,
    Columns,
    Confidence,
    Force,
    Format,
    History,
    Live,
    Method,
    Procs,
    Queue,
    TakenAt,
    User,
    Walltime,
    Wide,
    Zone,
    answer_with,
    app,
    diagram_file,
)
from vgrads.qbets.views import FULL

if TYPE_CHECKING:
    from vgrads.traces.reading_options import ReadingOptions


def _reading(
    format_name: str | None,
    columns: str | None,
    zone: str | None,
    taken_at: str | None,
    force: bool,
) -> ReadingOptions:
    from vgrads.traces.reading_options import parse_reading_options

    return parse_reading_options(format_name, columns, zone, taken_at, force)


@app.command(
    epilog="Example: `vgrads bound KTH-SP2.swf.gz --procs 16 --walltime 2h --probability .95`"
)
def bound(
    history: History,
    procs: Procs = 1,
    walltime: Walltime = "1h",
    probability: Annotated[
        str,
        typer.Option(
            "--probability", "-p", help="Share of jobs that wait no longer than the bound."
        ),
    ] = "0.95",
    confidence: Confidence = "0.95",
    queue: Queue = None,
    at: At = None,
    method: Method = "state",
    arrays: ByArrays = True,
    live: Live = True,
    why: Annotated[
        bool,
        typer.Option("--explain", help="Show which features of the queue state changed the bound."),
    ] = False,
    user: User = None,
    format_name: Format = None,
    columns: Columns = None,
    zone: Zone = None,
    taken_at: TakenAt = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Print an upper bound on a job's wait. (GETBOUND)"""
    from vgrads.operations.forecasts import ask_bound
    from vgrads.operations.questions import BoundQuestion
    from vgrads.portal.cli.queues import asking
    from vgrads.portal.cli.queues import text as queue_text

    question = BoundQuestion(
        **asking.job_fields(history, queue, (procs, walltime), (method, confidence, arrays)),
        **asking.history_fields(at, user, live),
        reading=_reading(format_name, columns, zone, taken_at, force),
        probability=parse_probability(probability, "--probability"),
        explain=why,
    )
    answer = asking.answer_question(ask_bound, question, history.name)
    answer_with(as_json, answer.as_json(), lambda: queue_text.bound_text(answer))
    asking.take_estimate(answer)


@app.command(
    epilog="Example: `vgrads probability KTH-SP2.swf.gz --procs 16 --walltime 2h --within 30m`"
)
def probability(
    history: History,
    within: Annotated[str, typer.Option("--within", help="How long the job may wait, e.g. 30m.")],
    procs: Procs = 1,
    walltime: Walltime = "1h",
    confidence: Confidence = "0.95",
    queue: Queue = None,
    at: At = None,
    method: Method = "state",
    arrays: ByArrays = True,
    live: Live = True,
    user: User = None,
    format_name: Format = None,
    columns: Columns = None,
    zone: Zone = None,
    taken_at: TakenAt = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Print the probability that a job starts within a time. (GETPROB)"""
    from vgrads.operations.forecasts import ask_probability
    from vgrads.operations.questions import ProbabilityQuestion
    from vgrads.portal.cli.queues import asking
    from vgrads.portal.cli.queues import text as queue_text

    question = ProbabilityQuestion(
        **asking.job_fields(history, queue, (procs, walltime), (method, confidence, arrays)),
        **asking.history_fields(at, user, live),
        reading=_reading(format_name, columns, zone, taken_at, force),
        within_s=parse_duration(within, "--within"),
    )
    answer = asking.answer_question(ask_probability, question, history.name)
    answer_with(as_json, answer.as_json(), lambda: queue_text.probability_text(answer))
    asking.take_estimate(answer)


@app.command(
    epilog=(
        "Example: `vgrads trajectory KTH-SP2.swf.gz --procs 16 --walltime 2h --start-by 6h "
        "--probability .9`"
    )
)
def trajectory(
    history: History,
    start_by: Annotated[
        str,
        typer.Option("--start-by", help="Time by which the job must be running, e.g. 6h from now."),
    ],
    procs: Procs = 1,
    walltime: Walltime = "1h",
    probability: Annotated[
        str,
        typer.Option("--probability", "-p", help="Probability with which the job must be running."),
    ] = "0.9",
    confidence: Confidence = "0.95",
    step: Annotated[
        str, typer.Option("--step", help="Interval between the submission times that are tried.")
    ] = "30s",
    queue: Queue = None,
    at: At = None,
    method: Method = "state",
    arrays: ByArrays = True,
    live: Live = True,
    user: User = None,
    format_name: Format = None,
    columns: Columns = None,
    zone: Zone = None,
    taken_at: TakenAt = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Print when a job must be submitted to run by a given time. (VARQ)"""
    from vgrads.operations.forecasts import ask_trajectory
    from vgrads.operations.questions import TrajectoryQuestion
    from vgrads.portal.cli.queues import asking
    from vgrads.portal.cli.queues import text as queue_text

    question = TrajectoryQuestion(
        **asking.job_fields(history, queue, (procs, walltime), (method, confidence, arrays)),
        **asking.history_fields(at, user, live),
        reading=_reading(format_name, columns, zone, taken_at, force),
        start_by_s=parse_duration(start_by, "--start-by"),
        probability=parse_probability(probability, "--probability"),
        step_s=parse_duration(step, "--step"),
    )
    answer = asking.answer_question(ask_trajectory, question, history.name)
    answer_with(as_json, answer.as_json(), lambda: queue_text.trajectory_text(answer))


@app.command(epilog="Example: `vgrads backtest logs/*.swf.gz --by queue --report backtest.html`")
def backtest(
    histories: Annotated[
        list[Path], typer.Argument(metavar="HISTORY...", help="Queue logs.", show_default=False)
    ],
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help="One row per log, queue, cluster of like jobs, or group: width, queue, "
            "requested time.",
        ),
    ] = "log",
    probability: Annotated[
        str, typer.Option("--probability", "-p", help="Quantile of the wait that is bounded.")
    ] = "0.95",
    confidence: Confidence = "0.95",
    method: Method = "state",
    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            help="Feature by which jobs are clustered: procs, time, product or backlog. Default: "
            "that of the method.",
        ),
    ] = None,
    arrays: ByArrays = True,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE.html",
            help="Write an HTML page with diagrams.",
            callback=diagram_file,
        ),
    ] = None,
    as_: Annotated[
        str,
        typer.Option(
            "--as",
            help=(
                "Information about each job. asked: as in a query, without its user. known: with "
                "its user and the user's jobs in the queue."
            ),
        ),
    ] = "asked",
    view: Annotated[
        str,
        typer.Option(
            "--view",
            help=(
                "Jobs that are known at each instant. full: all. started: without those that "
                "wait. ended: only those that have ended."
            ),
        ),
    ] = FULL,
    format_name: Format = None,
    columns: Columns = None,
    zone: Zone = None,
    taken_at: TakenAt = None,
    force: Force = False,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Test bounds on past waits: replay histories, using no data before its time."""
    from vgrads.api.queues import backtests
    from vgrads.portal.cli.queues import text as queue_text
    from vgrads.portal.cli.terminal import console, print_reading, progress_bar
    from vgrads.qbets.predictor import Settings

    chance = parse_probability(probability, "--probability")
    if as_ not in ("asked", "known"):
        raise InputError(f"unknown value '{as_}'; choose asked or known", where="--as")
    settings = Settings(
        method=method,
        quantile=chance,
        confidence=parse_probability(confidence, "--confidence"),
        arrays=arrays,
        size=size,
        knows_user=as_ == "known",
        view=view,
    )
    reading = _reading(format_name, columns, zone, taken_at, force)
    replays = [
        backtests.BacktestJob(path=path, by=by, settings=settings, reading=reading)
        for path in histories
    ]
    with progress_bar("backtest") as callback:
        trials = [
            trial for results in backtests.backtest_all(replays, callback) for trial in results
        ]
    rows = backtests.backtest_rows(trials, by)
    if report:
        from vgrads.portal.charts.backtest import write_report

        write_report(report, trials)
    for log in {trial.log.name: trial.log for trial in trials}.values():
        print_reading(console(stderr=True), log.name, log)
    document = {
        "rows": [row.as_json() for row in rows],
        "histories": backtests.histories_json(trials),
    }
    answer_with(as_json, document, lambda: queue_text.backtest_table(rows))
