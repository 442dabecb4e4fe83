"""The group ``vgrads sites``."""

import typer

from vgrads.portal.cli.options import app

sites_app = typer.Typer(
    name="sites",
    help="List, check and manage sites.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(sites_app)
