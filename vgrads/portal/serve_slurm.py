"""``vgrads slurm up``: the command line starts the service of Slurm's commands."""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import suppress
from typing import Annotated

import typer

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import parse_duration
from vgrads.portal.cli.options import Sites
from vgrads.portal.cli.slurm.commands import slurm_app

_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_LAST_PORT = 65_535


@slurm_app.command("up", epilog="Example: `vgrads slurm up --sites sites.toml`")
def up(
    sites: Sites = None,
    background: Annotated[
        bool, typer.Option("--background", help="Return when the service has been started.")
    ] = False,
    idle: Annotated[
        str,
        typer.Option(
            "--idle", help="End when no job is unfinished and no command came for this long."
        ),
    ] = "10m",
    keep: Annotated[
        str, typer.Option("--keep", help="How long sacct lists jobs that have ended.")
    ] = "90d",
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Also accept commands from other machines that have the token "
            "(VGRADS_HOME/slurm/token). Not encrypted: for a network that you trust.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start the service of Slurm's commands for this user. Jobs of an earlier service go on."""
    from vgrads.portal.cli.slurm.service import sites_catalog, slurm_folder, start_in_background

    if background:
        start_in_background(sites, idle)
        return
    from vgrads.portal.web.slurm.serving import SlurmServing, serve_slurm

    how = SlurmServing(
        idle_s=parse_duration(idle, "--idle"),
        keep_s=parse_duration(keep, "--keep"),
        address=_parse_address(listen) if listen else None,
    )
    logging.basicConfig(level=logging.WARNING, format=_FORMAT)
    logging.getLogger("vgrads").setLevel(logging.INFO)
    # the server raises it again at its end, before the service has put away what it must
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    serve_slurm(slurm_folder(), sites_catalog(sites), how, _report_start)


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > _LAST_PORT:
        raise InputError(f"'{text}' is not of the form HOST:PORT", where="--listen")
    return host, int(port)


def _report_start(places: str) -> None:
    with suppress(OSError):  # on a full disk it still serves
        sys.stderr.write(f"vgrads: Slurm's commands are accepted at {places}\n")
        sys.stderr.flush()
