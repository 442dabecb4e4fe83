"""Commands that plan, run and show sets; commands for queues, sites and bags are in other
modules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vgrads.kernel.units import parse_speed
from vgrads.portal.cli.options import (
    Seed,
    app,
    chart_file,
    make_console,
)


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
    from vgrads.operations.plans.requests import PlanRequest
    from vgrads.portal.cli.plans import planning, running

    pace = parse_speed(speed, "--speed")
    make_console().print(describe_compilation(), highlight=False, markup=False)
    for name in ("lead.yaml", "lead-storm.yaml"):
        make_console().rule(name)
        request = PlanRequest(
            set_file=embedded_data() / name,
            sites=embedded_data() / "sites.toml",
            seed=seed,
            as_stated=True,
        )
        planned = planning.plan_file(request)
        chart = gantt.with_stem(f"{gantt.stem}-{planned.workflow_set.name}")
        running.run_here(
            planned,
            running.RunChoices(speed=pace, seed=seed, gantt=chart, folder=None, as_json=False),
        )


def describe_compilation() -> str:
    """Return whether a demonstration compiles functions first, which is nearly all of its time: a
    stranger otherwise waits without a reason."""
    from vgrads.planner.promise.executions import simulate_all
    from vgrads.planner.search.orders import list_schedule
    from vgrads.qbets.state.queue_features import replay_events

    if simulate_all.stored and list_schedule.stored and replay_events.stored:
        return "Nothing is compiled: an earlier command on this machine has done it."
    return (
        "Compiled first, once on this machine: the replay of queues, the search for plans and the "
        "simulation of promises. This takes about a minute of a processor."
    )


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
