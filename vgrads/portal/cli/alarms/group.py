"""The group ``vgrads alarms``."""

import typer

from vgrads.portal.cli.options import app

alarms_app = typer.Typer(
    name="alarms",
    help="Manage who is notified of alarms: where, when; acknowledge them.",
    no_args_is_help=True,
)
app.add_typer(alarms_app)
