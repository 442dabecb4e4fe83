"""Shared parts of commands: the application, options, output of results.

Commands import late: ``vgrads --help`` must answer at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from vgrads.kernel.units import parse_instant
from vgrads.portal.cli.completion import (
    complete_policies,
    complete_runs,
    complete_sets,
    complete_sites,
)
from vgrads.portal.cli.groups import GroupedHelp
from vgrads.portal.cli.wide import set_wide

app = typer.Typer(
    name="vgrads",
    cls=GroupedHelp,
    help="Promise a deadline on machines you do not own.",
    epilog=(
        "Start with 'vgrads demo', or 'vgrads COMMAND --help' for examples. Studies of the papers: "
        "'vgrads study'."
    ),
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(show: bool) -> None:
    if show:
        from importlib.metadata import version

        typer.echo(f"vgrads {version('vgrads')}")
        raise typer.Exit


@app.callback()
def vgrads(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Promise a deadline on machines you do not own."""


AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document to stdout and nothing else.")
]
Wide = Annotated[
    bool,
    typer.Option(
        "--wide",
        callback=set_wide,
        help="Show all columns of tables, however long the lines become.",
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help=(
            "Time of the query in the history: RFC 3339, or seconds of the log's clock. Later "
            "records are ignored. Default: its end."
        ),
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE.toml",
        help="Settings file of the service. Default: the file that VGRADS_CONFIG names, if any.",
        show_default=False,
    ),
]
Service = Annotated[
    str | None,
    typer.Option(
        "--service",
        metavar="URL",
        help=(
            "Service through which pools and managers find each other; it is accessed with "
            "VGRADS_TOKEN. Default: this machine's database."
        ),
        show_default=False,
    ),
]
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
Live = Annotated[
    bool,
    typer.Option(
        "--live/--no-live",
        help=(
            "Use the queue as its site lists it now (SITE/QUEUE of a real site), or the history "
            "alone."
        ),
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
Confidence = Annotated[str, typer.Option("--confidence", help="Confidence level of the bound.")]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        help=(
            "Prediction method: state (the current state of the queue, or QBETS where that has "
            "been better), qbets (past waits of similar jobs) or bmbp (all past waits)."
        ),
    ),
]
ByArrays = Annotated[
    bool,
    typer.Option("--arrays/--no-arrays", help="Count an array of equal jobs as one observation."),
]
User = Annotated[
    str | None,
    typer.Option(
        "--user",
        "-u",
        help=(
            "User of the job, as named in the log: the user's jobs in the queue and past waits "
            "are then taken into account."
        ),
    ),
]
Format = Annotated[
    str | None, typer.Option("--format", help="Format of the history. Default: detected.")
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="NAME,…",
        help="Names of the columns of a table that has no header, as of sacct.",
        show_default=False,
    ),
]
Zone = Annotated[
    str | None,
    typer.Option(
        "--zone",
        help="Time zone of local times in the history, e.g. Europe/Paris. Default: UTC.",
        show_default=False,
    ),
]
TakenAt = Annotated[
    str | None,
    typer.Option(
        "--taken-at",
        metavar="INSTANT",
        help="When the history was taken: its waiting jobs are the queue then. Default: at its "
        "newest event.",
        show_default=False,
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Use the rest of a file whose records are mostly unusable."),
]
SetFile = Annotated[
    Path,
    typer.Argument(
        metavar="SET",
        help="A workflow set (YAML or JSON), or with --deadline a workflow file.",
        show_default=False,
        autocompletion=complete_sets,
    ),
]
Deadline = Annotated[
    str | None,
    typer.Option(
        "--deadline",
        metavar="TIME",
        help="Deadline from now, e.g. 4h. Default: that of the set.",
        show_default=False,
    ),
]
Inputs = Annotated[
    Path | None,
    typer.Option(
        "--inputs",
        metavar="FILE",
        help=(
            "Inputs of a workflow file: CWL's input object, a Snakefile's configuration, "
            "the work folder of a Nextflow trace."
        ),
        show_default=False,
    ),
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="NAME",
        help="File or rule of a Snakefile to make instead of its first rule; may be repeated.",
        show_default=False,
    ),
]
ConfigValue = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="NAME=VALUE",
        help="Value of a Snakefile's configuration; may be repeated.",
        show_default=False,
    ),
]
Keep = Annotated[
    str,
    typer.Option(
        "--keep",
        help=(
            "Files of finished workflows to keep: all, results (no scratch), or final (no "
            "intermediate results)."
        ),
    ),
]
Webhook = Annotated[
    str,
    typer.Option(
        "--webhook",
        metavar="URL",
        help="URL to which events are posted, signed with VGRADS_WEBHOOK_SECRET.",
    ),
]
RunId = Annotated[
    str, typer.Argument(metavar="RUN", show_default=False, autocompletion=complete_runs)
]
SiteName = Annotated[str, typer.Argument(metavar="SITE", autocompletion=complete_sites)]
Sites = Annotated[
    Path | None,
    typer.Option(
        "--sites",
        help=(
            "Site description file (TOML); 'here' is this machine. Default: the sites that the set "
            "names, else those of the database, else the embedded ones."
        ),
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Random seed.")]
AsStated = Annotated[
    bool,
    typer.Option(
        "--as-stated",
        help=(
            "Use the boot times and rates of the site description, not those observed in earlier "
            "runs."
        ),
    ),
]
Policy = Annotated[
    str,
    typer.Option(
        "--policy",
        help="Planning policy: vgrads, no-replication, heft, or optimal (small sets).",
        autocompletion=complete_policies,
    ),
]
Rule = Annotated[
    str,
    typer.Option(
        "--promise-model",
        help="Model of the promise: joint, or the paper's rule (paper).",
    ),
]
OldRule = Annotated[str | None, typer.Option("--reckon", hidden=True)]
"""The name of ``--promise-model`` in 0.2."""
Effort = Annotated[
    float | None,
    typer.Option(
        "--effort",
        metavar="N",
        min=0.0,
        max=1000.0,
        help="Work of planning, from the offers to sufficient changes: 4 is four times the usual; "
        "0: only the first plan. Default: VGRADS_EFFORT, otherwise 1.",
    ),
]
Rerun = Annotated[
    bool,
    typer.Option(
        "--rerun",
        help=(
            "Run all tasks again. Default: skip tasks whose command, inputs and environment are "
            "unchanged and whose outputs exist."
        ),
    ),
]
GoalDeadline = Annotated[
    str | None,
    typer.Option(
        "--deadline",
        help=(
            "Time from now, e.g. 4h, or an instant with its zone, by which all is to be done: "
            "nodes are planned for it (docs/deadlines.md)."
        ),
        show_default=False,
    ),
]
GoalProbability = Annotated[
    float | None,
    typer.Option(
        "--probability",
        "-p",
        min=0.01,
        max=0.9999,
        help="With --deadline: with which it is to be kept. Default: 0.95.",
        show_default=False,
    ),
]
GoalBudget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        min=0.0,
        help="With --deadline: the most that the nodes may cost, in dollars.",
        show_default=False,
    ),
]
ProbabilityOption = Annotated[
    str | None,
    typer.Option(
        "--probability",
        "-p",
        metavar="P",
        help="Requested probability of the promise, e.g. 0.95. Default: that of the set, else 0.9.",
    ),
]


def chart_file(path: Path | None) -> Path | None:
    """Refuse a chart as PNG or PDF that cannot be drawn, before any work for it."""
    if path is None:
        return None
    from vgrads.portal.charts.exports import refuse_without_plots

    return refuse_without_plots(path)


def diagram_file(path: Path | None) -> Path | None:
    """Refuse a diagram that cannot be drawn, before any work for it."""
    from vgrads.kernel.extras import require

    if path is not None:
        require("plots", "a diagram", str(path))
    return path


Gantt = Annotated[
    Path | None,
    typer.Option(
        "--gantt",
        metavar="FILE.html",
        help="Write the Gantt chart as a separate page.",
        callback=chart_file,
    ),
]


def make_console() -> Any:
    from vgrads.portal.cli.terminal import console

    return console()


def instant_of(at: str | None) -> Any:
    return None if at is None else parse_instant(at, "--at")


def answer_with(as_json: bool, document: dict[str, Any], text: Callable[[], Any]) -> None:
    """Print the JSON document, or the text: a table, a sentence, or a list of these."""
    if as_json:
        sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
        return
    shown = text()
    for part in shown if isinstance(shown, list) else [shown]:
        if part is not None:
            make_console().print(part, highlight=False)
