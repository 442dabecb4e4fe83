"""Commands ``vgrads slurm``: Slurm's commands in front of vgrads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vgrads.portal.cli.options import AsJson, Sites, answer_with, app

slurm_app = typer.Typer(
    name="slurm",
    help="Let programs that call Slurm's commands use vgrads.",
    no_args_is_help=True,
)
app.add_typer(slurm_app)


@slurm_app.command(
    "install",
    epilog=(
        "Example: `vgrads slurm install ~/vgrads-slurm`, then "
        "`PATH=~/vgrads-slurm:$PATH nextflow run main.nf -process.executor slurm`"
    ),
)
def install(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the commands.")],
    sites: Sites = None,
    address: Annotated[
        str,
        typer.Option(
            "--address",
            metavar="URL",
            help="Of a service that listens there (`vgrads slurm up --listen`), instead of one "
            "of this machine.",
            show_default=False,
        ),
    ] = "",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help="File of mode 600 with its token. Default: VGRADS_HOME/slurm/token.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write sbatch, squeue, scancel, sacct, scontrol, srun, sinfo and sacctmgr into a folder. The
    first call of one of them starts the service in the background."""
    from vgrads.portal.cli.slurm.service import install_commands, install_for_address

    if address:
        paths = install_for_address(folder, address, token_file)
    else:
        paths = install_commands(folder, sites)
    typer.echo(f"{len(paths)} commands in {folder}; use them with: PATH={folder}:$PATH")


@slurm_app.command("status", epilog="Example: `vgrads slurm status`")
def status(as_json: AsJson = False) -> None:
    """Show where each unfinished job runs, or why it waits; and, for groups with a deadline, the
    probability that they keep it."""
    from vgrads.portal.cli.slurm.service import read_status, status_text

    current = read_status()
    answer_with(as_json, current, lambda: status_text(current))


@slurm_app.command("gantt", epilog="Example: `vgrads slurm gantt rnaseq rnaseq.html`")
def gantt(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of a group of jobs.")],
    path: Annotated[Path, typer.Argument(metavar="FILE.html", help="File to write.")],
) -> None:
    """Draw the current run of a group as a page: which job ran on which node and when, the
    deadline, and the probability over time that it is met."""
    from vgrads.portal.cli.slurm.service import write_gantt

    typer.echo(write_gantt(group, path))
