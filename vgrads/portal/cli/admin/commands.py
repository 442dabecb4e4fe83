"""What the commands of the operator do: tokens, the database, the audit log."""

from __future__ import annotations

import typer

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count
from vgrads.operations.administration import (
    AuditRequest,
    BackupRequest,
    CreateTokenRequest,
    ListTokensRequest,
    PruneRequest,
    RevokeTokenRequest,
    UpgradeRequest,
)
from vgrads.portal.cli.options import answer_with
from vgrads.portal.cli.requests import CommandOutput, NoOutput


def create_token(request: CreateTokenRequest, output: CommandOutput) -> int:
    """``vgrads token create``."""
    from vgrads.portal.records.access import AccessControl
    from vgrads.portal.records.store import Store

    with Store() as store:
        secret, row = AccessControl(store.engine).create(
            request.user, list(request.scopes), request.expires_s, request.name
        )
    payload = {
        "id": row.id,
        "user": request.user,
        "scopes": row.scopes.split(),
        "expires_s": row.expires_s,
        "token": secret,
    }
    answer_with(output.as_json, payload, lambda: f"{secret}\n(id {row.id}; it is not shown again)")
    return 0


def list_tokens(_: ListTokensRequest, output: CommandOutput) -> int:
    """``vgrads token list``."""
    from vgrads.portal.cli.admin.tables import tokens_table
    from vgrads.portal.records.access import AccessControl
    from vgrads.portal.records.store import Store

    with Store() as store:
        rows = [
            row.model_dump(exclude={"digest", "session"})
            for row in AccessControl(store.engine).tokens()
        ]
    answer_with(output.as_json, {"tokens": rows}, lambda: tokens_table(rows))
    return 0


def revoke_token(request: RevokeTokenRequest, _: NoOutput) -> int:
    """``vgrads token revoke``."""
    from vgrads.portal.records.access import AccessControl
    from vgrads.portal.records.store import Store

    with Store() as store:
        if not AccessControl(store.engine).revoke(request.token):
            raise InputError(
                f"no token '{request.token}'",
                where="token",
                fix="list tokens with 'vgrads token list'",
            )
    typer.echo("revoked; a running service rejects it within seconds")
    return 0


def upgrade(request: UpgradeRequest, _: NoOutput) -> int:
    """``vgrads db upgrade``."""
    from vgrads.portal.records.database import open_engine
    from vgrads.portal.records.migrate import current, move
    from vgrads.portal.records.reader import HEAD

    engine = open_engine(request.db)
    target = HEAD if request.version == "head" else request.version
    try:
        backup = move(engine, target, request.lose_data)
        if backup:
            typer.echo(f"copy of the previous database: {backup}")
        typer.echo(f"the database has version {current(engine)}")
    finally:
        engine.dispose()
    return 0


def back_up_database(request: BackupRequest, _: NoOutput) -> int:
    """``vgrads db backup``."""
    from vgrads.portal.records.backup import back_up

    back_up(request.db, request.file)
    typer.echo(f"wrote {request.file}")
    return 0


def prune(request: PruneRequest, output: CommandOutput) -> int:
    """``vgrads db prune``."""
    from vgrads.portal.records.retention import prune as prune_now
    from vgrads.portal.records.store import Store

    with Store() as store:
        gone = prune_now(store, request.keep_s, request.history_keep_s)
    answer_with(
        output.as_json,
        gone,
        lambda: (
            f"removed {format_count(gone['sets'], 'set')}, "
            f"{format_count(gone['forecasts'], 'forecast')} and "
            f"{format_count(gone['jobs'], 'job')} of histories"
        ),
    )
    return 0


def audit(request: AuditRequest, output: CommandOutput) -> int:
    """``vgrads db audit``."""
    from vgrads.portal.cli.admin.tables import audit_table
    from vgrads.portal.records.store import Store
    from vgrads.portal.records.upkeep import audit_rows

    with Store() as store:
        rows = audit_rows(store, request.user, request.limit)
    answer_with(output.as_json, {"audit": rows}, lambda: audit_table(rows))
    return 0
