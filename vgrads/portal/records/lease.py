"""Heartbeats of owners in the rows of the database (:mod:`portal.records.heartbeat`)."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import func, literal, select
from sqlmodel import Session

from vgrads.portal.records.heartbeat import Heartbeat
from vgrads.portal.records.tables import LeaseRow, WorkRow


def make_heartbeat(session: Session) -> dict[str, Any]:
    """Return an owner's heartbeat for its row; the counter there is incremented."""
    now = database_now(session.get_bind().dialect.name)
    return {"heartbeat_s": time.monotonic(), "beaten_s": now}


def heartbeat_of(session: Session, row: LeaseRow | WorkRow) -> Heartbeat:
    """Return the last heartbeat of a row's owner."""
    dialect = session.get_bind().dialect.name
    if dialect != "postgresql":
        return Heartbeat(row.owner, row.heartbeats, row.heartbeat_s)
    now_s = float(session.execute(select(database_now(dialect))).scalar_one())
    return Heartbeat(row.owner, row.heartbeats, row.heartbeat_s, now_s - row.beaten_s)


def database_now(dialect: str) -> Any:
    """Return the clock of a database, in seconds; 0 where it is only the caller's."""
    if dialect == "postgresql":
        return func.extract("epoch", func.clock_timestamp())
    return literal(0.0)
