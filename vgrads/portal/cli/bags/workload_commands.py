"""The commands ``vgrads bags fit``, ``generate``, ``simulate`` and ``policies``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from vgrads.portal.cli.bags.group import bags_app
from vgrads.portal.cli.options import AsJson, Seed, Wide, answer_with

LOAD, MODEL, DAYS = 0.6, "average", 1.0

History = Annotated[
    Path,
    typer.Argument(
        metavar="HISTORY",
        help=(
            "A queue log (SWF, GWF, sacct -P, PBS or Grid Engine accounting; plain, .gz or "
            ".xz), or SITE or SITE/QUEUE of the database."
        ),
        show_default=False,
    ),
]
Load = typer.Option(
    "--load", help="Load as a share of the system's capacity, above 0 and at most 1 (0.6)."
)
ModelName = typer.Option(
    "--model",
    help=(
        "Workload model: a row of the model table, such as `average` (default) or `DAS-2`, "
        "or FILE.json written by `vgrads bags fit --json`."
    ),
)
Days = typer.Option("--days", help="Period over which bags arrive (1).")
Gap = Annotated[
    str | None,
    typer.Option(
        "--gap",
        help=(
            "Longest pause between two submissions of one bag. Default: taken from the log if "
            "it records bags, else 120s."
        ),
        show_default=False,
    ),
]
Played = Annotated[
    Path | None,
    typer.Argument(
        metavar="HISTORY",
        help=(
            "A queue log, or SITE/QUEUE of the database: simulate its bags under every policy. "
            "Default: bags drawn from a model."
        ),
        show_default=False,
    ),
]
Clusters = Annotated[
    str | None,
    typer.Option(
        "--clusters",
        metavar="PROCSxSPEED,…",
        help=(
            "The system, e.g. 128x1.0,64x1.5; required for a history. Default for generated "
            "workloads: the twenty clusters of the paper."
        ),
        show_default=False,
    ),
]


def _parse_gap_s(gap: str | None) -> float | None:
    from vgrads.kernel.units import parse_duration

    return None if gap is None else parse_duration(gap, "--gap")


@bags_app.command("fit", epilog="Example: `vgrads bags fit LOG.swf.gz --report bags.html`")
def fit(
    history: History,
    gap: Gap = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE.html", help="Write diagrams of the distributions."),
    ] = None,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Find the bags of a history and fit the model's distributions to them."""
    from vgrads.kernel.extras import require
    from vgrads.portal.cli.terminal import busy, console, print_warnings
    from vgrads.portal.records.sites import resolve_history
    from vgrads.workloads.answers import fit_history, fits_json
    from vgrads.workloads.tables import fits_table

    if report:
        require("plots", "a report with diagrams", str(report))

    source = resolve_history(history)
    with busy(console(stderr=True), "fitting distributions"):
        fitted = fit_history(*source, _parse_gap_s(gap))
    print_warnings(console(stderr=True), fitted.warnings)
    if report:
        from vgrads.portal.charts.fitted_bags import write_report

        write_report(report, fitted)
    answer_with(as_json, fits_json(fitted), lambda: fits_table(fitted))


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

    from vgrads.kernel.units import format_count
    from vgrads.portal.cli.terminal import busy, console
    from vgrads.workloads import answers as bags

    with busy(console(stderr=True), "drawing bags"):
        payload = bags.generate(out, model, (load, procs, days), seed)
    counts = f"{format_count(payload['bags'], 'bag')}, {format_count(payload['tasks'], 'task')}"
    answer_with(as_json, payload, lambda: Text(f"wrote {out}: {counts}"))


@bags_app.command(
    "simulate",
    epilog=(
        "Examples: `vgrads bags simulate LOG.swf.gz --clusters 128x1.0,64x1.5` · `vgrads bags "
        "simulate --load .8 --selection S-BoT --scheduling FPLT`"
    ),
)
def simulate(
    history: Played = None,
    clusters: Clusters = None,
    selection: Annotated[
        str | None,
        typer.Option(
            "--selection", help="Task selection policy. Default: all for a history, else S-T."
        ),
    ] = None,
    scheduling: Annotated[
        str | None,
        typer.Option(
            "--scheduling", help="Task scheduling policy. Default: all for a history, else FPLT."
        ),
    ] = None,
    architecture: Annotated[
        str, typer.Option("--architecture", help="Architecture: csp, sep-c or fcondor.")
    ] = "csp",
    gap: Gap = None,
    load: Annotated[float | None, Load] = None,
    model: Annotated[str | None, ModelName] = None,
    days: Annotated[float | None, Days] = None,
    seed: Seed = 0,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Simulate the bags of a history under every policy, or a drawn workload under one."""
    from vgrads.portal.cli.terminal import busy, console
    from vgrads.portal.records.sites import resolve_history
    from vgrads.workloads import answers as bags
    from vgrads.workloads.system import parse_clusters
    from vgrads.workloads.tables import figures_table, policies_compared

    system = None if clusters is None else parse_clusters(clusters, "--clusters")
    if history is None:
        _refuse("applies only to the bags of a history", {"--gap": gap})
        names = (selection or "S-T", scheduling or "FPLT", architecture)
        target = (LOAD if load is None else load, DAYS if days is None else days)
        with busy(console(stderr=True), "simulating"):
            payload = bags.simulate_workload(names, model or MODEL, target, seed, system)
        answer_with(as_json, payload, lambda: figures_table(payload))
        return
    drawn = {"--load": load, "--model": model, "--days": days}
    _refuse("applies only to a generated workload; a history has its own", drawn)
    chosen = (selection, scheduling, architecture)
    source = resolve_history(history)
    with busy(console(stderr=True), "simulating every policy"):
        payload = bags.play_history(source, chosen, system, _parse_gap_s(gap), seed)
    answer_with(as_json, payload, lambda: policies_compared(payload))


def _refuse(why: str, options: Mapping[str, object]) -> None:
    """Raise InputError for the first option that has no meaning here."""
    from vgrads.kernel.errors import InputError

    for name, value in options.items():
        if value is not None:
            raise InputError(why, where=name)


@bags_app.command("policies", epilog="Example: `vgrads bags policies`")
def policies(_wide: Wide = False, as_json: AsJson = False) -> None:
    """List all selection and scheduling policies, and the information that they use."""
    from vgrads.workloads import answers as bags
    from vgrads.workloads.tables import policies_table

    payload = bags.policies()
    answer_with(as_json, payload, lambda: policies_table(payload))
