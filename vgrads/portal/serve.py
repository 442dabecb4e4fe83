"""Commands of the service: the only place where the command line starts the web."""

from __future__ import annotations

import gc
import sys
from typing import Annotated

import typer

from vgrads.kernel.collector import pause_collector
from vgrads.portal.cli.options import AsJson, Config, Sites, answer_with, app

_SWITCH_S = 0.0005
"""Between threads of the service: an answer needs the interpreter several times, and other threads
may compute for longer."""
config_app = typer.Typer(name="config", help="Settings of the service.", no_args_is_help=True)
app.add_typer(config_app)


@app.command(
    epilog="Example: `vgrads serve --port 8080`; to check a settings file: `vgrads config check`"
)
def serve(
    host: Annotated[
        str | None,
        typer.Option(
            "--host", help="Address to listen on; addresses other than loopback require tokens."
        ),
    ] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535)] = None,
    db: Annotated[
        str | None,
        typer.Option("--db", metavar="URL", help="Database. Default: an SQLite file of the user."),
    ] = None,
    sites: Sites = None,
    config: Config = None,
    own: Annotated[
        bool,
        typer.Option(
            "--own",
            help=(
                "Private service: all sites are open to you. The first line of output gives its "
                "address and its only token. The service ends when its standard input closes."
            ),
        ),
    ] = False,
) -> None:
    """Serve REST and web pages; plan and run in the background."""
    from vgrads.portal.jobs import forkserver

    forkserver.begin()
    with pause_collector():
        from vgrads.portal.web.serving import serve as serve_now
        from vgrads.portal.web.settings import load_settings

        sys.setswitchinterval(_SWITCH_S)
        gc.freeze()  # nothing that these made is garbage later
    serve_now(load_settings(config, host=host, port=port, db=db, sites=sites, own=own or None))


@config_app.command("check", epilog="Example: `vgrads config check --config vgrads.toml`")
def check(config: Config = None, as_json: AsJson = False) -> None:
    """Check the settings: read them as `vgrads serve` would, test their targets, print the values
    in force. Exit 2 or 4 where one is wrong."""
    from vgrads.portal.web import config_check
    from vgrads.portal.web.settings import load_settings

    payload = config_check.try_settings(load_settings(config))
    answer_with(as_json, payload, lambda: config_check.settings_text(payload))
