"""The command ``vgrads doctor``: what is right, doubtful or wrong in an installation."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from vgrads.kernel.errors import SiteError
from vgrads.portal.cli.options import AsJson, Config, answer_with, app

ServiceUrl = Annotated[
    str | None,
    typer.Option(
        "--service",
        metavar="URL",
        help="Also check the service at this URL; it is accessed with VGRADS_TOKEN.",
        show_default=False,
    ),
]


@app.command(
    epilog=(
        "Example: `vgrads doctor`; with a service: "
        "`vgrads doctor --service https://vgrads.example.org`"
    )
)
def doctor(service: ServiceUrl = None, config: Config = None, as_json: AsJson = False) -> None:
    """Check this machine's home, and a service: what is right, doubtful or wrong, and what to do.
    Nothing is changed. Exit 1 where something is wrong, 4 where the service cannot be reached."""
    from vgrads.portal.cli.admin.tables import checks_text
    from vgrads.portal.doctor.checks import as_document, count
    from vgrads.portal.doctor.examine import examine_home, examine_service
    from vgrads.portal.doctor.service_facts import parse_address

    address = parse_address(service) if service else None
    checks, reached = examine_home(config), True
    if address is not None:
        of_service, reached = examine_service(address, os.environ.get("VGRADS_TOKEN", ""))
        checks += of_service
    answer_with(as_json, as_document(checks), lambda: checks_text(checks))
    if not reached:
        raise typer.Exit(SiteError.exit_code)
    if count(checks, "wrong"):
        raise typer.Exit(1)
