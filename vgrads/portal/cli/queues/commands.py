"""Commands that query a queue's history: bound, probability, trajectory, backtest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    instant_of,
)

if TYPE_CHECKING:
    from vgrads.traces.log_queue import LogQueue
    from vgrads.traces.reading_options import ReadingOptions


def _settings(
    method: str, quantile: float, confidence: str, arrays: bool, existing: bool = False
) -> Any:
    from vgrads.qbets.predictor import Settings

    sure = parse_probability(confidence, "--confidence")
    return Settings(
        method=method, quantile=quantile, confidence=sure, arrays=arrays, knows_user=existing
    )


def _resolve(value: Path) -> tuple[Path, LogQueue]:
    """Resolve HISTORY to a file and a queue in it; the database is searched where there is no such
    file."""
    if value.is_file():
        return value, None
    from vgrads.portal.records.sites import resolve_history

    return resolve_history(value)


def _ask(
    source: tuple[Path, str | None, ReadingOptions, str | None],
    at: str | None,
    settings: Any,
    procs: int,
) -> Any:
    """Query a history (path or SITE/QUEUE, queue, how to read it, user) at an instant, for jobs of
    this width; what its file holds is printed to standard error."""
    from vgrads.api.queues import queries
    from vgrads.portal.cli.terminal import busy, console, print_reading

    value, queue, reading, user = source
    file, log_queue = _resolve(value)
    chosen = queries.HistorySource(
        file=file, queue=log_queue if queue is None else queue, reading=reading, user=user
    )
    what = "states of the queue" if settings.looks_at_state else "past waits"
    with busy(console(stderr=True), f"learning from {what}"):
        query = queries.ask_queue(chosen, instant_of(at), settings)
    print_reading(console(stderr=True), value.name, query.log)
    queries.refuse_too_wide(query, procs)
    return query


def _reading(
    format_name: str | None,
    columns: str | None,
    zone: str | None,
    taken_at: str | None,
    force: bool,
) -> ReadingOptions:
    from vgrads.traces.reading_options import parse_reading_options

    return parse_reading_options(format_name, columns, zone, taken_at, force)


def _with_live_queue(requested: Any, history: Path) -> Any:
    from vgrads.api.queues.live_queue import ask_live
    from vgrads.portal.records.reading.sites import stored_catalog

    return ask_live(requested, stored_catalog(), str(history))


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
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Query the site for the current state of the queue (SITE/QUEUE with a driver).",
        ),
    ] = False,
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
    from vgrads.api.queues import queries
    from vgrads.api.queues.answers import bound_json
    from vgrads.api.queues.issuing import Statement
    from vgrads.portal.cli.queues import text as queue_text
    from vgrads.portal.cli.queues.recording import record_answer

    chance, wall_s = (
        parse_probability(probability, "--probability"),
        parse_duration(walltime, "--walltime"),
    )
    settings = _settings(method, chance, confidence, arrays, user is not None)
    if live and (at or user or method != "state"):
        raise InputError(
            "uses the current state of the queue, with the method 'state' and without a user",
            where="--live",
            fix="leave --at, --user and --method away",
        )
    source = (history, queue, _reading(format_name, columns, zone, taken_at, force), user)
    requested = _ask(source, at, settings, procs)
    if live:
        requested = _with_live_queue(requested, history)
    result = requested.forecast.bound(procs, wall_s, chance, settings.confidence)
    stated = Statement(bounds=((chance, result.bound_s),))
    after = record_answer(requested, (history, queue), (procs, wall_s), stated, live)
    document = bound_json(result, requested)
    payload = queries.explanation_of(requested, procs, wall_s, chance) if why else None
    document |= {"explanation": payload} if payload else {}
    answer_with(
        as_json,
        document,
        lambda: "\n".join(
            [
                queue_text.bound_text(result, requested),
                *([queue_text.explanation_text(payload)] if payload else []),
            ]
        ),
    )
    after()


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
    user: User = None,
    format_name: Format = None,
    columns: Columns = None,
    zone: Zone = None,
    taken_at: TakenAt = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Print the probability that a job starts within a time. (GETPROB)"""
    from vgrads.api.queues.answers import probability_json
    from vgrads.api.queues.issuing import Statement
    from vgrads.portal.cli.queues import text as queue_text
    from vgrads.portal.cli.queues.recording import record_answer

    within_s, wall_s = parse_duration(within, "--within"), parse_duration(walltime, "--walltime")
    settings = _settings(method, 0.95, confidence, arrays, user is not None)
    source = (history, queue, _reading(format_name, columns, zone, taken_at, force), user)
    requested = _ask(source, at, settings, procs)
    chance = float(requested.forecast.probability(procs, wall_s, within_s, settings.confidence))
    stated = Statement(probabilities=((within_s, chance),))
    record_answer(requested, (history, queue), (procs, wall_s), stated)
    document = probability_json(
        requested, chance, within_s, len(requested.forecast.waits(procs, wall_s))
    )
    answer_with(as_json, document, lambda: queue_text.probability_text(document, requested))


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
    user: User = None,
    format_name: Format = None,
    columns: Columns = None,
    zone: Zone = None,
    taken_at: TakenAt = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Print when a job must be submitted to run by a given time. (VARQ)"""
    from vgrads.api.queues import queries
    from vgrads.api.queues.answers import trajectory_json
    from vgrads.api.queues.issuing import Statement
    from vgrads.portal.cli.queues import text as queue_text
    from vgrads.portal.cli.queues.recording import record_answer
    from vgrads.vgrid.varq import Reservation

    settings = _settings(method, 0.95, confidence, arrays, user is not None)
    reservation = Reservation(
        procs=procs,
        walltime_s=parse_duration(walltime, "--walltime"),
        start_by_s=parse_duration(start_by, "--start-by"),
        probability=parse_probability(probability, "--probability"),
        confidence=settings.confidence,
    )
    source = (history, queue, _reading(format_name, columns, zone, taken_at, force), user)
    requested = _ask(source, at, settings, procs)
    path = queries.walk(requested, reservation, parse_duration(step, "--step"))
    stated, shape = Statement(path=path), (procs, reservation.walltime_s)
    record_answer(requested, (history, queue), shape, stated)
    answer_with(
        as_json, trajectory_json(path), lambda: queue_text.trajectory_text(path, reservation)
    )


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

    chance = parse_probability(probability, "--probability")
    if as_ not in ("asked", "known"):
        raise InputError(f"unknown value '{as_}'; choose asked or known", where="--as")
    settings = replace(_settings(method, chance, confidence, arrays, as_ == "known"), size=size)
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
