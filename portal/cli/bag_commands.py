"""Commands about bags of tasks: fit a history, draw a workload, play it under a policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from portal.cli.options import AsJson, History, Seed, answer_with, app

bags_app = typer.Typer(
    name="bags", help="Bags of tasks: run them, and study how they are scheduled.", no_args_is_help=True
)  # fmt: skip
app.add_typer(bags_app)

LOAD, MODEL, DAYS = 0.6, "average", 1.0
Load = typer.Option("--load", help="Share of the system's work, above 0 and at most 1 (0.6).")
ModelName = typer.Option(
    "--model",
    help="A row of the model's table, as `average` (default) or `DAS-2`, or what `vgrads bags fit --json` wrote, as FILE.json.",
)
Days = typer.Option("--days", help="Time over which bags come (1).")
Gap = Annotated[
    str | None,
    typer.Option(
        "--gap",
        help="Longest pause between two submissions of one bag. Default: as the log tells of its bags, else 120s.",
        show_default=False,
    ),
]
Played = Annotated[
    Path | None,
    typer.Argument(
        metavar="HISTORY",
        help="A queue log, or SITE/QUEUE of the database: its bags under every policy. Without: bags are drawn from a model.",
        show_default=False,
    ),
]
Clusters = Annotated[
    str | None,
    typer.Option(
        "--clusters",
        metavar="PROCSxSPEED,…",
        help="The system, as 128x1.0,64x1.5: needed for a history. Default for drawn workloads: the paper's twenty clusters.",
        show_default=False,
    ),
]


def _gap_s(gap: str | None) -> float | None:
    from kernel.units import parse_duration

    return None if gap is None else parse_duration(gap, "--gap")


@bags_app.command("fit", epilog="Example: `vgrads bags fit LOG.swf.gz --report bags.html`")
def fit(
    history: History,
    gap: Gap = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE.html", help="Distributions as pictures."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the bags of a history and fit the model's distributions to them."""
    from desk.bags import fit_history, fits_json
    from portal.cli.bag_tables import fits_table
    from portal.cli.terminal import console, print_warnings
    from portal.records.sites import resolve_history

    found = fit_history(*resolve_history(history), _gap_s(gap))
    print_warnings(console(stderr=True), found.warnings)
    if report:
        from portal.charts.bags import write_report

        write_report(report, found)
    answer_with(as_json, fits_json(found), lambda: fits_table(found))


@bags_app.command("generate", epilog="Example: `vgrads bags generate --load .6 -o bags.swf`")
def generate(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="FILE.swf or FILE.gwf.")],
    load: Annotated[float, Load] = LOAD,
    model: Annotated[str, ModelName] = MODEL,
    procs: Annotated[
        int, typer.Option("--procs", "-n", min=1, help="Reference processors of the system.")
    ] = 3500,
    days: Annotated[float, Days] = DAYS,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Draw a workload of bags that keeps a system busy to a given share, and write it as a log."""
    from rich.text import Text

    from desk import bags

    told = bags.generate(out, model, (load, procs, days), seed)
    line = f"wrote {out}: {told['bags']} bags, {told['tasks']} tasks"
    answer_with(as_json, told, lambda: Text(line))


@bags_app.command(
    "simulate",
    epilog="Examples: `vgrads bags simulate LOG.swf.gz --clusters 128x1.0,64x1.5` · `vgrads bags simulate --load .8 --selection S-BoT --scheduling FPLT`",
)
def play(
    history: Played = None,
    clusters: Clusters = None,
    selection: Annotated[
        str | None,
        typer.Option("--selection", help="Which tasks next (of a history: all; else S-T)."),
    ] = None,
    scheduling: Annotated[
        str | None,
        typer.Option("--scheduling", help="Which task where (of a history: all; else FPLT)."),
    ] = None,
    architecture: Annotated[
        str, typer.Option("--architecture", help="csp, sep-c or fcondor.")
    ] = "csp",
    gap: Gap = None,
    load: Annotated[float | None, Load] = None,
    model: Annotated[str | None, ModelName] = None,
    days: Annotated[float | None, Days] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Play the bags of a history under every policy, or a drawn workload under one."""
    from bags.system import parse_clusters
    from desk import bags
    from portal.cli.bag_tables import figures_table, policies_compared
    from portal.records.sites import resolve_history

    system = None if clusters is None else parse_clusters(clusters, "--clusters")
    if history is None:
        _refuse("is about the bags of a history", {"--gap": gap})
        names = (selection or "S-T", scheduling or "FPLT", architecture)
        target = (LOAD if load is None else load, DAYS if days is None else days)
        told = bags.play(names, model or MODEL, target, seed, system)
        answer_with(as_json, told, lambda: figures_table(told))
        return
    drawn = {"--load": load, "--model": model, "--days": days}
    _refuse("is about a drawn workload; a history has its own", drawn)
    chosen = (selection, scheduling, architecture)
    told = bags.play_history(resolve_history(history), chosen, system, _gap_s(gap), seed)
    answer_with(as_json, told, lambda: policies_compared(told))


def _refuse(why: str, options: Mapping[str, object]) -> None:
    """InputError for the first option that was given and means nothing here."""
    from kernel.errors import InputError

    for name, value in options.items():
        if value is not None:
            raise InputError(why, where=name)


@bags_app.command("policies", epilog="Example: `vgrads bags policies`")
def policies(as_json: AsJson = False) -> None:
    """All selection and scheduling policies, and what they know."""
    from desk import bags
    from portal.cli.bag_tables import policies_table

    told = bags.policies()
    answer_with(as_json, told, lambda: policies_table(told))
