"""The group ``vgrads pool``."""

import typer

from vgrads.portal.cli.options import app

pool_app = typer.Typer(no_args_is_help=True, help="Pools of agents that several managers share.")
app.add_typer(pool_app, name="pool")
