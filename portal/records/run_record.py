"""What is kept of a run while it goes on: its journal, its books, who looks after it, whether it is to stop."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import delete
from sqlmodel import Session, select

from execmgr.book import Book
from execmgr.journal import event_from_json, event_to_json
from execmgr.states import Event
from kernel.errors import InputError
from portal.records.archive import pack, unpack
from portal.records.lease import LEASE_S, RENEW_S, at_work, new_owner
from portal.records.tables import ArchiveRow, EventRow, LeaseRow

_LOOK_S = 1.0  # between looks whether the run is to stop
SETUP = "setup"


class RunRecord:
    """The record of one run, held by one manager at a time."""

    def __init__(self, engine: SqlEngine, run_id: str) -> None:
        self._engine, self.run_id = engine, run_id
        self._position, self._renew_s = 0, 0.0
        self._owner = new_owner()

    # the lease

    def take(self) -> None:
        """Become the run's manager; InputError while another one is at work."""
        with Session(self._engine) as session:
            row = session.get(LeaseRow, self.run_id)
            if row is not None and row.owner != self._owner and at_work(row.owner, row.until_s):
                raise InputError(
                    f"run '{self.run_id}' is looked after by process {row.owner.rsplit(':', 1)[0]}",
                    fix="'vgrads cancel' asks it to stop; a dead one's lease ends within half a minute",
                )
            stop = row.stop if row is not None else ""
            session.merge(
                LeaseRow(
                    run_id=self.run_id, owner=self._owner, until_s=time.time() + LEASE_S, stop=stop
                )
            )
            session.commit()
        self._renew_s = 0.0 if stop else time.monotonic() + _LOOK_S

    def leave(self) -> None:
        """Look after the run no more."""
        with Session(self._engine) as session:
            row = session.get(LeaseRow, self.run_id)
            if row is not None and row.owner == self._owner:
                session.delete(row)
                session.commit()

    def stop_reason(self) -> str:
        """Why the run is to stop, empty while it is not; keeps the lease alive. Cheap to call often."""
        if time.monotonic() < self._renew_s:
            return ""
        self._renew_s = time.monotonic() + _LOOK_S
        with Session(self._engine) as session:
            row = session.get(LeaseRow, self.run_id)
            if row is None or row.owner != self._owner:
                raise InputError(f"run '{self.run_id}' has been taken over by another process")
            if row.until_s < time.time() + LEASE_S - RENEW_S:
                row.until_s = time.time() + LEASE_S
                session.add(row)
                session.commit()
            return str(row.stop)

    def ask_to_stop(self, reason: str) -> bool:
        """Leave word for the manager; False where nobody is at work."""
        with Session(self._engine) as session:
            row = session.get(LeaseRow, self.run_id)
            if row is None or not at_work(row.owner, row.until_s):
                return False
            row.stop = reason
            session.add(row)
            session.commit()
        return True

    def leave_word(self, reason: str) -> None:
        """Whoever becomes the run's manager next is to stop it at once."""
        with Session(self._engine) as session:
            row = session.get(LeaseRow, self.run_id)
            if row is None:
                row = LeaseRow(run_id=self.run_id, owner="nobody:0", until_s=0.0)
            row.stop = reason
            session.add(row)
            session.commit()

    def stop_now(self, reason: str) -> None:
        """The manager itself is to stop at its next look."""
        with Session(self._engine) as session:
            row = session.get_one(LeaseRow, self.run_id)
            row.stop = reason
            session.add(row)
            session.commit()
        self._renew_s = 0.0

    # the journal

    def append(self, events: Iterable[Event]) -> None:
        """Write events down, durably, in this order."""
        with Session(self._engine) as session:
            for event in events:
                body = json.dumps(event_to_json(event))
                session.add(EventRow(run_id=self.run_id, position=self._position, body=body))
                self._position += 1
            session.commit()

    def events(self) -> list[Event]:
        """Everything that was written; what is appended from now on comes after it."""
        query = select(EventRow).where(EventRow.run_id == self.run_id).order_by(EventRow.position)  # type: ignore[arg-type]
        with Session(self._engine) as session:
            rows = session.exec(query).all()
        self._position = len(rows)
        return [event_from_json(json.loads(row.body)) for row in rows]

    def begin_again(self) -> None:
        """Forget what happened: a simulated run is played from its beginning."""
        with Session(self._engine) as session:
            session.execute(delete(EventRow).where(EventRow.run_id == self.run_id))  # type: ignore[arg-type]
            session.commit()
        self._position = 0

    # the archive

    def keep_setup(self, setup: Any) -> None:
        """Keep what the run was started with."""
        self._keep(SETUP, setup)

    def keep_book(self, version: int, book: Book) -> None:
        """Keep a book; its version's event may or may not come to be written."""
        self._keep(f"book-{version}", book)

    def _keep(self, name: str, value: Any) -> None:
        with Session(self._engine) as session:
            session.merge(ArchiveRow(run_id=self.run_id, name=name, body=pack(value)))
            session.commit()

    def setup(self) -> Any:
        """What the run was started with; InputError where nothing was kept."""
        with Session(self._engine) as session:
            row = session.get(ArchiveRow, (self.run_id, SETUP))
        if row is None:
            raise InputError(f"run '{self.run_id}' kept nothing that it could be resumed from")
        return unpack(row.body, f"run '{self.run_id}'")

    def begun(self) -> bool:
        """True where a manager came as far as to keep what it began with."""
        with Session(self._engine) as session:
            names = set(
                session.exec(select(ArchiveRow.name).where(ArchiveRow.run_id == self.run_id))
            )
        return {SETUP, "book-0"} <= names

    def books(self) -> list[Book]:
        """The books by version."""
        with Session(self._engine) as session:
            rows = session.exec(select(ArchiveRow).where(ArchiveRow.run_id == self.run_id)).all()
        found = {row.name: row.body for row in rows}
        books: list[Book] = []
        while (name := f"book-{len(books)}") in found:
            books.append(unpack(found[name], f"run '{self.run_id}'"))
        return books
