"""Permissions: tokens of users, and the sites that the operator opened for them."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import delete, func
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from vgrads.kernel.errors import InputError
from vgrads.portal.records.reading.bags import HERE
from vgrads.portal.records.tables import AccountRow, BagRow, GrantRow, SetRow, TokenRow

SCOPES = ("read", "submit", "operate", "metrics", "pool", "forecast")
"""Read own sets; submit and run sets; everything, of all users; metrics, no sets; lease nodes to
own managers and take leases; query forecasts of queues and nothing else, with
``forecast:SITE/QUEUE`` those of this queue only."""
LOCAL = "local"
"""The user where no tokens are required: any process that can connect on this machine."""
SESSION_S = 12 * 3600.0
_PREFIX = "vg_"
_OF_QUEUE = "forecast:"
_QUEUE_SCOPE = re.compile(r"forecast:[^\s/]+/\S+")  # scopes are stored with spaces between them
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated user with their scopes. ``expires_s``: the end of their secret (Unix time);
    None: it does not expire."""

    user: str
    scopes: frozenset[str]
    expires_s: float | None = None

    @property
    def operator(self) -> bool:
        """Return True for users with all permissions."""
        return "operate" in self.scopes

    def may(self, scope: str) -> bool:
        """Return True where this scope, or one that contains it, is granted."""
        looks = scope in ("read", "forecast") and bool(self.scopes & {"read", "submit", "pool"})
        narrow = scope == "forecast" and any(s.startswith(_OF_QUEUE) for s in self.scopes)
        return self.operator or scope in self.scopes or looks or narrow

    def may_forecast(self, site: str, queue: str) -> bool:
        """Return True where the forecasts of this queue may be queried."""
        everywhere = self.may("read") or "forecast" in self.scopes
        return everywhere or forecast_scope(f"{site}/{queue}") in self.scopes


def forecast_scope(queue: str) -> str:
    """Return the scope for the forecasts of one queue, ``SITE/QUEUE``."""
    return f"{_OF_QUEUE}{queue}"


def account_number(user: str, turn: int = 0) -> int:
    """Return a number for a user's account, between 0x70000000 and 0x7fffffff: systemd and others
    assign none there (https://systemd.io/UIDS-GIDS). Two users may have the same: each ``turn`` is
    another number."""
    text = f"{user}\0{turn}" if turn else user
    return 0x70000000 + int(hashlib.sha256(text.encode()).hexdigest()[:7], 16) % 0x0FFF0000


_CLOSED = TokenRow(
    id="tok-closed",
    digest="closed",
    user="-",
    scopes="",
    created_s=0.0,
    expires_s=0.0,
    name="there was a token",
)
"""Remains when all tokens are gone, and grants no access."""
EVERYBODY_HERE = Principal(LOCAL, frozenset(SCOPES))


class AccessControl:
    """Tokens and grants in the database."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    def create(
        self,
        user: str,
        scopes: Iterable[str],
        lifetime_s: float,
        name: str = "",
        session: bool = False,
    ) -> tuple[str, TokenRow]:
        """Create a token: the secret, which is shown once and not stored, and its row."""
        required = _check_scopes(scopes)
        if not _USER.fullmatch(user):
            raise InputError(
                f"'{user}' is not a valid user name",
                where="user",
                fix="use letters, digits and . _ @ + -",
            )
        if not 0 < lifetime_s <= 10 * 365 * 86400:
            raise InputError("must be above 0 and at most ten years", where="expires")
        secret, now = _PREFIX + secrets.token_urlsafe(32), time.time()
        row = TokenRow(
            id=f"tok-{secrets.token_hex(5)}",
            digest=secret_digest(secret),
            user=user,
            scopes=" ".join(required),
            name=name[:100],
            created_s=now,
            expires_s=now + lifetime_s,
            session=session,
        )
        with Session(self._engine, expire_on_commit=False) as database:
            database.add(row)
            database.merge(_CLOSED.model_copy())
            database.commit()
        return secret, row

    def find(self, secret: str) -> Principal | None:
        """Return the owner of a secret; None for one that is unknown or has expired."""
        query = select(TokenRow).where(
            TokenRow.digest == secret_digest(secret), TokenRow.expires_s > time.time()
        )
        with Session(self._engine) as session:
            row = session.exec(query).first()
        return _make_principal(row) if row else None

    def everybody(self) -> dict[str, Principal]:
        """Return digest → owner of every valid secret."""
        query = select(TokenRow).where(TokenRow.expires_s > time.time())
        with Session(self._engine) as session:
            return {row.digest: _make_principal(row) for row in session.exec(query)}

    def account_of(self, user: str) -> int:
        """Return the number of the account of a user's tasks on nodes where agents run as root; 0,
        the agents' own, where this service has a single user."""
        with Session(self._engine) as session:
            users = set(session.exec(select(TokenRow.user).distinct())) - {_CLOSED.user}
            for rows in (SetRow, BagRow):
                users |= set(session.exec(select(rows.owner).distinct()))
        users -= {LOCAL, HERE}
        return self._number_of(user) if user in users and len(users) > 1 else 0

    def _number_of(self, user: str) -> int:
        """Return the number of a user's account, which is stored first, and never changes."""
        while True:
            with Session(self._engine) as session:
                if row := session.get(AccountRow, user):
                    return row.number
                used = set(session.exec(select(AccountRow.number)))
                numbers = (account_number(user, turn) for turn in count())
                session.add(AccountRow(user=user, number=next(n for n in numbers if n not in used)))
                with suppress(IntegrityError):  # another service was faster: with it, or the number
                    session.commit()

    def any_token(self) -> bool:
        """Return True where a valid token exists."""
        query = select(func.count()).where(
            col(TokenRow.expires_s) > time.time(), ~col(TokenRow.session)
        )
        with Session(self._engine) as session:
            return session.exec(query).one() > 0

    def ever_token(self) -> bool:
        """Return True where a token ever existed: a closed service does not open by itself."""
        with Session(self._engine) as session:
            return session.exec(select(func.count()).select_from(TokenRow)).one() > 0

    def tokens(self) -> list[TokenRow]:
        """Return all tokens except those of sessions, newest first."""
        query = select(TokenRow).where(~col(TokenRow.session), TokenRow.id != _CLOSED.id)
        with Session(self._engine) as session:
            return list(session.exec(query.order_by(col(TokenRow.created_s).desc())))

    def revoke(self, token_id: str) -> bool:
        """Revoke a token and end the sessions of its user; return False where there is none."""
        with Session(self._engine) as session:
            row = session.get(TokenRow, token_id)
            if row is None or row.id == _CLOSED.id:
                return False
            session.execute(
                delete(TokenRow).where(col(TokenRow.user) == row.user, col(TokenRow.session))
            )
            session.delete(row)
            session.commit()
        return True

    def end(self, secret: str) -> None:
        """End a session."""
        with Session(self._engine) as session:
            session.execute(
                delete(TokenRow).where(
                    col(TokenRow.digest) == secret_digest(secret), col(TokenRow.session)
                )
            )
            session.commit()

    # sites that are open for a user's tasks

    def grant(self, site: str, user: str) -> None:
        """Allow a user's sets to run on a real site, under the account of the service."""
        with Session(self._engine) as session:
            session.merge(GrantRow(site=site, user=user))
            session.commit()

    def withdraw(self, site: str, user: str) -> bool:
        """Remove this permission; return False where there was none."""
        with Session(self._engine) as session:
            row = session.get(GrantRow, (site, user))
            if row is None:
                return False
            session.delete(row)
            session.commit()
        return True

    def granted(self, user: str) -> frozenset[str]:
        """Return the sites that are open for a user."""
        with Session(self._engine) as session:
            return frozenset(session.exec(select(GrantRow.site).where(GrantRow.user == user)))


def secret_digest(secret: str) -> str:
    """Return the digest of a secret. A random secret of 256 bits needs no slow hash: it cannot be
    guessed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _make_principal(row: TokenRow) -> Principal:
    return Principal(row.user, frozenset(row.scopes.split()), row.expires_s)


def _check_scopes(scopes: Iterable[str]) -> list[str]:
    required = list(dict.fromkeys(scopes))
    for scope in required:
        if scope not in SCOPES and not _QUEUE_SCOPE.fullmatch(scope):
            choices = ", ".join((*SCOPES, forecast_scope("SITE/QUEUE")))
            raise InputError(f"unknown scope '{scope}'", where="scopes", fix=choices)
    if not required:
        raise InputError("no scope is given", where="scopes", fix=", ".join(SCOPES))
    return required
