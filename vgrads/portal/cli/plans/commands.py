"""Commands that plan, run and look; questions to queues, sites and bags are beside this file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vgrads.kernel.errors import InputError
from vgrads.portal.cli.completion import complete_runs
from vgrads.portal.cli.options import (
    AsJson,
    AsStated,
    At,
    Deadline,
    Effort,
    Gantt,
    HowSure,
    Inputs,
    Keep,
    Policy,
    Rerun,
    Rule,
    RunId,
    Seed,
    SetFile,
    Sites,
    Webhook,
    answer_with,
    app,
    instant_of,
    make_console,
)


@app.command(
    epilog=(
        "Examples: `vgrads plan lead.yaml --sites sites.toml --gantt plan.html` · `vgrads plan "
        "Snakefile --deadline 4h`"
    )
)
def plan(
    set_file: SetFile,
    deadline: Deadline = None,
    inputs: Inputs = None,
    sites: Sites = None,
    at: At = None,
    seed: Seed = 0,
    as_stated: AsStated = False,
    policy: Policy = "vgrads",
    probability: HowSure = None,
    reckon: Rule = "joint",
    effort: Effort = 0.5,
    rerun: Rerun = False,
    optimise: Annotated[
        bool, typer.Option("--optimise", help="Small sets: the best plan, by an integer programme.")
    ] = False,
    gantt: Gantt = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit 3 also where the promise is less sure than asked."),
    ] = False,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help=(
                "Also say which tasks to try out first, on small inputs, so that the promise "
                "gets tighter."
            ),
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Plan a workflow set: which slots, which tasks where, and how sure it is."""
    from vgrads.api.plans.answers import plan_json
    from vgrads.api.plans.run_time_answers import pilots
    from vgrads.planner.make import Options
    from vgrads.portal.cli.plans import planning
    from vgrads.portal.cli.plans.plan_text import print_pilots, print_plan
    from vgrads.workflows.sets import Beside

    chosen = "optimal" if optimise else policy
    how = planning.HowToPlan(
        seed=seed,
        learned=not as_stated,
        rerun=rerun,
        asked=planning.level_of(probability),
        options=Options(policy=chosen, probability=reckon, effort_s=effort),
    )
    beside = Beside(deadline=deadline, inputs=inputs)
    planned = planning.plan_file(set_file, sites, instant_of(at), how, beside)
    if gantt:
        planning.write_gantt(gantt, planned)
    tried = pilots(planned.plan.run_times) if calibrate else None
    told = plan_json(planned.plan) | ({} if tried is None else {"pilots": tried})
    answer_with(as_json, told, lambda: print_plan(make_console(), planned.plan))
    if tried is not None and not as_json:
        print_pilots(make_console(), tried)
    if not planned.plan.feasible:
        planning.refuse(planned, set_file)
    if strict and not planned.plan.kept_as_asked:
        raise typer.Exit(3)


@app.command(epilog="Example: `vgrads run data/local/local.yaml --gantt run.html`")
def run(
    set_file: SetFile,
    deadline: Deadline = None,
    inputs: Inputs = None,
    sites: Sites = None,
    at: At = None,
    seed: Seed = 0,
    as_stated: AsStated = False,
    policy: Policy = "vgrads",
    probability: HowSure = None,
    reckon: Rule = "joint",
    effort: Effort = 0.5,
    rerun: Rerun = False,
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
    replan: Annotated[
        bool, typer.Option(help="Plan the rest anew where too few workflows are left.")
    ] = True,
    keep: Keep = "all",
    webhook: Webhook = "",
    as_json: AsJson = False,
) -> None:
    """Plan a set, then execute it to the end."""
    from vgrads.planner.make import Options
    from vgrads.portal.cli.plans import planning, running
    from vgrads.workflows.sets import Beside

    if keep not in ("all", "results", "final"):
        raise InputError(f"'{keep}' is not all, results or final", where="--keep")
    pace = planning.parse_speed(speed)
    planned = planning.plan_file(
        set_file,
        sites,
        instant_of(at),
        planning.HowToPlan(
            seed=seed,
            learned=not as_stated,
            rerun=rerun,
            asked=planning.level_of(probability),
            options=Options(policy=policy, probability=reckon, effort_s=effort),
        ),
        Beside(deadline=deadline, inputs=inputs),
    )
    if not planned.plan.feasible:
        planning.refuse(planned, set_file)
    how = running.HowToRun(
        speed=pace,
        seed=seed,
        gantt=gantt,
        folder=out,
        as_json=as_json,
        at=instant_of(at),
        webhook=webhook,
        keep=keep,
        replan=replan,
    )
    raise typer.Exit(running.exit_code_of(running.run_here(planned, how)))


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
    from vgrads.api.config import embedded_data
    from vgrads.portal.cli.plans import planning, running

    pace = planning.parse_speed(speed)
    for name in ("lead.yaml", "lead-storm.yaml"):
        make_console().rule(name)
        how = planning.HowToPlan(seed=seed, learned=False)
        planned = planning.plan_file(
            embedded_data() / name, embedded_data() / "sites.toml", None, how
        )
        running.run_here(
            planned,
            running.HowToRun(speed=pace, seed=seed, gantt=gantt, folder=None, as_json=False),
        )


@app.command(
    epilog="Example: `vgrads plan lead.yaml --json > p.json; vgrads explain p.json lead-1/wrf`"
)
def explain(
    plan: Annotated[
        str,
        typer.Argument(
            metavar="PLAN",
            help="What `vgrads plan --json` wrote, or the id of a set or run.",
            show_default=False,
        ),
    ],
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="WORKFLOW/TASK, or TASK.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Why does a task stand where it does? The numbers that decided."""
    from vgrads.planner.explain import explain_text
    from vgrads.portal.cli.plans import planning

    told = planning.explain_task(plan, task)
    answer_with(as_json, told, lambda: explain_text(told))


@app.command(epilog="Example: `vgrads gantt run-0123456789 -o run.html`")
def gantt(
    run_id: RunId,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="FILE.html, .svg, .png, .pdf, or .json for Perfetto.",
        ),
    ] = Path("gantt.html"),
) -> None:
    """Draw a run that is kept in the database."""
    from vgrads.portal.cli.plans import planning

    planning.draw_run(run_id, out)
    make_console().print(f"wrote {out}", highlight=False)


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
            help="Believe only what its journal says before this event.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a run that was interrupted or whose process was killed: what runs is found
    again."""
    from vgrads.portal.cli.plans import running

    how = running.HowToRun(speed=None, seed=0, gantt=gantt, folder=None, as_json=as_json)
    raise typer.Exit(running.exit_code_of(running.resume_here(run_id, how, until=until)))


@app.command(epilog="Example: `vgrads cancel run-0123456789`")
def cancel(
    run_id: RunId,
    as_json: AsJson = False,
) -> None:
    """Stop a run and give back everything that it holds."""
    from vgrads.portal.cli.plans import running

    how = running.HowToRun(speed=None, seed=0, gantt=None, folder=None, as_json=False)
    told = running.cancel_run(run_id, how)
    answer_with(as_json, {"run": run_id, "told": told}, lambda: told)


@app.command(epilog="Example: `vgrads status`")
def status(
    run_id: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", show_default=False, autocompletion=complete_runs),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How runs stand or ended."""
    from vgrads.portal.cli.plans.status_text import print_run, print_runs
    from vgrads.portal.records.standing import run_rows
    from vgrads.portal.records.store import Store

    with Store() as store:
        rows = run_rows(store, run_id)
        if run_id is not None:
            from vgrads.portal.cli.plans.run_text import details_of

            rows = [details_of(store, rows[0])]
    show = (
        (lambda: print_runs(make_console(), rows))
        if run_id is None
        else (lambda: print_run(make_console(), rows[0]))
    )
    answer_with(as_json, {"runs": rows}, show)


@app.command(
    epilog="Example: `vgrads logs run-0123456789 wrf`; as it happens: `vgrads logs RUN -f`"
)
def logs(
    run_id: RunId,
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK]", help="WORKFLOW/TASK, or TASK in every workflow.", show_default=False
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="What is printed, as it happens, until the run is over."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Every attempt at the tasks of a run: state, exit code, seconds, slot; of a task also what it
    printed."""
    from vgrads.portal.cli.plans import log_follow
    from vgrads.portal.cli.plans.run_text import logs_of, logs_text

    if follow:
        if as_json:
            raise InputError("is how it stands once; --follow goes on", where="--json")
        for line in log_follow.follow(run_id, task):
            typer.echo(line)
        return
    answer = logs_of(run_id, task)
    answer_with(as_json, answer, lambda: logs_text(answer, task is not None))


@app.command(
    epilog="Example: `vgrads study replication --trials 25 --json`; `vgrads study varq --help`",
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    },
)
def study(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Which study; its own options follow.", show_default=False
        ),
    ] = "--help",
) -> None:
    """Does it hold? Replays and experiments: bags, quality, replication, varq."""
    from vgrads.portal.cli.plans import planning

    planning.run_study(name, context.args)
