"""Commands for runs that exist: resume, retry, cancel, status, logs."""

from __future__ import annotations

from typing import Annotated

import typer

from vgrads.kernel.errors import InputError
from vgrads.portal.cli.completion import complete_runs
from vgrads.portal.cli.options import (
    AsJson,
    Gantt,
    RunId,
    Wide,
    answer_with,
    app,
    make_console,
)


@app.command(epilog="Example: `vgrads resume run-0123456789`")
def resume(
    run_id: RunId,
    gantt: Gantt = None,
    until: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="EVENT",
            min=0,
            help="Use only the events of the journal before this one.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Resume a run or bag that was interrupted or whose process was killed; tasks that still run
    are found again."""
    from vgrads.portal.cli.plans import family, running

    run_id = family.run_of(run_id, "resume", lambda bag: family.resume_bag(bag, as_json))
    how = running.RunChoices(speed=None, seed=0, gantt=gantt, folder=None, as_json=as_json)
    raise typer.Exit(running.exit_code_of(running.resume_here(run_id, how, until=until)))


@app.command(
    epilog="Examples: `vgrads retry RUN` · `vgrads retry RUN storm-1/wrf` · `vgrads retry BAG 7`"
)
def retry(
    run_id: RunId,
    tasks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TASK]...", help="Run these again, done or not.", show_default=False
        ),
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Run what failed or was not run. The default.")
    ] = False,
    gantt: Gantt = None,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Run tasks of an ended run again, with those that depend on them, as a new run of the same set
    and sites; those of a bag in the same bag. What is done is not repeated."""
    from vgrads.portal.cli.plans import family, retrying, running

    if failed and tasks:
        raise InputError("cannot be combined with names of tasks", where="--failed")
    run_id = family.run_of(run_id, "retry", lambda bag: family.retry_bag(bag, tasks or (), as_json))
    planned, set_id = retrying.plan_again(run_id, tasks or ())
    how = running.RunChoices(
        speed=None, seed=0, gantt=gantt, folder=None, as_json=as_json, set_id=set_id
    )
    raise typer.Exit(running.exit_code_of(running.run_here(planned, how)))


@app.command(epilog="Example: `vgrads cancel run-0123456789`")
def cancel(
    run_id: RunId,
    as_json: AsJson = False,
) -> None:
    """Cancel a run or bag and release everything that it holds."""
    from vgrads.portal.cli.plans import family, running

    run_id = family.run_of(run_id, "cancel", lambda bag: family.cancel_bag(bag, as_json))
    how = running.RunChoices(speed=None, seed=0, gantt=None, folder=None, as_json=False)
    text = running.cancel_run(run_id, how)
    answer_with(as_json, {"run": run_id, "message": text, "told": text}, lambda: text)


@app.command(epilog="Example: `vgrads status`")
def status(
    run_id: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", show_default=False, autocompletion=complete_runs),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Largest number of runs to list.")
    ] = 50,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show the status or the result of runs, or of one run, bag or pool."""
    from vgrads.portal.cli.plans import family
    from vgrads.portal.cli.plans.status_text import print_run, print_runs
    from vgrads.portal.records.reading.opening import open_reader
    from vgrads.portal.records.reading.run_rows import count_runs, run_rows

    if run_id is not None:
        run_id = family.run_of(
            run_id,
            "status",
            lambda bag: family.status_of_bag(bag, as_json),
            lambda pool: family.status_of_pool(pool, as_json),
        )
    with open_reader() as reader:
        rows = run_rows(reader, run_id, limit)
        total = count_runs(reader)
        if run_id is not None:
            from vgrads.portal.cli.plans.run_text import details_of

            rows = [details_of(reader, rows[0])]
    show = (
        (lambda: print_runs(make_console(), rows, total))
        if run_id is None
        else (lambda: print_run(make_console(), rows[0]))
    )
    answer_with(as_json, {"runs": rows, "total": total}, show)


@app.command(epilog="Examples: `vgrads top` · `vgrads top --interval 10s`")
def top(
    interval: Annotated[
        str, typer.Option("--interval", help="Time between two readings, e.g. 10s.")
    ] = "2s",
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Watch active runs and bags: due time, current promise, progress. Ctrl-C ends it. Without a
    terminal the current state is printed once."""
    from vgrads.kernel.units import parse_duration
    from vgrads.portal.cli.plans.top import activity, activity_text, watch

    interval_s, out = parse_duration(interval, "--interval"), make_console()
    if out.is_terminal and not out.is_dumb_terminal and not as_json:
        watch(out, interval_s)
        return
    payload = activity()
    answer_with(as_json, payload, lambda: activity_text(payload))


@app.command(epilog="Example: `vgrads logs run-0123456789 wrf`; continuously: `vgrads logs RUN -f`")
def logs(
    run_id: RunId,
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK]",
            help="WORKFLOW/TASK, or TASK in every workflow; of a bag its number.",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Print the output as it is written, until the run ends."
        ),
    ] = False,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show every attempt at the tasks of a run or bag: state, exit code, seconds, slot; for one
    task also its output."""
    from vgrads.portal.cli.plans import family
    from vgrads.portal.cli.plans.logs_text import logs_of, logs_text

    run_id = family.run_of(
        run_id, "logs", lambda bag: family.logs_of_bag(bag, task, follow, as_json)
    )
    if follow:
        if as_json:
            raise InputError(
                "prints the current state once; it cannot be combined with --follow", where="--json"
            )
        from vgrads.portal.cli.plans import log_follow

        for line in log_follow.follow(run_id, task):
            typer.echo(line)
        return
    answer = logs_of(run_id, task)
    answer_with(as_json, answer, lambda: logs_text(answer, task is not None))
