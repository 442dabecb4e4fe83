"""Bags of tasks in the database: their owners, dispatchers and states."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import func, update
from sqlmodel import Session, col, select

from vgrads.portal.records.reading.bags import (
    ENDED,
    BagEntry,
    bags_of,
    get_bag,
    newest_bags,
    unended_dispatchers,
)
from vgrads.portal.records.reading.engine_reader import EngineReader
from vgrads.portal.records.tables import BagRow


class BagStore:
    """The bags of a database."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine, self._reader = engine, EngineReader(engine)

    def add(self, row: BagRow) -> None:
        """Store a bag."""
        with Session(self._engine, expire_on_commit=False) as session:
            session.add(row)
            session.commit()

    def get(self, bag_id: str) -> BagEntry:
        """Return one bag. Raise InputError if there is none."""
        return get_bag(self._reader, bag_id)

    def newest(self, owner: str | None = None, most: int = 200) -> list[BagEntry]:
        """Return bags, newest first; of one owner, or of all."""
        return newest_bags(self._reader, owner, most)

    def of(self, dispatcher: str) -> list[BagEntry]:
        """Return the bags of a dispatcher, by number."""
        return bags_of(self._reader, dispatcher)

    def open_of(self, dispatcher: str) -> list[BagEntry]:
        """Return those of them that are not terminal."""
        return [row for row in self.of(dispatcher) if row.state not in ENDED]

    def unended(self) -> set[tuple[str, str]]:
        """Return dispatcher and owner of the bags that are not terminal."""
        return unended_dispatchers(self._reader)

    def dispatcher_like(self, begins: str) -> str:
        """Return the newest dispatcher with this prefix of its id; empty where there is none."""
        query = (
            select(BagRow.dispatcher)
            .where(col(BagRow.dispatcher).startswith(begins, autoescape=True))
            .order_by(col(BagRow.created).desc())
            .limit(1)
        )
        with Session(self._engine) as session:
            return str(session.exec(query).first() or "")

    def next_number(self, dispatcher: str) -> int:
        """Return an unused bag number of a dispatcher."""
        query = select(func.max(BagRow.number)).where(BagRow.dispatcher == dispatcher)
        with Session(self._engine) as session:
            last = session.exec(query).one()
        return 0 if last is None else int(last) + 1

    def ask_to_stop(self, bag_id: str, why: str) -> None:
        """Request the cancellation of a bag."""
        self._set([bag_id], stop=why or "cancelled")

    def note(self, dispatcher: str, statuses: Sequence[dict[str, Any]]) -> None:
        """Store the states of bags, by number."""
        by_number = {row.number: row for row in self.of(dispatcher)}
        for status in statuses:
            row = by_number.get(status["number"])
            if row is not None and (row.state != status["state"] or status["state"] == "running"):
                self._set(
                    [row.id],
                    state=status["state"],
                    tasks=status["tasks"],
                    summary=json.dumps(status),
                )

    def set_state(self, dispatcher: str, state: str) -> None:
        """Set the state of all bags of a dispatcher that are not terminal."""
        self._set([row.id for row in self.open_of(dispatcher)], state=state)

    def _set(self, ids: Sequence[str], **values: object) -> None:
        if not ids:
            return
        with Session(self._engine) as session:
            session.execute(update(BagRow).where(col(BagRow.id).in_(ids)).values(**values))
            session.commit()


def new_bag(bag_id: str, dispatcher: str, number: int, name: str, owner: str, tasks: int) -> BagRow:
    """Create the row of a bag submitted now."""
    return BagRow(
        id=bag_id,
        dispatcher=dispatcher,
        number=number,
        name=name,
        owner=owner,
        tasks=tasks,
        created=datetime.now(UTC),
    )
