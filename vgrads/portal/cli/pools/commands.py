"""Commands of pools: ``vgrads pool run``, ``status``, ``decide``, ``explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vgrads.portal.cli.options import AsJson, Service, Sites, answer_with, app

pool_app = typer.Typer(
    no_args_is_help=True, help="Hosts that several managers share: how many each gets, and why."
)
app.add_typer(pool_app, name="pool")
PoolFile = Annotated[
    Path,
    typer.Argument(
        metavar="POOL.yaml", help="How many workers, shared how, from where.", show_default=False
    ),
]
PoolName = Annotated[
    str | None,
    typer.Argument(
        metavar="POOL", help="A pool by name; without, the only one.", show_default=False
    ),
]


@pool_app.command(
    "run",
    epilog=(
        "Examples: `vgrads pool run data/pool.yaml` · `vgrads pool run POOL.yaml --sites "
        "sites.toml --service https://vgrads.example`"
    ),
)
def run(
    file: PoolFile, sites: Sites = None, service: Service = None, as_json: AsJson = False
) -> None:
    """Lend hosts to whoever needs them until Ctrl-C: look at the managers, decide, ask sites for
    what is missing."""
    from vgrads.portal.cli.pools.run import run_pool

    raise typer.Exit(run_pool(file, sites, service, as_json))


@pool_app.command("status", epilog="Examples: `vgrads pool status` · `vgrads pool status --json`")
def status(service: Service = None, as_json: AsJson = False) -> None:
    """Pools and managers: who needs how many, who has been given how many, what holds them back."""
    from vgrads.portal.cli.pools.ledger import ledger_of
    from vgrads.portal.cli.pools.text import standing_tables

    with ledger_of(service) as ledger:
        standing = ledger.read()
    secret = ("key", "certificate", "contact", "slot")
    told = {
        "pools": list(standing.pools),
        "managers": [{k: v for k, v in m.items() if k not in secret} for m in standing.managers],
    }
    answer_with(as_json, told, lambda: standing_tables(told))


@pool_app.command(
    "decide", epilog="Example: `vgrads pool decide data/pool.yaml`, before it is run, or beside it"
)
def decide(file: PoolFile, service: Service = None, as_json: AsJson = False) -> None:
    """What a pool would decide now for the managers that there are, and why; nothing is asked
    for."""
    from vgrads.portal.cli.pools.run import would_decide
    from vgrads.portal.cli.pools.text import decision_text

    told = would_decide(file, service)
    answer_with(as_json, told, lambda: decision_text(told))


@pool_app.command(
    "explain", epilog="Examples: `vgrads pool explain` · `vgrads pool explain POOL --json`"
)
def explain(pool: PoolName = None, service: Service = None, as_json: AsJson = False) -> None:
    """Why a running pool decided as it did: the numbers behind its last decision."""
    from vgrads.portal.cli.pools.run import one_pool
    from vgrads.portal.cli.pools.text import decision_text

    told: dict[str, Any] = one_pool(pool, service)
    answer_with(as_json, told, lambda: decision_text(told))


@pool_app.command("schema", epilog="Example: `vgrads pool schema`")
def schema() -> None:
    """The JSON Schema of a pool's file."""
    import json

    from vgrads.api.pools.document import PoolDocument

    typer.echo(json.dumps(PoolDocument.model_json_schema(), indent=2))
