"""Commands that ask a queue's history: bound, probability, trajectory, backtest."""

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
    Confidence,
    Format,
    History,
    Method,
    Procs,
    Queue,
    User,
    Walltime,
    answer_with,
    app,
    instant_of,
)

if TYPE_CHECKING:
    from vgrads.traces.records import LogQueue


def _settings(
    method: str, quantile: float, confidence: str, arrays: bool, known: bool = False
) -> Any:
    from vgrads.qbets.predictor import Settings

    sure = parse_probability(confidence, "--confidence")
    return Settings(
        method=method, quantile=quantile, confidence=sure, arrays=arrays, knows_user=known
    )


def _resolve(given: Path) -> tuple[Path, LogQueue]:
    """The file behind HISTORY, and which queue of it is meant; the database is asked where there is
    no such file."""
    if given.is_file():
        return given, None
    from vgrads.portal.records.sites import resolve_history

    return resolve_history(given)


def _ask(
    source: tuple[Path, str | None, str | None, str | None],
    at: str | None,
    settings: Any,
    procs: int,
) -> Any:
    """What a history (path or SITE/QUEUE, queue, format, who asks) says at an instant, for jobs of
    this width."""
    from vgrads.api.queues import queries
    from vgrads.portal.cli.terminal import busy, console

    given, queue, format_name, user = source
    file, log_queue = _resolve(given)
    chosen = queries.Source(
        file=file, queue=log_queue if queue is None else queue, format_name=format_name, user=user
    )
    what = "states of the queue" if settings.looks_at_state else "past waits"
    with busy(console(stderr=True), f"learning from {what}"):
        asked = queries.ask_queue(chosen, instant_of(at), settings)
    queries.refuse_too_wide(asked, procs)
    return asked


def _as_it_is_now(asked: Any, history: Path) -> Any:
    from vgrads.api.queues.live_queue import ask_live
    from vgrads.portal.records.sites import stored_catalog

    return ask_live(asked, stored_catalog(), str(history))


@app.command(
    epilog="Example: `vgrads bound KTH-SP2.swf.gz --procs 16 --walltime 2h --probability .95`"
)
def bound(
    history: History,
    procs: Procs = 1,
    walltime: Walltime = "1h",
    probability: Annotated[
        str, typer.Option("--probability", "-p", help="Share of jobs that wait no longer.")
    ] = "0.95",
    confidence: Confidence = "0.95",
    queue: Queue = None,
    at: At = None,
    method: Method = "state",
    arrays: ByArrays = True,
    live: Annotated[
        bool,
        typer.Option(
            "--live", help="Ask the site for the queue as it is now (SITE/QUEUE with a driver)."
        ),
    ] = False,
    why: Annotated[
        bool, typer.Option("--explain", help="Tell what in the state of the queue moved the bound.")
    ] = False,
    user: User = None,
    format_name: Format = None,
    as_json: AsJson = False,
) -> None:
    """How long will a job wait at most? (GETBOUND)"""
    from vgrads.api.queues import queries
    from vgrads.api.queues.answers import bound_json
    from vgrads.portal.cli.queues import text as queue_text

    chance, wall_s = (
        parse_probability(probability, "--probability"),
        parse_duration(walltime, "--walltime"),
    )
    settings = _settings(method, chance, confidence, arrays, user is not None)
    if live and (at or user or method != "state"):
        raise InputError(
            "looks at the queue now, by its state and for anybody",
            where="--live",
            fix="leave --at, --user and --method away",
        )
    asked = _ask((history, queue, format_name, user), at, settings, procs)
    if live:
        asked = _as_it_is_now(asked, history)
    found = asked.forecast.bound(procs, wall_s, chance, settings.confidence)
    document = bound_json(found, asked)
    told = queries.explanation_of(asked, procs, wall_s, chance) if why else None
    document |= {"explanation": told} if told else {}
    answer_with(
        as_json,
        document,
        lambda: "\n".join(
            [
                queue_text.bound_text(found, asked),
                *([queue_text.explanation_text(told)] if told else []),
            ]
        ),
    )


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
    as_json: AsJson = False,
) -> None:
    """How surely does a job start within a time? (GETPROB)"""
    from vgrads.api.queues.answers import probability_json
    from vgrads.portal.cli.queues import text as queue_text

    within_s, wall_s = parse_duration(within, "--within"), parse_duration(walltime, "--walltime")
    settings = _settings(method, 0.95, confidence, arrays, user is not None)
    asked = _ask((history, queue, format_name, user), at, settings, procs)
    chance = float(asked.forecast.probability(procs, wall_s, within_s, settings.confidence))
    document = probability_json(asked, chance, within_s, len(asked.forecast.waits(procs, wall_s)))
    answer_with(as_json, document, lambda: queue_text.probability_text(document, asked))


@app.command(
    epilog=(
        "Example: `vgrads trajectory KTH-SP2.swf.gz --procs 16 --walltime 2h --start-by 6h "
        "--probability .9`"
    )
)
def trajectory(
    history: History,
    start_by: Annotated[
        str, typer.Option("--start-by", help="The job must be running then, e.g. 6h from now.")
    ],
    procs: Procs = 1,
    walltime: Walltime = "1h",
    probability: Annotated[
        str, typer.Option("--probability", "-p", help="How surely it must be running.")
    ] = "0.9",
    confidence: Confidence = "0.95",
    step: Annotated[
        str, typer.Option("--step", help="Distance of the instants that are tried.")
    ] = "30s",
    queue: Queue = None,
    at: At = None,
    method: Method = "state",
    arrays: ByArrays = True,
    user: User = None,
    format_name: Format = None,
    as_json: AsJson = False,
) -> None:
    """When must a job be submitted to run by a given time? (VARQ)"""
    from vgrads.api.queues import queries
    from vgrads.api.queues.answers import trajectory_json
    from vgrads.portal.cli.queues import text as queue_text
    from vgrads.vgrid.varq import Reservation

    settings = _settings(method, 0.95, confidence, arrays, user is not None)
    wanted = Reservation(
        procs=procs,
        walltime_s=parse_duration(walltime, "--walltime"),
        start_by_s=parse_duration(start_by, "--start-by"),
        probability=parse_probability(probability, "--probability"),
        confidence=settings.confidence,
    )
    asked = _ask((history, queue, format_name, user), at, settings, procs)
    path = queries.walk(asked, wanted, parse_duration(step, "--step"))
    answer_with(as_json, trajectory_json(path), lambda: queue_text.trajectory_text(path, wanted))


@app.command(epilog="Example: `vgrads backtest logs/*.swf.gz --by queue --report backtest.html`")
def backtest(
    histories: Annotated[
        list[Path], typer.Argument(metavar="HISTORY...", help="Queue logs.", show_default=False)
    ],
    by: Annotated[
        str,
        typer.Option(
            "--by", help="A predictor and a line per log or queue; or a line per cluster."
        ),
    ] = "log",
    probability: Annotated[
        str, typer.Option("--probability", "-p", help="The quantile that is bounded.")
    ] = "0.95",
    confidence: Confidence = "0.95",
    method: Method = "state",
    size: Annotated[
        str | None,
        typer.Option(
            "--size", help="Cluster by procs, time, product or backlog. Default: as the method."
        ),
    ] = None,
    arrays: ByArrays = True,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE.html", help="Write a page with pictures."),
    ] = None,
    as_: Annotated[
        str,
        typer.Option(
            "--as",
            help=(
                "asked: as a question knows the job, without its user. known: with the user "
                "and what that one has in the queue."
            ),
        ),
    ] = "asked",
    format_name: Format = None,
    as_json: AsJson = False,
) -> None:
    """Would the bounds have held? Replays histories, looking at nothing before its time."""
    from vgrads.api.queues import backtests
    from vgrads.portal.cli.queues import text as queue_text
    from vgrads.portal.cli.terminal import progress_bar

    chance = parse_probability(probability, "--probability")
    if as_ not in ("asked", "known"):
        raise InputError(f"'{as_}' is neither asked nor known", where="--as")
    settings = replace(_settings(method, chance, confidence, arrays, as_ == "known"), size=size)
    replays = [
        backtests.Replay(path=path, by=by, settings=settings, format_name=format_name)
        for path in histories
    ]
    with progress_bar("backtest") as told:
        trials = [trial for found in backtests.backtest_all(replays, told) for trial in found]
    rows = backtests.backtest_rows(trials, by)
    if report:
        from vgrads.portal.charts.backtest import write_report

        write_report(report, trials)
    answer_with(
        as_json, {"rows": [row.as_json() for row in rows]}, lambda: queue_text.backtest_table(rows)
    )
