"""Commands of pools: ``vgrads pool run``, ``status``, ``decide``, ``explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vgrads.portal.cli.options import AsJson, Service, Sites, Wide, answer_with, app

pool_app = typer.Typer(no_args_is_help=True, help="Pools of agents that several managers share.")
app.add_typer(pool_app, name="pool")
PoolFile = Annotated[
    Path,
    typer.Argument(
        metavar="POOL.yaml",
        help="Description of the pool: number of workers, sizing policy and sites.",
        show_default=False,
    ),
]
PoolName = Annotated[
    str | None,
    typer.Argument(
        metavar="POOL", help="Name of a pool. Default: the only one.", show_default=False
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
    """Lease nodes to managers that need them until Ctrl-C: read their needs, decide, request
    missing nodes from sites."""
    from vgrads.portal.cli.pools.run import run_pool

    raise typer.Exit(run_pool(file, sites, service, as_json))


@pool_app.command(
    "status", hidden=True, epilog="Examples: `vgrads pool status` · `vgrads pool status --json`"
)
def status(
    pool: Annotated[
        str | None,
        typer.Argument(metavar="POOL", help="Name of a pool. Default: all.", show_default=False),
    ] = None,
    service: Service = None,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show pools and managers: needs, assigned nodes, bottlenecks."""
    from vgrads.portal.cli.pools.ledger import ledger_of
    from vgrads.portal.cli.pools.run import select_pool
    from vgrads.portal.cli.pools.text import status_tables

    with ledger_of(service) as ledger:
        state = ledger.read()
    pools, managers = list(state.pools), list(state.managers)
    if pool is not None:
        pools = [select_pool(pool, service)]
        managers = [m for m in managers if m["name"] in pools[0].get("seen", ())]
    secret = ("key", "certificate", "contact", "slot")
    payload = {
        "pools": pools,
        "managers": [{k: v for k, v in m.items() if k not in secret} for m in managers],
    }
    answer_with(as_json, payload, lambda: status_tables(payload))


@pool_app.command(
    "decide", epilog="Example: `vgrads pool decide data/pool.yaml`, before or while the pool runs"
)
def decide(file: PoolFile, service: Service = None, as_json: AsJson = False) -> None:
    """Show what a pool would decide now for the current managers, and why; nothing is requested."""
    from vgrads.portal.cli.pools.run import would_decide
    from vgrads.portal.cli.pools.text import decision_text

    payload = would_decide(file, service)
    answer_with(as_json, payload, lambda: decision_text(payload))


@pool_app.command(
    "explain",
    hidden=True,
    epilog="Examples: `vgrads pool explain` · `vgrads pool explain POOL --json`",
)
def explain(pool: PoolName = None, service: Service = None, as_json: AsJson = False) -> None:
    """Explain the last decision of a running pool, with its numbers."""
    from vgrads.portal.cli.pools.run import select_pool
    from vgrads.portal.cli.pools.text import decision_text

    payload: dict[str, Any] = select_pool(pool, service)
    answer_with(as_json, payload, lambda: decision_text(payload))


@pool_app.command("schema", epilog="Example: `vgrads pool schema`")
def schema() -> None:
    """Print the JSON Schema of a pool's file."""
    import json

    from vgrads.api.pools.document import PoolDocument

    typer.echo(json.dumps(PoolDocument.model_json_schema(), indent=2))
