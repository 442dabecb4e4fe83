"""The command ``vgrads convert``: a workflow in another form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vgrads.portal.cli.options import Deadline, Inputs, app


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
            metavar="OUT", help="FILE.json: WfFormat 1.5. FILE.yaml: a set.", show_default=False
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORM",
            help="wfformat or set, whatever OUT is called.",
            show_default=False,
        ),
    ] = None,
    deadline: Deadline = None,
    inputs: Inputs = None,
) -> None:
    """Write a workflow of any known format as WfFormat 1.5, or as a set of one with its tasks
    inline."""
    from vgrads.kernel.errors import InputError
    from vgrads.kernel.files import write_text
    from vgrads.portal.cli.terminal import console, print_warnings
    from vgrads.workflows.formats.convert import converted, form_of
    from vgrads.workflows.sets import Beside

    form = form_of(out, to)
    if out.exists() and source.exists() and out.samefile(source):
        raise InputError("is the file that is read", where=str(out), fix="give it another name")
    text, notes = converted(source, form, Beside(deadline=deadline, inputs=inputs))
    write_text(out, text)
    print_warnings(console(stderr=True), notes)
    console().print(f"wrote {out}", highlight=False, markup=False)
