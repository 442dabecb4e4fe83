"""What the commands of ``vgrads pool`` do."""

from __future__ import annotations

import json
from typing import Any

import typer

from vgrads.operations.pools.requests import (
    DecidePoolRequest,
    ExplainPoolRequest,
    PoolStatusRequest,
    RunPoolRequest,
)
from vgrads.portal.cli.options import answer_with
from vgrads.portal.cli.pools.group import pool_app
from vgrads.portal.cli.requests import CommandOutput


def run(request: RunPoolRequest, output: CommandOutput) -> int:
    """``vgrads pool run``."""
    from vgrads.portal.cli.pools.run import run_pool

    return run_pool(request.file, request.sites, request.service, output.as_json)


def status(request: PoolStatusRequest, output: CommandOutput) -> int:
    """``vgrads pool status``."""
    from vgrads.portal.cli.pools.ledger import ledger_of
    from vgrads.portal.cli.pools.run import select_pool
    from vgrads.portal.cli.pools.text import status_tables

    with ledger_of(request.service) as ledger:
        state = ledger.read()
    pools, managers = list(state.pools), list(state.managers)
    if request.pool is not None:
        pools = [select_pool(request.pool, request.service)]
        managers = [m for m in managers if m["name"] in pools[0].get("seen", ())]
    # these would let a reader take part as an agent or a pool
    secret = ("key", "certificate", "contact", "slot")
    payload = {
        "pools": pools,
        "managers": [{k: v for k, v in m.items() if k not in secret} for m in managers],
    }
    answer_with(output.as_json, payload, lambda: status_tables(payload))
    return 0


def decide(request: DecidePoolRequest, output: CommandOutput) -> int:
    """``vgrads pool decide``."""
    from vgrads.portal.cli.pools.run import would_decide
    from vgrads.portal.cli.pools.text import decision_text

    payload = would_decide(request.file, request.service)
    answer_with(output.as_json, payload, lambda: decision_text(payload))
    return 0


def explain(request: ExplainPoolRequest, output: CommandOutput) -> int:
    """``vgrads pool explain``."""
    from vgrads.portal.cli.pools.run import select_pool
    from vgrads.portal.cli.pools.text import decision_text

    payload: dict[str, Any] = select_pool(request.pool, request.service)
    answer_with(output.as_json, payload, lambda: decision_text(payload))
    return 0


@pool_app.command("schema", epilog="Example: `vgrads pool schema`")
def schema() -> None:
    """Print the JSON Schema of a pool's file."""
    from vgrads.api.pools.document import PoolDocument

    typer.echo(json.dumps(PoolDocument.model_json_schema(), indent=2))
