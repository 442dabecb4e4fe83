"""The commands ``vgrads bags fit``, ``generate``, ``simulate`` and ``policies``.

The command line finds :data:`commands` by the entry point group ``vgrads.commands``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from vgrads.api.shell import Shell

LOAD, MODEL, DAYS = 0.6, "average", 1.0
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]
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
Load = typer.Option("--load", help="Share of the system's work, above 0 and at most 1 (0.6).")
ModelName = typer.Option(
    "--model",
    help=(
        "A row of the model's table, as `average` (default) or `DAS-2`, or what `vgrads bags "
        "fit --json` wrote, as FILE.json."
    ),
)
Days = typer.Option("--days", help="Time over which bags come (1).")
Gap = Annotated[
    str | None,
    typer.Option(
        "--gap",
        help=(
            "Longest pause between two submissions of one bag. Default: as the log tells of "
            "its bags, else 120s."
        ),
        show_default=False,
    ),
]
Played = Annotated[
    Path | None,
    typer.Argument(
        metavar="HISTORY",
        help=(
            "A queue log, or SITE/QUEUE of the database: its bags under every policy. Without: "
            "bags are drawn from a model."
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
            "The system, as 128x1.0,64x1.5: needed for a history. Default for drawn workloads: "
            "the paper's twenty clusters."
        ),
        show_default=False,
    ),
]


commands = typer.Typer()
"""Registered by the entry point; whoever invokes them puts a :class:`Shell` into the context."""


def _shell(context: typer.Context) -> Shell:
    found: Shell = context.obj
    return found


def _gap_s(gap: str | None) -> float | None:
    from vgrads.kernel.units import parse_duration

    return None if gap is None else parse_duration(gap, "--gap")


@commands.command("fit", epilog="Example: `vgrads bags fit LOG.swf.gz --report bags.html`")
def fit(
    context: typer.Context,
    history: History,
    gap: Gap = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE.html", help="Distributions as pictures."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the bags of a history and fit the model's distributions to them."""
    from vgrads.research.bags.answers import fit_history, fits_json
    from vgrads.research.bags.tables import fits_table

    found = fit_history(*_shell(context).history(history), _gap_s(gap))
    _shell(context).warn(found.warnings)
    if report:
        from vgrads.research.bags.chart import write_report

        write_report(report, found)
    _shell(context).answer(as_json, fits_json(found), lambda: fits_table(found))


@commands.command("generate", epilog="Example: `vgrads bags generate --load .6 -o bags.swf`")
def generate(
    context: typer.Context,
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

    from vgrads.research.bags import answers as bags

    told = bags.generate(out, model, (load, procs, days), seed)
    line = f"wrote {out}: {told['bags']} bags, {told['tasks']} tasks"
    _shell(context).answer(as_json, told, lambda: Text(line))


@commands.command(
    "simulate",
    epilog=(
        "Examples: `vgrads bags simulate LOG.swf.gz --clusters 128x1.0,64x1.5` · `vgrads bags "
        "simulate --load .8 --selection S-BoT --scheduling FPLT`"
    ),
)
def play(
    context: typer.Context,
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
    from vgrads.research.bags import answers as bags
    from vgrads.research.bags.system import parse_clusters
    from vgrads.research.bags.tables import figures_table, policies_compared

    system = None if clusters is None else parse_clusters(clusters, "--clusters")
    if history is None:
        _refuse("is about the bags of a history", {"--gap": gap})
        names = (selection or "S-T", scheduling or "FPLT", architecture)
        target = (LOAD if load is None else load, DAYS if days is None else days)
        told = bags.play(names, model or MODEL, target, seed, system)
        _shell(context).answer(as_json, told, lambda: figures_table(told))
        return
    drawn = {"--load": load, "--model": model, "--days": days}
    _refuse("is about a drawn workload; a history has its own", drawn)
    chosen = (selection, scheduling, architecture)
    told = bags.play_history(_shell(context).history(history), chosen, system, _gap_s(gap), seed)
    _shell(context).answer(as_json, told, lambda: policies_compared(told))


def _refuse(why: str, options: Mapping[str, object]) -> None:
    """InputError for the first option that was given and means nothing here."""
    from vgrads.kernel.errors import InputError

    for name, value in options.items():
        if value is not None:
            raise InputError(why, where=name)


@commands.command("policies", epilog="Example: `vgrads bags policies`")
def policies(context: typer.Context, as_json: AsJson = False) -> None:
    """All selection and scheduling policies, and what they know."""
    from vgrads.research.bags import answers as bags
    from vgrads.research.bags.tables import policies_table

    told = bags.policies()
    _shell(context).answer(as_json, told, lambda: policies_table(told))
