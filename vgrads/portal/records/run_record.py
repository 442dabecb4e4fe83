"""What is kept of a run while it goes on: its journal and its books, under the lease of whoever
looks after it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, NoReturn

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import delete, func, insert
from sqlmodel import Session, col, select

from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.journal import event_from_json, event_to_json
from vgrads.execmgr.core.states import Event
from vgrads.kernel.errors import InputError
from vgrads.portal.records.archive import pack, unpack
from vgrads.portal.records.mailbox import MessageBox
from vgrads.portal.records.run_lease import RunLease
from vgrads.portal.records.tables import ArchiveRow, EventRow, RunRow

SETUP = "setup"


class RunRecord:
    """The record of one run: a journal for whoever holds its ``lease``, and the archive of what it
    is resumed from. Anybody may read it."""

    def __init__(self, engine: SqlEngine, run_id: str) -> None:
        self._engine, self.run_id = engine, run_id
        self.lease = RunLease(engine, run_id)
        self._position = 0

    def create(self, row: RunRow, setup: object, book: Book) -> None:
        """Add a run with all that it can be resumed from, and be its manager: all in one
        transaction."""

        def write(session: Session) -> None:
            session.add(row)
            session.flush()
            session.add(ArchiveRow(run_id=self.run_id, name=SETUP, body=pack(setup)))
            session.add(ArchiveRow(run_id=self.run_id, name="book-0", body=pack(book)))

        self.lease.take_new(write)

    def confirm(self) -> None:
        """LeaseLost where somebody else may be the manager by now."""
        self.lease.confirm()

    def stop_reason(self) -> str:
        """Why the run is to stop, empty while it is not; keeps the lease alive."""
        return self.lease.stop_reason()

    def mailbox(self) -> MessageBox:
        """From and to whoever releases the tasks of the run, under this manager's lease."""
        return MessageBox(self._engine, self.run_id, self.lease)

    # the journal

    def append(self, events: Iterable[Event]) -> None:
        """Write events down, durably, in this order."""
        rows = [
            {"run_id": self.run_id, "position": position, "body": json.dumps(event_to_json(event))}
            for position, event in enumerate(events, self._position)
        ]

        def write(session: Session, again: bool) -> None:
            if rows and not (again and self._count(session) == self._position + len(rows)):
                session.connection().execute(insert(EventRow), rows)

        self.lease.persist(write)
        self._position += len(rows)

    def _count(self, session: Session) -> int:
        query = select(func.count()).where(EventRow.run_id == self.run_id)
        return session.exec(query).one()

    def asked_again(self) -> Counter[str]:
        """How often each slot was asked for anew."""
        told = col(EventRow.body).like('{"kind": "again"%')
        query = select(EventRow.body).where(EventRow.run_id == self.run_id, told)
        return Counter(json.loads(body)["slot"] for body in self._all(query))

    def events(self, until: int | None = None) -> list[Event]:
        """What was written, all or up to a position; what is appended from now on comes after it.

        InputError where an event is damaged or missing: it names the first one, and what can be
        saved.
        """
        query = (
            select(EventRow).where(EventRow.run_id == self.run_id).order_by(col(EventRow.position))
        )
        rows = self.lease.while_leased(lambda: self._all(query))
        found: list[Event] = []
        for row in rows if until is None else rows[:until]:
            if row.position != len(found):
                self.refuse_event(len(found), "is missing")
            try:
                found.append(event_from_json(json.loads(row.body)))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                self.refuse_event(row.position, f"cannot be read: {error!r}")
        if until is not None and until > len(found):
            raise InputError(f"there are only {len(found)}", where="--from")
        self._position = len(found)
        return found

    def refuse_event(self, position: int, what: str) -> NoReturn:
        """InputError about an event of the journal."""
        raise InputError(
            f"event {position} {what}; the {position} before it are whole",
            where=f"journal of run '{self.run_id}'",
            fix=(
                f"vgrads resume {self.run_id} --from {position} goes on from there, what "
                "happened later is found or done again"
            ),
        )

    def cut(self, position: int) -> None:
        """Forget the events from a position on."""
        later = (col(EventRow.run_id) == self.run_id, col(EventRow.position) >= position)
        self.lease.persist(lambda session, _: session.execute(delete(EventRow).where(*later)))
        self._position = position

    def begin_again(self) -> None:
        """Forget what happened: a simulated run is played from its beginning."""
        self.cut(0)

    # the archive

    def keep_setup(self, setup: object) -> None:
        """Keep what the run was started with."""
        self._keep(SETUP, setup)

    def keep_book(self, version: int, book: Book) -> None:
        """Keep a book; its version's event may or may not come to be written."""
        self._keep(f"book-{version}", book)

    def _keep(self, name: str, value: object) -> None:
        body = pack(value)
        self.lease.persist(
            lambda session, _: session.merge(ArchiveRow(run_id=self.run_id, name=name, body=body))
        )

    def setup(self) -> Any:
        """What the run was started with; InputError where nothing was kept."""
        mine = (col(ArchiveRow.run_id) == self.run_id, col(ArchiveRow.name) == SETUP)
        rows = self.lease.while_leased(lambda: self._all(select(ArchiveRow).where(*mine)))
        if not rows:
            self.refuse_unbegun()
        return unpack(rows[0].body, f"run '{self.run_id}'")

    def refuse_unbegun(self) -> NoReturn:
        """InputError for a run that ended before it was written down what it begins with."""
        raise InputError(
            f"run '{self.run_id}' was stopped before it began, so there is nothing to resume",
            fix=f"vgrads cancel {self.run_id} ends it; then run its set again",
        )

    def begun(self) -> bool:
        """True where a manager came as far as to keep what it began with."""
        with Session(self._engine) as session:
            names = set(
                session.exec(select(ArchiveRow.name).where(ArchiveRow.run_id == self.run_id))
            )
        return {SETUP, "book-0"} <= names

    def books(self) -> list[Book]:
        """The books by version."""
        mine = select(ArchiveRow).where(ArchiveRow.run_id == self.run_id)
        rows = self.lease.while_leased(lambda: self._all(mine))
        found = {row.name: row.body for row in rows}
        books: list[Book] = []
        while (name := f"book-{len(books)}") in found:
            books.append(unpack(found[name], f"run '{self.run_id}'"))
        return books

    def _all(self, query: Any) -> list[Any]:
        with Session(self._engine) as session:
            return list(session.exec(query))
