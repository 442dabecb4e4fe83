"""Commands about bags of tasks: fit a history, draw a workload, play it under a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from portal.cli.options import AsJson, History, Seed, answer_with, app

bags_app = typer.Typer(
    name="bags", help="Bags of tasks: the workload model, its fitter, scheduling policies.", no_args_is_help=True
)  # fmt: skip
app.add_typer(bags_app)

Load = Annotated[
    float, typer.Option("--load", help="Share of the system's work, above 0 and at most 1.")
]
ModelName = Annotated[
    str, typer.Option("--model", help="A row of the model's table, as `average` or `DAS-2`.")
]
Days = Annotated[float, typer.Option("--days", help="Time over which bags come.")]


@bags_app.command("fit", epilog="Example: `vgrads bags fit LOG.swf.gz --report bags.html`")
def fit(
    history: History,
    gap: Annotated[
        str, typer.Option("--gap", help="Longest pause between two submissions of one bag.")
    ] = "120s",
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE.html", help="Distributions as pictures."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the bags of a history and fit the model's distributions to them."""
    from desk.bags import fit_history, fits_json
    from kernel.units import parse_duration
    from portal.cli.bag_tables import fits_table
    from portal.records.sites import resolve_history

    file, queue = resolve_history(history)
    found = fit_history(file, queue, parse_duration(gap, "--gap"))
    if report:
        from portal.charts.bags import write_report

        write_report(report, found)
    answer_with(as_json, fits_json(found), lambda: fits_table(found))


@bags_app.command("generate", epilog="Example: `vgrads bags generate --load .6 -o bags.swf`")
def generate(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="FILE.swf or FILE.gwf.")],
    load: Load = 0.6,
    model: ModelName = "average",
    procs: Annotated[
        int, typer.Option("--procs", "-n", min=1, help="Reference processors of the system.")
    ] = 3500,
    days: Days = 1.0,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Draw a workload of bags that keeps a system busy to a given share, and write it as a log."""
    from desk import bags

    told = bags.generate(out, model, (load, procs, days), seed)
    answer_with(as_json, told, lambda: f"wrote {out}: {told['bags']} bags, {told['tasks']} tasks")


@bags_app.command(
    "simulate",
    epilog="Example: `vgrads bags simulate --load .8 --selection S-BoT --scheduling FPLT`",
)
def play(
    selection: Annotated[str, typer.Option("--selection", help="Which tasks next.")] = "S-T",
    scheduling: Annotated[str, typer.Option("--scheduling", help="Which task where.")] = "FPLT",
    architecture: Annotated[
        str, typer.Option("--architecture", help="csp, sep-c or fcondor.")
    ] = "csp",
    load: Load = 0.6,
    model: ModelName = "average",
    days: Days = 1.0,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Play a drawn workload on the twenty clusters of the paper under one policy."""
    from desk import bags
    from portal.cli.bag_tables import figures_table

    told = bags.play((selection, scheduling, architecture), model, (load, days), seed)
    answer_with(as_json, told, lambda: figures_table(told))


@bags_app.command("policies", epilog="Example: `vgrads bags policies`")
def policies(as_json: AsJson = False) -> None:
    """All selection and scheduling policies, and what they know."""
    from desk import bags
    from portal.cli.bag_tables import policies_table

    told = bags.policies()
    answer_with(as_json, told, lambda: policies_table(told))
