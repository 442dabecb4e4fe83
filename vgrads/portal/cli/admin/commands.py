"""Commands of the operator: tokens, sites that are open to users, the database, the audit log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count
from vgrads.portal.cli.options import AsJson, SiteName, Sites, Wide, answer_with, app
from vgrads.portal.cli.sites.commands import sites_app

token_app = typer.Typer(
    name="token", help="Manage the access tokens of the service.", no_args_is_help=True
)
db_app = typer.Typer(
    name="db", help="Manage the database: schema version, backup, pruning.", no_args_is_help=True
)
for group in (token_app, db_app):
    app.add_typer(group)

Expires = Annotated[str, typer.Option("--expires", help="Validity of the token, e.g. 30d.")]


@token_app.command(
    "create", epilog="Example: `vgrads token create ann --scope submit --expires 90d`"
)
def create_token(
    user: Annotated[str, typer.Argument(metavar="USER", show_default=False)],
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope",
            help="read, submit (read and run own sets), operate (everything), metrics, pool, "
            "forecast or forecast:SITE/QUEUE (nothing but forecasts).",
        ),
    ] = ["submit"],  # noqa: B006  # typer's way
    expires: Expires = "90d",
    name: Annotated[str, typer.Option("--name", help="Purpose of the token.")] = "",
    as_json: AsJson = False,
) -> None:
    """Create a token. It is shown once: only its digest is stored."""
    from vgrads.kernel.units import parse_duration
    from vgrads.portal.records.access import AccessControl
    from vgrads.portal.records.store import Store

    with Store() as store:
        secret, row = AccessControl(store.engine).create(
            user, scope, parse_duration(expires, "--expires"), name
        )
    payload = {
        "id": row.id,
        "user": user,
        "scopes": row.scopes.split(),
        "expires_s": row.expires_s,
        "token": secret,
    }
    answer_with(as_json, payload, lambda: f"{secret}\n(id {row.id}; it is not shown again)")


@token_app.command("list", epilog="Example: `vgrads token list`")
def list_tokens(_wide: Wide = False, as_json: AsJson = False) -> None:
    """List tokens and their expiry."""
    from vgrads.portal.cli.admin.tables import tokens_table
    from vgrads.portal.records.access import AccessControl
    from vgrads.portal.records.store import Store

    with Store() as store:
        rows = [
            row.model_dump(exclude={"digest", "session"})
            for row in AccessControl(store.engine).tokens()
        ]
    answer_with(as_json, {"tokens": rows}, lambda: tokens_table(rows))


@token_app.command("revoke", epilog="Example: `vgrads token revoke tok-0123456789`")
def revoke_token(
    token_id: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
) -> None:
    """Revoke a token, and end the sessions of its user."""
    from vgrads.portal.records.access import AccessControl
    from vgrads.portal.records.store import Store

    with Store() as store:
        if not AccessControl(store.engine).revoke(token_id):
            raise InputError(
                f"no token '{token_id}'", where="ID", fix="list tokens with 'vgrads token list'"
            )
    typer.echo("revoked; a running service rejects it within seconds")


@sites_app.command("open", epilog="Example: `vgrads sites open build ann`")
def open_site(
    site: SiteName,
    user: Annotated[str, typer.Argument(metavar="USER", show_default=False)],
    close: Annotated[
        bool, typer.Option("--close", help="Close the site for the user again.")
    ] = False,
    sites: Sites = None,
) -> None:
    """Allow a user's tasks to run on a real site, under the account of the service there."""
    from vgrads.portal.records.access import AccessControl
    from vgrads.portal.records.reading.sites import choose_catalog
    from vgrads.portal.records.store import Store

    with Store() as store:
        access = AccessControl(store.engine)
        if not close:
            choose_catalog(sites).site(site)  # a typo would have no effect, without an error
            access.grant(site, user)
        elif not access.withdraw(site, user):
            raise InputError(f"site '{site}' was not open for '{user}'", where="SITE")
    typer.echo(f"{site} is {'closed' if close else 'open'} for {user}")


@db_app.command(
    "upgrade", epilog="Example: `vgrads db upgrade`; to downgrade: `vgrads db upgrade 0001`"
)
def upgrade(
    version: Annotated[str, typer.Argument(metavar="[VERSION]")] = "head",
    db: Annotated[
        str | None,
        typer.Option(
            "--db", metavar="URL", help="Database. Default: VGRADS_DB, or the database of the user."
        ),
    ] = None,
    lose_data: Annotated[
        bool,
        typer.Option(
            "--lose-data",
            help="Also downgrade where that loses data; a copy of the database is made first.",
        ),
    ] = False,
) -> None:
    """Migrate the database to a version (default: this one's). Every command does so by itself when
    needed."""
    from vgrads.portal.records.database import open_engine
    from vgrads.portal.records.migrate import current, losses, move
    from vgrads.portal.records.reader import HEAD
    from vgrads.portal.records.upkeep import back_up_before_upgrade

    engine = open_engine(db)
    target = HEAD if version == "head" else version
    try:
        if lose_data and losses(engine, target):
            typer.echo(f"copy of the previous database: {back_up_before_upgrade(db, target)}")
        move(engine, target, lose_data)
        typer.echo(f"the database has version {current(engine)}")
    finally:
        engine.dispose()


@db_app.command("backup", epilog="Example: `vgrads db backup vgrads-today.db`")
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    db: Annotated[
        str | None,
        typer.Option(
            "--db", metavar="URL", help="Database. Default: VGRADS_DB, or the database of the user."
        ),
    ] = None,
) -> None:
    """Back up an SQLite database while it is in use. For PostgreSQL use pg_dump."""
    from vgrads.portal.records.upkeep import back_up

    back_up(db, file)
    typer.echo(f"wrote {file}")


@db_app.command("prune", epilog="Example: `vgrads db prune --keep 180d --history-keep 1000d`")
def prune(
    keep: Annotated[
        str,
        typer.Option(
            "--keep",
            help=(
                "Remove sets that ended longer ago than this, with their runs, and forecasts that "
                "were issued before."
            ),
        ),
    ] = "",
    history_keep: Annotated[
        str,
        typer.Option("--history-keep", help="Remove jobs of histories that are older than this."),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Remove old records; expired tokens and keys in any case."""
    from vgrads.kernel.units import parse_duration
    from vgrads.portal.records.retention import prune as prune_now
    from vgrads.portal.records.store import Store

    keep_s = parse_duration(keep, "--keep") if keep else None
    history_s = parse_duration(history_keep, "--history-keep") if history_keep else None
    with Store() as store:
        gone = prune_now(store, keep_s, history_s)
    answer_with(
        as_json,
        gone,
        lambda: (
            f"removed {format_count(gone['sets'], 'set')}, "
            f"{format_count(gone['forecasts'], 'forecast')} and "
            f"{format_count(gone['jobs'], 'job')} of histories"
        ),
    )


@db_app.command("audit", epilog="Example: `vgrads db audit --user ann`")
def audit(
    user: Annotated[
        str | None, typer.Option("--user", help="Show only the entries of this user.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1)] = 50,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """List changes made over HTTP and their users, newest first."""
    from vgrads.portal.cli.admin.tables import audit_table
    from vgrads.portal.records.store import Store
    from vgrads.portal.records.upkeep import audit_rows

    with Store() as store:
        rows = audit_rows(store, user, limit)
    answer_with(as_json, {"audit": rows}, lambda: audit_table(rows))
