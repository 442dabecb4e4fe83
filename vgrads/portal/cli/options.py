"""What commands share: the application, options, how an answer is given.

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

app = typer.Typer(
    name="vgrads",
    help="Promise a deadline on machines you do not own.",
    epilog="Start with 'vgrads demo', or 'vgrads COMMAND --help' for examples.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"vgrads {version('vgrads')}")
        raise typer.Exit


@app.callback()
def vgrads(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Say which version this is."
        ),
    ] = False,
) -> None:
    """Promise a deadline on machines you do not own."""


AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help=(
            "Instant of the history at which is asked: RFC 3339, or seconds of the log's "
            "clock. Nothing later is looked at. Default: its end."
        ),
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE.toml",
        help="Settings of the service. Default: the file that VGRADS_CONFIG names, if any.",
        show_default=False,
    ),
]
Service = Annotated[
    str | None,
    typer.Option(
        "--service",
        metavar="URL",
        help=(
            "A service where pools and managers find each other; VGRADS_TOKEN opens it. "
            "Default: this machine's database."
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
Queue = Annotated[
    str | None,
    typer.Option("--queue", "-q", help="Queue of the log, by name or number. Default: all jobs."),
]
Procs = Annotated[int, typer.Option("--procs", "-n", min=1, help="Processors of the job.")]
Walltime = Annotated[
    str, typer.Option("--walltime", "-w", help="Requested time of the job, e.g. 2h.")
]
Confidence = Annotated[str, typer.Option("--confidence", help="Confidence of the statement.")]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        help=(
            "How to predict: state (the queue as it stands, QBETS where that has done better), "
            "qbets (past waits of like jobs) or bmbp (all past waits)."
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
            "Whose job it is, as the log calls them: then what that one has in the queue and "
            "has seen counts."
        ),
    ),
]
Format = Annotated[
    str | None, typer.Option("--format", help="Format of the history. Default: found out.")
]
SetFile = Annotated[
    Path,
    typer.Argument(
        metavar="SET",
        help="A workflow set (YAML or JSON), or with --deadline a workflow's file.",
        show_default=False,
        autocompletion=complete_sets,
    ),
]
Deadline = Annotated[
    str | None,
    typer.Option(
        "--deadline",
        metavar="TIME",
        help="When it must be done, from now, e.g. 4h. Default: what the set says.",
        show_default=False,
    ),
]
Inputs = Annotated[
    Path | None,
    typer.Option(
        "--inputs",
        metavar="FILE",
        help=(
            "What a workflow's file works on: CWL's input object, a Snakefile's configuration, "
            "the work folder of a Nextflow trace."
        ),
        show_default=False,
    ),
]
Keep = Annotated[
    str,
    typer.Option(
        "--keep",
        help=(
            "Files of finished workflows: all, results (no scratch), or final (no intermediate "
            "results)."
        ),
    ),
]
Webhook = Annotated[
    str,
    typer.Option(
        "--webhook",
        metavar="URL",
        help="Post what happens there, signed with VGRADS_WEBHOOK_SECRET.",
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
            "Sites (TOML); 'here' is this machine. Default: those that the set names, else of "
            "the database, else embedded."
        ),
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]
AsStated = Annotated[
    bool,
    typer.Option(
        "--as-stated",
        help=(
            "Take boot times and rates as the sites file states them, not as earlier runs saw them."
        ),
    ),
]
Policy = Annotated[
    str,
    typer.Option(
        "--policy",
        help=(
            "How to plan: vgrads, cloud-first, cost-first, no-replication, heft, cloud-only, "
            "or optimal (small sets)."
        ),
        autocompletion=complete_policies,
    ),
]
Rule = Annotated[
    str,
    typer.Option(
        "--reckon", help="How to reckon the promise: joint, or by the paper's rule (paper)."
    ),
]
Effort = Annotated[
    float,
    typer.Option(
        "--effort",
        metavar="SECONDS",
        min=0.0,
        max=3600.0,
        help="How long, about, to look for a cheaper plan that is as sure as asked; 0: not at all.",
    ),
]
Rerun = Annotated[
    bool,
    typer.Option(
        "--rerun",
        help=(
            "Do everything again. Default: no task whose command, inputs and environment are "
            "as they were, and whose outputs stand."
        ),
    ),
]
HowSure = Annotated[
    str | None,
    typer.Option(
        "--probability",
        "-p",
        metavar="P",
        help="How sure the promise must be, e.g. 0.95. Default: what the set says, else 0.9.",
    ),
]
Gantt = Annotated[
    Path | None,
    typer.Option("--gantt", metavar="FILE.html", help="Write the Gantt chart, a page of its own."),
]


def make_console() -> Any:
    from vgrads.portal.cli.terminal import console

    return console()


def instant_of(at: str | None) -> Any:
    return None if at is None else parse_instant(at, "--at")


def answer_with(as_json: bool, document: dict[str, Any], text: Callable[[], Any]) -> None:
    """The JSON document, or what a person reads."""
    if as_json:
        sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
        return
    shown = text()
    if shown is not None:
        make_console().print(shown, highlight=False)
