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
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE.toml",
        help="Settings file of the service. Default: the file that VGRADS_CONFIG names, if any.",
        show_default=False,
    ),
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
Force = Annotated[
    bool,
    typer.Option("--force", help="Use the rest of a file whose records are mostly unusable."),
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


def make_console() -> Any:
    from vgrads.portal.cli.terminal import console

    return console()


def answer_with(as_json: bool, document: dict[str, Any], text: Callable[[], Any]) -> None:
    """Print the JSON document, or the text: a table, a sentence, or a list of these."""
    if as_json:
        # NaN and Infinity are no JSON: an answer that has them is a fault
        sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
        return
    shown = text()
    for part in shown if isinstance(shown, list) else [shown]:
        if part is not None:
            make_console().print(part, highlight=False)
