"""The command ``vgrads convert``: convert a workflow to another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vgrads.portal.cli.options import AsJson, Deadline, Inputs, answer_with, app


@app.command(
    epilog=(
        "Examples: `vgrads convert data/lead.json lead-set.yaml --deadline 4h` · `vgrads "
        "convert Snakefile flow.json`"
    )
)
def convert(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN",
            help=(
                "WfFormat, DAX, Pegasus 5, DAGMan, Makeflow, Snakefile, CWL, a Nextflow trace, "
                "or a set."
            ),
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="FILE.json (WfFormat 1.5) or FILE.yaml (a set).", show_default=False
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORM",
            help="Output format, wfformat or set, regardless of the name of OUT.",
            show_default=False,
        ),
    ] = None,
    deadline: Deadline = None,
    inputs: Inputs = None,
    as_json: AsJson = False,
) -> None:
    """Convert a workflow of any supported format to WfFormat 1.5, or to a set of one workflow with
    its tasks inline."""
    from rich.text import Text

    from vgrads.api.plans.convert import choose_form, convert_text
    from vgrads.api.plans.set_files import SetOverrides
    from vgrads.kernel.errors import InputError
    from vgrads.kernel.files import write_text
    from vgrads.portal.cli.terminal import console, print_notes

    form = choose_form(out, to)
    if out.exists() and source.exists() and out.samefile(source):
        raise InputError("is the input file", where=str(out), fix="choose another name")
    text, notes = convert_text(source, form, SetOverrides(deadline=deadline, inputs=inputs))
    write_text(out, text)
    print_notes(console(stderr=True), notes)
    answer_with(as_json, {"written": str(out), "notes": list(notes)}, lambda: Text(f"wrote {out}"))
