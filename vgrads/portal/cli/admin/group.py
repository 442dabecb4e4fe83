"""The groups ``vgrads token`` and ``vgrads db``."""

import typer

from vgrads.portal.cli.options import app

token_app = typer.Typer(
    name="token", help="Manage the access tokens of the service.", no_args_is_help=True
)
db_app = typer.Typer(
    name="db", help="Manage the database: schema version, backup, pruning.", no_args_is_help=True
)
for group in (token_app, db_app):
    app.add_typer(group)
