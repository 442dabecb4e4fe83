"""Requests of the operator: tokens and the database. Light: the commands are generated from
these."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vgrads.operations.fields import DURATION, About, OnCommandLine, Request


@dataclass(frozen=True, kw_only=True)
class CreateTokenRequest(Request):
    """Create a token. It is shown once: only its digest is stored."""

    user: Annotated[str, About("Name of a user."), OnCommandLine(argument=True, metavar="USER")]
    scopes: Annotated[
        tuple[str, ...],
        About(
            "Scope: read, submit (read and run own sets), operate (everything), metrics, pool, "
            "forecast or forecast:SITE/QUEUE (nothing but forecasts); may be repeated. Default: "
            "submit."
        ),
        OnCommandLine(flags="--scope"),
    ] = ("submit",)
    expires_s: Annotated[float, DURATION, About("Validity of the token, e.g. 30d.")] = 90 * 86400.0
    name: Annotated[str, About("Purpose of the token.")] = ""


@dataclass(frozen=True, kw_only=True)
class ListTokensRequest(Request):
    """List tokens and their expiry."""


@dataclass(frozen=True, kw_only=True)
class RevokeTokenRequest(Request):
    """Revoke a token, and end the sessions of its user."""

    token: Annotated[
        str,
        About("Id of a token, as listed by vgrads token list."),
        OnCommandLine(argument=True, metavar="ID"),
    ]


@dataclass(frozen=True, kw_only=True)
class DatabaseOption(Request):
    """Which database."""

    db: Annotated[
        str | None,
        About("Database. Default: VGRADS_DB, or the database of the user."),
        OnCommandLine(metavar="URL"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class UpgradeRequest(DatabaseOption):
    """Migrate the database to a version (default: this one's), after a copy of an SQLite file is
    made beside it. Every command does so by itself when needed. Databases of versions before 0.3
    are refused."""

    version: Annotated[
        str,
        About("Version of the database."),
        OnCommandLine(argument=True, metavar="[VERSION]"),
    ] = "head"
    lose_data: Annotated[
        bool,
        About("Also downgrade where that loses data."),
    ] = False


@dataclass(frozen=True, kw_only=True)
class BackupRequest(DatabaseOption):
    """Back up an SQLite database while it is in use. For PostgreSQL use pg_dump."""

    file: Annotated[
        Path, About("File to be written."), OnCommandLine(argument=True, metavar="FILE")
    ]


@dataclass(frozen=True, kw_only=True)
class PruneRequest(Request):
    """Remove old records; expired tokens and keys in any case."""

    keep_s: Annotated[
        float | None,
        DURATION,
        About(
            "Remove sets that ended longer ago than this, with their runs, and forecasts that were "
            "issued before."
        ),
    ] = None
    history_keep_s: Annotated[
        float | None, DURATION, About("Remove jobs of histories that are older than this.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class AuditRequest(Request):
    """List changes made over HTTP and their users, newest first."""

    user: Annotated[str | None, About("Show only the entries of this user.")] = None
    limit: Annotated[int, About("Largest number of entries.", minimum=1)] = 50
