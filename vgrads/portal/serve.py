"""Commands of the service: the one place where the command line starts the web."""

from __future__ import annotations

from typing import Annotated

import typer

from vgrads.portal.cli.options import AsJson, Config, Sites, answer_with, app

config_app = typer.Typer(name="config", help="Settings of the service.", no_args_is_help=True)
app.add_typer(config_app)


@app.command(
    epilog="Example: `vgrads serve --port 8080`; settings of a file: `vgrads config check`"
)
def serve(
    host: Annotated[
        str | None,
        typer.Option("--host", help="Address to listen on; other than loopback only with tokens."),
    ] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535)] = None,
    db: Annotated[
        str | None,
        typer.Option("--db", metavar="URL", help="Database. Default: an SQLite file of yours."),
    ] = None,
    sites: Sites = None,
    config: Config = None,
    own: Annotated[
        bool,
        typer.Option(
            "--own",
            help=(
                "Yours alone: all sites are open to you; the first line of output is where it "
                "is and the one token that opens it; it ends with its standard input."
            ),
        ),
    ] = False,
) -> None:
    """REST and web pages, planning and running in the background."""
    from vgrads.portal.jobs import beside

    beside.begin()
    from vgrads.portal.web.serving import serve as serve_now
    from vgrads.portal.web.settings import load_settings

    serve_now(load_settings(config, host=host, port=port, db=db, sites=sites, own=own or None))


@config_app.command("check", epilog="Example: `vgrads config check --config vgrads.toml`")
def check(config: Config = None, as_json: AsJson = False) -> None:
    """Read the settings as `vgrads serve` would, try what they name, print what rules. Exit 2 or 4
    where one is wrong."""
    from vgrads.portal.web import trial
    from vgrads.portal.web.settings import load_settings

    told = trial.try_settings(load_settings(config))
    answer_with(as_json, told, lambda: trial.settings_text(told))
