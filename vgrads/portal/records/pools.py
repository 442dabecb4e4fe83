"""The ledger of pools and managers in the database."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import delete, func, select
from sqlmodel import Session, col

from vgrads.api.pools.ledger import LedgerEntries, select_current
from vgrads.kernel.errors import InputError
from vgrads.portal.records.access import LOCAL
from vgrads.portal.records.tables import ManagerRow, MomentRow, PoolRow

Json = dict[str, Any]
_MOST_MOMENTS = 2000
_MOST_BYTES = 1 << 20
_FORGET_S = 3600.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,199}")
_ROWS: dict[str, type[Any]] = {"manager": ManagerRow, "pool": PoolRow}
_IN_PICTURE = ("decided", "running", "capacity")


class PoolLedger:
    """A :class:`vgrads.api.pools.ledger.Ledger`. ``owner``: whose entries are read and written;
    None: those of all owners are read."""

    def __init__(self, engine: SqlEngine, owner: str | None = None) -> None:
        self._engine, self._owner = engine, owner

    def publish_manager(self, name: str, entry: Mapping[str, Any]) -> LedgerEntries:
        """Store the state of a manager; return all states."""
        self._keep("manager", name, entry)
        return self.read()

    def publish_pool(self, name: str, entry: Mapping[str, Any]) -> None:
        """Store a pool's decision, and a sample for its chart."""
        at_s = self._keep("pool", name, entry)
        moment = {key: entry.get(key) for key in _IN_PICTURE} | {"owner": self._owner or LOCAL}
        with Session(self._engine) as session:
            session.add(MomentRow(pool=name, at_s=at_s, body=json.dumps(moment)))
            # so that the new row counts among the newest
            session.flush()
            mine = col(MomentRow.pool) == name
            newest = select(MomentRow).where(mine).order_by(col(MomentRow.id).desc())
            last = session.execute(newest.offset(_MOST_MOMENTS).limit(1)).scalar()
            if last is not None:
                session.execute(delete(MomentRow).where(mine, col(MomentRow.id) <= last.id))
            session.commit()

    def _keep(self, kind: str, name: str, entry: Mapping[str, Any]) -> float:
        if not _NAME.fullmatch(name):
            raise InputError(
                f"'{name}' is not a valid name", where=kind, fix="use letters, digits and . _ @ + -"
            )
        body = json.dumps(dict(entry))
        if len(body) > _MOST_BYTES:
            raise InputError(f"is larger than {_MOST_BYTES} bytes", where=kind)
        rows = _ROWS[kind]
        with Session(self._engine) as session:
            now_s = _read_now_s(session)
            row = session.get(rows, name)
            if row is not None and self._owner is not None and row.owner != self._owner:
                raise InputError(f"'{name}' belongs to another user", where=kind)
            before = json.loads(row.entry) if row is not None else {}
            if row is not None and before.get("id") != entry.get("id") and self._counts(row, now_s):
                raise InputError(
                    f"'{name}' is already in use", where=kind, fix="choose another name"
                )
            session.merge(rows(name=name, owner=self._owner or LOCAL, at_s=now_s, entry=body))
            session.execute(delete(rows).where(col(rows.at_s) < now_s - _FORGET_S))
            session.commit()
        return now_s

    def read(self) -> LedgerEntries:
        """Return all entries that the caller may read."""
        managers, pools = self.entries("manager"), self.entries("pool")
        return select_current(managers, pools)

    def entries(self, kind: str) -> list[Json]:
        """Return every entry, with its age in seconds, also of silent owners; by name."""
        rows = _ROWS[kind]
        query = select(rows).order_by(col(rows.name))
        if self._owner is not None:
            query = query.where(col(rows.owner) == self._owner)
        with Session(self._engine) as session:
            now_s = _read_now_s(session)
            return [_make_entry(row, now_s) for row in session.execute(query).scalars()]

    def withdraw(self, kind: str, name: str) -> None:
        """Remove an entry."""
        rows = _ROWS[kind]
        query = delete(rows).where(col(rows.name) == name)
        if self._owner is not None:
            query = query.where(col(rows.owner) == self._owner)
        with Session(self._engine) as session:
            session.execute(query)
            session.commit()

    def moments(self, pool: str) -> list[tuple[float, Json]]:
        """Return a pool's decided and running workers, oldest first: seconds since 1970, and the
        numbers. An earlier owner's pool of the same name is another pool."""
        query = select(MomentRow).where(col(MomentRow.pool) == pool).order_by(col(MomentRow.id))
        with Session(self._engine) as session:
            present = session.get(PoolRow, pool)
            rows = [(row.at_s, json.loads(row.body)) for row in session.execute(query).scalars()]
        owner = present.owner if present else self._owner or LOCAL
        return [(at_s, moment) for at_s, moment in rows if moment.pop("owner", LOCAL) == owner]

    def _counts(self, row: ManagerRow | PoolRow, now_s: float) -> bool:
        return bool(select_current([_make_entry(row, now_s)], []).managers)


def _make_entry(row: ManagerRow | PoolRow, now_s: float) -> Json:
    payload = {"name": row.name, "owner": row.owner, "age_s": max(0.0, now_s - row.at_s)}
    return dict(json.loads(row.entry)) | payload


def _read_now_s(session: Session) -> float:
    """Return the clock of a shared database; else this machine's."""
    if session.get_bind().dialect.name != "postgresql":
        return time.time()
    return float(
        session.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one()
    )
