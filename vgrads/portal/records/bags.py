"""Bags of tasks in the database: who handed them over, whose dispatcher has them, how they
stand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import func, update
from sqlmodel import Session, col, select

from vgrads.kernel.errors import InputError
from vgrads.portal.records.tables import BagRow

HERE = ""
"""The owner of bags of the command line: these are looked after by whoever runs the command."""
ENDED = ("done", "failed", "cancelled")
"""States of a bag of which nothing more will come."""


class Bags:
    """The bags of a database."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    def add(self, row: BagRow) -> None:
        """Keep a new one."""
        with Session(self._engine, expire_on_commit=False) as session:
            session.add(row)
            session.commit()

    def get(self, bag_id: str) -> BagRow:
        """One bag; InputError if there is none."""
        with Session(self._engine) as session:
            row = session.get(BagRow, bag_id)
            if row is None:
                raise InputError(f"no bag '{bag_id}'", fix="vgrads bags status lists them")
            return row.model_copy()

    def newest(self, owner: str | None = None, most: int = 200) -> list[BagRow]:
        """The newest ones first; of one owner, or of all."""
        query = (
            select(BagRow)
            .order_by(col(BagRow.created).desc(), col(BagRow.number).desc())
            .limit(most)
        )
        if owner is not None:
            query = query.where(BagRow.owner == owner)
        with Session(self._engine) as session:
            return [row.model_copy() for row in session.exec(query).all()]

    def of(self, dispatcher: str) -> list[BagRow]:
        """The bags of a dispatcher, by number."""
        query = select(BagRow).where(BagRow.dispatcher == dispatcher).order_by(col(BagRow.number))
        with Session(self._engine) as session:
            return [row.model_copy() for row in session.exec(query).all()]

    def open_of(self, dispatcher: str) -> list[BagRow]:
        """Those of them that have not ended."""
        query = select(BagRow).where(
            BagRow.dispatcher == dispatcher, col(BagRow.state).not_in(ENDED)
        )
        with Session(self._engine) as session:
            return [row.model_copy() for row in session.exec(query).all()]

    def unended(self) -> Sequence[BagRow]:
        """The bags that have not ended."""
        query = select(BagRow).where(col(BagRow.state).not_in(ENDED))
        with Session(self._engine) as session:
            return [row.model_copy() for row in session.exec(query).all()]

    def dispatcher_like(self, begins: str) -> str:
        """The newest dispatcher whose id begins so; empty where there is none."""
        query = (
            select(BagRow.dispatcher)
            .where(col(BagRow.dispatcher).startswith(begins, autoescape=True))
            .order_by(col(BagRow.created).desc())
            .limit(1)
        )
        with Session(self._engine) as session:
            return str(session.exec(query).first() or "")

    def next_number(self, dispatcher: str) -> int:
        """A number that no bag of a dispatcher has yet."""
        query = select(func.max(BagRow.number)).where(BagRow.dispatcher == dispatcher)
        with Session(self._engine) as session:
            last = session.exec(query).one()
        return 0 if last is None else int(last) + 1

    def ask_to_stop(self, bag_id: str, why: str) -> None:
        """Leave word that a bag is to be cancelled."""
        self._set([bag_id], stop=why or "cancelled")

    def note(self, dispatcher: str, standings: Sequence[dict[str, Any]]) -> None:
        """How bags stand, by number."""
        by_number = {row.number: row for row in self.of(dispatcher)}
        for standing in standings:
            row = by_number.get(standing["number"])
            if row is not None and (
                row.state != standing["state"] or standing["state"] == "running"
            ):
                self._set(
                    [row.id],
                    state=standing["state"],
                    tasks=standing["tasks"],
                    summary=json.dumps(standing),
                )

    def set_state(self, dispatcher: str, state: str) -> None:
        """All bags of a dispatcher that have not ended."""
        self._set([row.id for row in self.open_of(dispatcher)], state=state)

    def _set(self, ids: Sequence[str], **values: object) -> None:
        if not ids:
            return
        with Session(self._engine) as session:
            session.execute(update(BagRow).where(col(BagRow.id).in_(ids)).values(**values))
            session.commit()


def new_bag(bag_id: str, dispatcher: str, number: int, name: str, owner: str, tasks: int) -> BagRow:
    """A bag that is handed over now."""
    return BagRow(
        id=bag_id,
        dispatcher=dispatcher,
        number=number,
        name=name,
        owner=owner,
        tasks=tasks,
        created=datetime.now(UTC),
    )
