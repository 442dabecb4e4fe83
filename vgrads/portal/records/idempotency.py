"""Asked twice, done once: an answer is kept with its key, in the transaction that does the work."""

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
    """A user's key with the digest of what was asked with it."""

    user: str
    key: str
    digest: str


def key_of(user: str, key: str | None, asked: object) -> Key | None:
    """The key of a request, if it brought one; ``asked``: everything that makes it that request."""
    if key is None:
        return None
    if not 1 <= len(key) <= 200 or not key.isprintable():
        raise InputError("must be 1 to 200 printable characters", where=_FIELD)
    text = json.dumps(asked, sort_keys=True, default=str)
    return Key(user, key, hashlib.sha256(text.encode()).hexdigest())


def once(engine: SqlEngine, key: Key | None, make: Callable[[Session], Json]) -> Json:
    """What ``make`` answers, in one transaction; for a key that was used, what was answered
    then."""
    try:
        return _once(engine, key, make)
    except IntegrityError:
        if key is None:
            raise
        return _once(engine, key, make)  # somebody was quicker with the same key: it is there now


def _once(engine: SqlEngine, key: Key | None, make: Callable[[Session], Json]) -> Json:
    with Session(engine) as session:
        if key is not None and (row := session.get(KeyRow, (key.user, key.key))) is not None:
            return _answered(row, key)
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


def _answered(row: KeyRow, key: Key) -> Json:
    if row.digest != key.digest:
        raise InputError("was used for another request", where=_FIELD, fix="take a new one")
    answer: Json = json.loads(row.answer)
    return answer
