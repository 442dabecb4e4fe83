"""Commands that plan, run and show sets; commands for queues, sites and bags are in other
modules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import parse_speed
from vgrads.portal.cli.options import (
    AsJson,
    AsStated,
    At,
    ConfigValue,
    Deadline,
    Effort,
    Gantt,
    Inputs,
    Keep,
    OldRule,
    Policy,
    ProbabilityOption,
    Rerun,
    Rule,
    RunId,
    Seed,
    SetFile,
    Sites,
    Target,
    Webhook,
    Wide,
    answer_with,
    app,
    chart_file,
    instant_of,
    make_console,
)

Optimise = Annotated[
    bool,
    typer.Option("--optimise", help="Find the optimal plan by integer programming (small sets)."),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Exit with code 3 also if the promise is below the requested probability."
    ),
]
Calibrate = Annotated[
    bool,
    typer.Option(
        "--calibrate",
        help=(
            "Also list the tasks to run first on small inputs, with the probability that each "
            "would add to the promise."
        ),
    ),
]
RunPilots = Annotated[
    bool,
    typer.Option(
        "--run-pilots",
        help=(
            "Run a task of each such kind as it is, at most a twentieth of the work, learn its run "
            "time, and plan again."
        ),
    ),
]


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
    target: Target = None,
    config: ConfigValue = None,
    sites: Sites = None,
    at: At = None,
    seed: Seed = 0,
    as_stated: AsStated = False,
    policy: Policy = "vgrads",
    probability: ProbabilityOption = None,
    promise_model: Rule = "joint",
    reckon: OldRule = None,
    effort: Effort = None,
    rerun: Rerun = False,
    optimise: Optimise = False,
    gantt: Gantt = None,
    strict: Strict = False,
    calibrate: Calibrate = False,
    run_pilots: RunPilots = False,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Plan a workflow set: slots, placement of tasks, and the probability of the promise."""
    from vgrads.portal.cli.plans import planning
    from vgrads.portal.cli.plans.plan_now import PlanChoices, plan_now

    chosen = "optimal" if optimise else policy
    how = planning.HowToPlan(
        seed=seed,
        learned=not as_stated,
        rerun=rerun,
        probability=planning.level_of(probability),
        options=planning.options_of(chosen, reckon or promise_model, effort),
    )
    choices = PlanChoices(
        set_file=set_file,
        sites=sites,
        at=instant_of(at),
        overrides=planning.overrides_of(deadline, inputs, target, config, sites),
        how=how,
        gantt=gantt,
        strict=strict,
        calibrate=calibrate,
        run_pilots=run_pilots,
        as_json=as_json,
    )
    raise typer.Exit(plan_now(choices))


@app.command(epilog="Example: `vgrads run data/local/local.yaml --gantt run.html`")
def run(
    set_file: SetFile,
    deadline: Deadline = None,
    inputs: Inputs = None,
    target: Target = None,
    config: ConfigValue = None,
    sites: Sites = None,
    at: At = None,
    seed: Seed = 0,
    as_stated: AsStated = False,
    policy: Policy = "vgrads",
    probability: ProbabilityOption = None,
    promise_model: Rule = "joint",
    reckon: OldRule = None,
    effort: Effort = None,
    rerun: Rerun = False,
    gantt: Gantt = None,
    speed: Annotated[
        str,
        typer.Option("--speed", help="Virtual seconds per second at simulated sites, or 'max'."),
    ] = "max",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder for the results of real tasks. Default: stored with the run.",
        ),
    ] = None,
    replan: Annotated[
        bool, typer.Option(help="Plan the rest again if too few workflows are left.")
    ] = True,
    keep: Keep = "all",
    webhook: Webhook = "",
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Plan a set, then run it to the end."""
    from vgrads.api.plans.refusals import infeasible
    from vgrads.portal.cli.plans import planning, running

    if keep not in ("all", "results", "final"):
        raise InputError(f"unknown value '{keep}'; choose all, results or final", where="--keep")
    pace = parse_speed(speed, "--speed")
    planned = planning.plan_file(
        set_file,
        sites,
        instant_of(at),
        planning.HowToPlan(
            seed=seed,
            learned=not as_stated,
            rerun=rerun,
            probability=planning.level_of(probability),
            options=planning.options_of(policy, reckon or promise_model, effort),
        ),
        planning.overrides_of(deadline, inputs, target, config, sites),
    )
    if not planned.plan.feasible:
        raise infeasible(planned.plan, str(set_file))
    how = running.RunChoices(
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
        str, typer.Option("--speed", help="Virtual seconds per second, or 'max'.")
    ] = "max",
    gantt: Annotated[
        Path,
        typer.Option(
            "--gantt",
            metavar="FILE.html",
            help="Files for the charts: the name of the set is added.",
            callback=chart_file,
        ),
    ] = Path("gantt.html"),
) -> None:
    """Demonstrate vgrads on simulated sites: storm forecasts with a promised deadline, kept or
    not."""
    from vgrads.api.config import embedded_data
    from vgrads.portal.cli.plans import planning, running

    pace = parse_speed(speed, "--speed")
    for name in ("lead.yaml", "lead-storm.yaml"):
        make_console().rule(name)
        how = planning.HowToPlan(seed=seed, learned=False)
        planned = planning.plan_file(
            embedded_data() / name, embedded_data() / "sites.toml", None, how
        )
        chart = gantt.with_stem(f"{gantt.stem}-{planned.workflow_set.name}")
        running.run_here(
            planned,
            running.RunChoices(speed=pace, seed=seed, gantt=chart, folder=None, as_json=False),
        )


@app.command(
    epilog="Example: `vgrads plan lead.yaml --json > p.json; vgrads explain p.json lead-1/wrf`"
)
def explain(
    plan: Annotated[
        str,
        typer.Argument(
            metavar="PLAN",
            help="Output of `vgrads plan --json`, or the id or name of a set, run, bag or pool.",
            show_default=False,
        ),
    ],
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK]",
            help="WORKFLOW/TASK, or TASK; of a bag its number, or nothing; of a pool nothing.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain the placement of a task, or the decisions about a pool's or a bag's nodes, with the
    numbers that decided."""
    from vgrads.planner.explain import explain_text
    from vgrads.portal.cli.plans import family, planning

    if not Path(plan).is_file():
        plan = family.plan_of(
            plan,
            lambda bag: family.explain_of_bag(bag, task, as_json),
            lambda pool: family.explain_of_pool(pool, as_json),
        )
    payload = planning.explain_task(plan, family.stated(task))
    answer_with(as_json, payload, lambda: explain_text(payload))


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
            callback=chart_file,
        ),
    ] = Path("gantt.html"),
) -> None:
    """Draw a run stored in the database."""
    from vgrads.portal.cli.plans import planning

    planning.draw_run(run_id, out)
    make_console().print(f"wrote {out}", highlight=False)


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
            metavar="NAME", help="Name of the study; its own options follow.", show_default=False
        ),
    ] = "--help",
) -> None:
    """Run a study, a replay or an experiment: bags, quality, replication, varq."""
    from vgrads.portal.cli.plans import planning

    planning.run_study(name, context.args)
