"""The command ``vgrads init``: a first set in three questions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from vgrads.portal.cli.options import app

_Workflow = Annotated[
    str | None,
    typer.Option(
        "--workflow",
        metavar="FILE",
        help="Workflow to run, or 'example'. Default: the first that is found.",
        show_default=False,
    ),
]
_Where = Annotated[
    str | None,
    typer.Option(
        "--sites",
        metavar="WHERE",
        help="'here', 'slurm', or the log of a queue (SWF) to simulate. Default: Slurm, if found.",
        show_default=False,
    ),
]
_By = Annotated[
    str | None,
    typer.Option("--deadline", metavar="TIME", help="Deadline from the start.", show_default="4h"),
]


@app.command(
    epilog=(
        "Examples: `vgrads init` asks at a terminal · `vgrads init project --workflow Snakefile "
        "--sites here --deadline 2h`"
    )
)
def init(
    folder: Annotated[
        Path, typer.Argument(help="Folder of the workflow.", show_default="this folder")
    ] = Path(),
    workflow: _Workflow = None,
    sites: _Where = None,
    deadline: _By = None,
) -> None:
    """Write a first set and its sites, with comments, from what is found here: workflows, Slurm, a
    queue's log. Three questions at a terminal; elsewhere the options answer them. No file is
    overwritten."""
    from vgrads.api.plans.first_set import (
        EXAMPLE,
        HERE,
        SLURM,
        Answers,
        list_next_steps,
        look_around,
        refuse_existing,
        write_first_set,
    )
    from vgrads.portal.cli.terminal import console

    refuse_existing(folder)
    surroundings = look_around(folder)
    machines = (*((SLURM,) if surroundings.slurm else ()), HERE, *surroundings.logs)
    workflow = workflow or _choose("What is to be run?", (*surroundings.workflows, EXAMPLE))
    sites = sites or _choose("Where?", machines)
    deadline = _parse_deadline(deadline or _ask("By when, from the start (90m, 4h, 2d)?", "4h"))
    answers = Answers(workflow=workflow, sites=sites, deadline=deadline)
    for path in write_first_set(folder, answers):
        console().print(f"wrote {path}", highlight=False, markup=False)
    place = "" if folder == Path() else f", in {folder}"
    console().print(f"next{place}:", highlight=False, markup=False)
    for step in list_next_steps(answers):
        console().print(f"  {step}", highlight=False, markup=False)


def _parse_deadline(text: str) -> str:
    """Return a deadline with its unit: a bare number is seconds, which few mean."""
    from vgrads.kernel.deadline import is_bare, parse_deadline
    from vgrads.kernel.errors import InputError

    if is_bare(text):
        units = f"{text}s, {text}m or {text}h"
        if not sys.stdin.isatty():
            raise InputError(f"'{text}' has no unit", where="--deadline", fix=f"write {units}")
        return _parse_deadline(_ask(f"{text} of which unit: {units}?", f"{text}m"))
    parse_deadline(text, None, "--deadline")
    return text


def _choose(question: str, choices: Sequence[str]) -> str:
    """Let a person choose; without a terminal, or without a choice, the first."""
    if len(choices) == 1 or not sys.stdin.isatty():
        return choices[0]
    for number, choice in enumerate(choices, 1):
        typer.echo(f"  {number}  {choice}")
    answer = _ask(f"{question} A number, or a file", "1")
    if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(choices):
        return choices[int(answer) - 1]
    return answer


def _ask(question: str, default: str) -> str:
    return str(typer.prompt(question, default=default)) if sys.stdin.isatty() else default
