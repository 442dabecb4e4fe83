"""What commands do with a run that exists, or with whatever else an id names. Few imports: listing
runs must be fast."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from vgrads.kernel.errors import InputError
from vgrads.operations.runs.requests import (
    ArchiveRequest,
    CancelRunRequest,
    ChangeRequest,
    ExplainRequest,
    GanttRequest,
    LogsRequest,
    ResumeRequest,
    RetryRunRequest,
    StatusRequest,
    TopRequest,
)
from vgrads.portal.cli.options import answer_with, make_console
from vgrads.portal.cli.plans import family
from vgrads.portal.cli.plans.outputs import ChartOutput
from vgrads.portal.cli.requests import CommandOutput, NoOutput
from vgrads.portal.records.reading.opening import open_reader
from vgrads.portal.records.reading.run_rows import count_runs, run_rows

if TYPE_CHECKING:
    from vgrads.portal.cli.plans.running import RunChoices


def resume(request: ResumeRequest, output: ChartOutput) -> int:
    """``vgrads resume``."""
    run_id = family.run_of(
        request.run, "resume", lambda bag: family.resume_bag(bag, output.as_json)
    )
    from vgrads.portal.cli.plans import running

    how = _make_choices(output)
    return running.exit_code_of(running.resume_here(run_id, how, until=request.before))


def retry(request: RetryRunRequest, output: ChartOutput) -> int:
    """``vgrads retry``."""
    if request.failed and request.tasks:
        raise InputError("cannot be combined with names of tasks", where="failed")
    run_id = family.run_of(
        request.run, "retry", lambda bag: family.retry_bag(bag, request.tasks, output.as_json)
    )
    from vgrads.portal.cli.plans import retrying, running

    planned, set_id = retrying.plan_again(run_id, request.tasks)
    return running.exit_code_of(running.run_here(planned, _make_choices(output, set_id)))


def cancel(request: CancelRunRequest, output: CommandOutput) -> int:
    """``vgrads cancel``."""
    run_id = family.run_of(
        request.run, "cancel", lambda bag: family.cancel_bag(bag, output.as_json)
    )
    from vgrads.portal.cli.plans import running

    text = running.cancel_run(run_id, _make_choices(ChartOutput()))
    answer_with(output.as_json, {"run": run_id, "message": text}, lambda: text)
    return 0


def archive(request: ArchiveRequest, output: CommandOutput) -> int:
    """``vgrads archive``."""
    work = family.work_of(request.run, "archive")
    from vgrads.portal.records.archived import archive_work
    from vgrads.portal.records.store import Store

    with Store() as store:
        answer = archive_work(store, work, not request.undo)
    text = f"{answer['id']} is {'listed again' if request.undo else 'archived'}"
    answer_with(output.as_json, answer, lambda: text)
    return 0


def change(request: ChangeRequest, output: CommandOutput) -> int:
    """``vgrads change``."""
    from vgrads.portal.cli.plans import changing

    run_id = family.run_of(
        request.run, "change", lambda bag: family.change_bag(bag, request, output.as_json)
    )
    return changing.change_run(run_id, request, output.as_json)


def _make_choices(output: ChartOutput, set_id: str = "") -> RunChoices:
    from vgrads.portal.cli.plans.running import RunChoices

    return RunChoices(
        speed=None,
        seed=0,
        gantt=output.gantt,
        folder=None,
        as_json=output.as_json,
        set_id=set_id,
    )


def status(request: StatusRequest, output: CommandOutput) -> int:
    """``vgrads status``."""
    from vgrads.portal.cli.plans.status_text import print_run, print_runs

    run_id = request.run
    if run_id is not None:
        run_id = family.run_of(
            run_id,
            "status",
            lambda bag: family.status_of_bag(bag, output.as_json),
            lambda pool: family.status_of_pool(pool, output.as_json),
        )
    with open_reader() as reader:
        rows = run_rows(reader, run_id, request.limit)
        total = count_runs(reader)
        if run_id is not None:
            from vgrads.portal.cli.plans.run_text import details_of

            rows = [details_of(reader, rows[0])]
    show = (
        (lambda: print_runs(make_console(), rows, total))
        if run_id is None
        else (lambda: print_run(make_console(), rows[0]))
    )
    answer_with(output.as_json, {"runs": rows, "total": total}, show)
    return 0


def top(request: TopRequest, output: CommandOutput) -> int:
    """``vgrads top``."""
    from vgrads.portal.cli.plans.top import ActivityReader, activity_text, watch

    out, reader = make_console(), ActivityReader()
    if out.is_terminal and not out.is_dumb_terminal and not output.as_json:
        watch(out, request.interval_s, reader.read)
        return 0
    payload = reader.read()
    answer_with(output.as_json, payload, lambda: activity_text(payload))
    return 0


def logs(request: LogsRequest, output: CommandOutput) -> int:
    """``vgrads logs``."""
    from vgrads.portal.cli.plans.logs_text import logs_of, logs_text

    run_id = family.run_of(
        request.run,
        "logs",
        lambda bag: family.logs_of_bag(bag, request.task, request.follow, output.as_json),
    )
    if not request.follow:
        answer = logs_of(run_id, request.task)
        answer_with(output.as_json, answer, lambda: logs_text(answer, request.task is not None))
        return 0
    if output.as_json:
        raise InputError(
            "prints the current state once; it cannot be combined with --follow", where="--json"
        )
    from vgrads.portal.cli.plans import log_follow

    for line in log_follow.follow(run_id, request.task):
        typer.echo(line)
    return 0


def explain(request: ExplainRequest, output: CommandOutput) -> int:
    """``vgrads explain``."""
    from vgrads.planner.explain import explain_text
    from vgrads.portal.cli.plans import planning

    plan = request.plan
    if not Path(plan).is_file():
        plan = family.plan_of(
            plan,
            lambda bag: family.explain_of_bag(bag, request.task, output.as_json),
            lambda pool: family.explain_of_pool(pool, output.as_json),
        )
    payload = planning.explain_task(plan, family.stated(request.task))
    answer_with(output.as_json, payload, lambda: explain_text(payload))
    return 0


def draw(request: GanttRequest, _: NoOutput) -> int:
    """``vgrads gantt``."""
    from vgrads.portal.cli.plans import planning

    planning.draw_run(request.run, request.out)
    make_console().print(f"wrote {request.out}", highlight=False)
    return 0
