"""The command line. Commands import late: ``vgrads --help`` must answer at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from kernel.errors import InputError, VgradsError
from kernel.units import parse_duration, parse_instant, parse_probability

app = typer.Typer(
    name="vgrads",
    help="Promise a deadline on machines you do not own.",
    epilog="Start with 'vgrads demo', or 'vgrads COMMAND --help' for examples.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="Instant of the history at which is asked: RFC 3339, or seconds of the log's clock. Nothing later is looked at. Default: its end.",
    ),
]
History = Annotated[
    Path,
    typer.Argument(
        metavar="HISTORY", help="A queue log (SWF; plain, .gz or .xz).", show_default=False
    ),
]
Queue = Annotated[
    str | None,
    typer.Option("--queue", "-q", help="Queue of the log, by name or number. Default: all jobs."),
]
Procs = Annotated[int, typer.Option("--procs", "-n", min=1, help="Processors of the job.")]
Walltime = Annotated[
    str, typer.Option("--walltime", "-w", help="Requested time of the job, e.g. 2h.")
]
Confidence = Annotated[str, typer.Option("--confidence", help="Confidence of the statement.")]
Method = Annotated[str, typer.Option("--method", help="How to predict.")]
Format = Annotated[
    str | None, typer.Option("--format", help="Format of the history. Default: found out.")
]
SetFile = Annotated[
    Path, typer.Argument(metavar="SET", help="A workflow set (YAML or JSON).", show_default=False)
]
Sites = Annotated[
    Path | None,
    typer.Option(
        "--sites", help="Sites (TOML). Default: those that the set names, else the embedded ones."
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
Gantt = Annotated[
    Path | None,
    typer.Option("--gantt", metavar="FILE.html", help="Write the Gantt chart, a page of its own."),
]


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
    method: Method = "qbets",
    format_name: Format = None,
    as_json: AsJson = False,
) -> None:
    """How long will a job wait at most? (GETBOUND)"""
    from portal import queries
    from portal.schema import bound_json

    chance, sure = (
        parse_probability(probability, "--probability"),
        parse_probability(confidence, "--confidence"),
    )
    asked = queries.ask_queue(history, queue, _instant(at), method, format_name)
    answer = asked.forecast.bound(procs, parse_duration(walltime, "--walltime"), chance, sure)
    _answer(as_json, bound_json(answer, asked.since), lambda: queries.bound_text(answer, asked))


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
    method: Method = "qbets",
    format_name: Format = None,
    as_json: AsJson = False,
) -> None:
    """How surely does a job start within a time? (GETPROB)"""
    from portal import queries

    sure, within_s = (
        parse_probability(confidence, "--confidence"),
        parse_duration(within, "--within"),
    )
    asked = queries.ask_queue(history, queue, _instant(at), method, format_name)
    chance = float(
        asked.forecast.probability(procs, parse_duration(walltime, "--walltime"), within_s, sure)
    )
    answer = queries.probability_json(asked, chance, within_s, sure)
    _answer(as_json, answer, lambda: queries.probability_text(answer))


@app.command(
    epilog="Example: `vgrads trajectory KTH-SP2.swf.gz --procs 16 --walltime 2h --start-by 6h --probability .9`"
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
    method: Method = "qbets",
    format_name: Format = None,
    as_json: AsJson = False,
) -> None:
    """When must a job be submitted to run by a given time? (VARQ)"""
    from portal import queries
    from portal.schema import trajectory_json
    from vgrid.varq import Reservation
    from vgrid.varq import trajectory as walk

    wanted = Reservation(
        procs=procs, walltime_s=parse_duration(walltime, "--walltime"), start_by_s=parse_duration(start_by, "--start-by"),
        probability=parse_probability(probability, "--probability"), confidence=parse_probability(confidence, "--confidence"),
    )  # fmt: skip
    asked = queries.ask_queue(history, queue, _instant(at), method, format_name)
    path = walk(asked.forecast, wanted, parse_duration(step, "--step"))
    _answer(as_json, trajectory_json(path), lambda: queries.trajectory_text(path, wanted))


@app.command(epilog="Example: `vgrads backtest logs/*.swf.gz --by queue`")
def backtest(
    histories: Annotated[
        list[Path], typer.Argument(metavar="HISTORY...", help="Queue logs.", show_default=False)
    ],
    by: Annotated[str, typer.Option("--by", help="One line per log or per queue.")] = "log",
    probability: Annotated[
        str, typer.Option("--probability", "-p", help="The quantile that is bounded.")
    ] = "0.95",
    confidence: Confidence = "0.95",
    method: Method = "qbets",
    format_name: Format = None,
    as_json: AsJson = False,
) -> None:
    """Would the bounds have held? Replays histories, looking at nothing before its time."""
    from portal import queries

    chance, sure = (
        parse_probability(probability, "--probability"),
        parse_probability(confidence, "--confidence"),
    )
    rows = queries.backtest_all(histories, by, method, (chance, sure), format_name)
    _answer(
        as_json, {"rows": [row.as_json() for row in rows]}, lambda: queries.backtest_table(rows)
    )


@app.command(epilog="Example: `vgrads plan lead.yaml --sites sites.toml --gantt plan.html`")
def plan(
    set_file: SetFile,
    sites: Sites = None,
    at: At = None,
    seed: Seed = 0,
    gantt: Gantt = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit 3 also where the promise is less sure than asked."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Plan a workflow set: which slots, which tasks where, and how sure it is."""
    from portal import jobs
    from portal.progress import print_plan
    from portal.schema import plan_json

    planned = jobs.plan_file(set_file, sites, _instant(at), seed)
    if gantt:
        jobs.write_gantt(gantt, planned)
    _answer(as_json, plan_json(planned.plan), lambda: print_plan(_console(), planned.plan))
    if not planned.plan.feasible:
        jobs.refuse(planned, set_file)
    if strict and not planned.plan.kept_as_asked:
        raise typer.Exit(3)


@app.command(epilog="Example: `vgrads run data/local/local.yaml --gantt run.html`")
def run(
    set_file: SetFile,
    sites: Sites = None,
    at: At = None,
    seed: Seed = 0,
    gantt: Gantt = None,
    speed: Annotated[
        str, typer.Option("--speed", help="Virtual seconds a second at simulated sites, or 'max'.")
    ] = "max",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder for the results of real tasks. Default: kept with the run."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan a set, then execute it to the end."""
    from portal import jobs

    pace = jobs.parse_speed(speed)
    planned = jobs.plan_file(set_file, sites, _instant(at), seed)
    if not planned.plan.feasible:
        jobs.refuse(planned, set_file)
    kept = jobs.run_here(
        planned, jobs.HowToRun(speed=pace, seed=seed, gantt=gantt, folder=out, as_json=as_json)
    )
    raise typer.Exit(0 if kept else 1)


@app.command(epilog="Example: `vgrads demo --seed 7`")
def demo(
    seed: Seed = 0,
    speed: Annotated[
        str, typer.Option("--speed", help="Virtual seconds a second, or 'max'.")
    ] = "max",
    gantt: Annotated[
        Path, typer.Option("--gantt", metavar="FILE.html", help="Where the chart goes.")
    ] = Path("gantt.html"),
) -> None:
    """The main job on embedded sites: storm forecasts promised for a deadline, and kept or not."""
    from portal import jobs
    from portal.config import embedded_data

    pace = jobs.parse_speed(speed)
    for name in ("lead.yaml", "lead-storm.yaml"):
        _console().rule(name)
        planned = jobs.plan_file(embedded_data() / name, None, None, seed)
        jobs.run_here(
            planned, jobs.HowToRun(speed=pace, seed=seed, gantt=gantt, folder=None, as_json=False)
        )


@app.command(epilog="Example: `vgrads gantt run-0123456789 -o run.html`")
def gantt(
    run_id: Annotated[str, typer.Argument(metavar="RUN", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="FILE.html or FILE.svg.")
    ] = Path("gantt.html"),
) -> None:
    """Draw a run that is kept in the database."""
    from portal import jobs

    jobs.draw_run(run_id, out)
    _console().print(f"wrote {out}", highlight=False)


@app.command(epilog="Example: `vgrads status`")
def status(
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """How runs stand or ended."""
    from portal import jobs

    rows = jobs.run_summaries(run_id)
    _answer(as_json, {"runs": rows}, lambda: jobs.print_runs(_console(), rows))


@app.command(epilog="Example: `vgrads serve --port 8080`")
def serve(
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; loopback only, so far.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535)] = 8080,
    db: Annotated[
        str | None,
        typer.Option("--db", metavar="URL", help="Database. Default: an SQLite file of yours."),
    ] = None,
    sites: Sites = None,
) -> None:
    """REST and web pages."""
    import ipaddress

    import uvicorn

    from portal.config import embedded_data
    from portal.http import make_app
    from portal.tables import Store
    from vgrid.catalog import load_catalog

    if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
        raise InputError(
            f"'{host}' is not a loopback address; there is no access control yet", where="--host"
        )
    catalog = load_catalog(sites or embedded_data() / "sites.toml")
    uvicorn.run(make_app(Store(db), catalog), host=host, port=port, log_level="info")


def _console() -> Any:
    from portal.progress import console

    return console()


def _instant(at: str | None) -> Any:
    return None if at is None else parse_instant(at, "--at")


def _answer(as_json: bool, document: dict[str, Any], text: Callable[[], Any]) -> None:
    """The JSON document, or what a person reads."""
    if as_json:
        sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
        return
    shown = text()
    if shown is not None:
        _console().print(shown, highlight=False)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: errors of ours become one line and an exit status."""
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    try:
        return int(app(args=arguments, prog_name="vgrads", standalone_mode=False) or 0)
    except VgradsError as error:
        sys.stderr.write(f"vgrads: {' '.join(str(error).split())}\n")
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("vgrads: interrupted\n")
        return 130
    except Exception as error:
        code = _usage_error(error)
        if code is None:
            raise
        return code


def _usage_error(error: Exception) -> int | None:
    """Click's own complaints about options: shown as it would, exit 2."""
    show = getattr(error, "show", None)
    if show is None:
        return None
    show()
    return int(getattr(error, "exit_code", 2))
