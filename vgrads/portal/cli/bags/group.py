"""The group ``vgrads bags``."""

import typer

from vgrads.portal.cli.options import app

bags_app = typer.Typer(
    name="bags", help="Run bags of tasks, and simulate their scheduling.", no_args_is_help=True
)
app.add_typer(bags_app)
