"""Idempotent requests: an answer is stored with its key, in the transaction that does the work."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine as SqlEngine
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session

from vgrads.kernel.errors import InputError
from vgrads.portal.records.tables import KeyRow

Json = dict[str, Any]
_FIELD = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class Key:
    """A user's key with the digest of the request."""

    user: str
    key: str
    digest: str


def key_of(user: str, key: str | None, requested: object) -> Key | None:
    """Return the key of a request, if it has one; ``requested``: everything that identifies the
    request."""
    if key is None:
        return None
    if not 1 <= len(key) <= 200 or not key.isprintable():
        raise InputError("must be 1 to 200 printable characters", where=_FIELD)
    text = json.dumps(requested, sort_keys=True, default=str)
    return Key(user, key, hashlib.sha256(text.encode()).hexdigest())


def once(engine: SqlEngine, key: Key | None, make: Callable[[Session], Json]) -> Json:
    """Return the answer of ``make``, in one transaction; for a used key, the stored answer."""
    try:
        return _make_once(engine, key, make)
    except IntegrityError:
        if key is None:
            raise
        return _make_once(engine, key, make)  # another request used the same key first


def answered(engine: SqlEngine, key: Key | None) -> Json | None:
    """Return the stored answer for a used key; None for an unused one."""
    with Session(engine) as session:
        return _find_stored(session, key)


def _find_stored(session: Session, key: Key | None) -> Json | None:
    row = session.get(KeyRow, (key.user, key.key)) if key is not None else None
    return _answer_again(row, key) if key is not None and row is not None else None


def _make_once(engine: SqlEngine, key: Key | None, make: Callable[[Session], Json]) -> Json:
    with Session(engine) as session:
        if (stored := _find_stored(session, key)) is not None:
            return stored
        answer = make(session)
        if key is not None:
            session.add(
                KeyRow(
                    user=key.user,
                    key=key.key,
                    digest=key.digest,
                    answer=json.dumps(answer),
                    created_s=time.time(),
                )
            )
        session.commit()
        return answer


def _answer_again(row: KeyRow, key: Key) -> Json:
    if row.digest != key.digest:
        raise InputError("was used for another request", where=_FIELD, fix="use a new key")
    answer: Json = json.loads(row.answer)
    return answer
