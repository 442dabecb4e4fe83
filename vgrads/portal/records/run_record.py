"""What is kept of a run while it goes on: its journal, its books, who looks after it, whether it is
to stop."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import delete, func, insert, update
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.journal import LeaseExpired, LeaseLost, event_from_json, event_to_json
from vgrads.execmgr.core.states import Event
from vgrads.kernel.errors import InputError
from vgrads.portal.records.archive import pack, unpack
from vgrads.portal.records.lease import (
    LEASE_S,
    RENEW_S,
    Watch,
    beat_of,
    is_dead,
    new_owner,
    process_of,
    sign_of_life,
)
from vgrads.portal.records.mailbox import MessageBox
from vgrads.portal.records.reconnect import DatabaseLost, await_database
from vgrads.portal.records.tables import ArchiveRow, EventRow, LeaseRow, RunRow

_LOOK_S = 1.0  # between looks whether the run is to stop
_PAUSE_S = 0.5  # between looks at a lease that only time can tell of
SETUP = "setup"
_T = TypeVar("_T")


class RunRecord:
    """The record of one run, held by one manager at a time.

    Whoever becomes the manager gets the next fencing number; what is written under an older one is
    refused, in the transaction that would write it, with
    :class:`vgrads.execmgr.core.journal.LeaseLost`. A manager whose database cannot be reached waits
    for it as long as its lease lasts; then it is over, with
    :class:`vgrads.execmgr.core.journal.LeaseExpired`.
    """

    def __init__(self, engine: SqlEngine, run_id: str, watch: Watch | None = None) -> None:
        self._engine, self.run_id = engine, run_id
        self._position, self._look_s, self._confirmed_s = 0, 0.0, 0.0
        self._owner, self._number = new_owner(), 0
        self._watch = watch or Watch()

    def create(self, row: RunRow, setup: object, book: Book) -> None:
        """Add a run with all that it can be resumed from, and be its manager: all in one
        transaction."""
        with Session(self._engine) as session:
            session.add(row)
            session.flush()
            first = {"owner": self._owner, "number": 1, "beats": 1, **sign_of_life(session)}
            session.execute(insert(LeaseRow).values(run_id=self.run_id, stop="", **first))
            session.add(ArchiveRow(run_id=self.run_id, name=SETUP, body=pack(setup)))
            session.add(ArchiveRow(run_id=self.run_id, name="book-0", body=pack(book)))
            session.commit()
        self._number, self._confirmed_s = 1, time.monotonic()

    # the lease

    def take(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Become the run's manager; InputError while another one is at work.

        Where only time can tell whether the last one is, this waits for up to a lease.
        """
        while (found := self.while_leased(self._free)) is None:
            pause(_PAUSE_S)
        number, stop = found
        self._number, now = number, time.monotonic()
        self._confirmed_s, self._look_s = now, 0.0 if stop else now + _LOOK_S

    def _free(self) -> tuple[int, str] | None:
        """The lease, taken: its number and why to stop; None where somebody may still be at
        work."""
        with Session(self._engine) as session:
            row = session.get(LeaseRow, self.run_id)
            if row is None:
                return self._open_first(session)
            if row.owner == self._owner:  # also where the answer that it was taken was lost
                return row.number, row.stop
            dead = self._watch.judge(beat_of(session, row)) if row.owner else True
            if dead is None:
                return None
            if not dead:
                self._refuse(row.owner)
            number, stop = row.number + 1, row.stop
            mine = {
                "owner": self._owner,
                "number": number,
                "beats": row.beats + 1,
                **sign_of_life(session),
            }
            seen = (
                col(LeaseRow.number) == row.number,
                col(LeaseRow.beats) == row.beats,
                col(LeaseRow.owner) == row.owner,
            )
            if not _changed(
                session,
                update(LeaseRow).where(col(LeaseRow.run_id) == self.run_id, *seen).values(**mine),
            ):
                session.rollback()
                return None  # somebody was quicker: look again at whom
            session.commit()
            return number, stop

    def _open_first(self, session: Session) -> tuple[int, str] | None:
        try:
            first = insert(LeaseRow).values(
                run_id=self.run_id,
                owner=self._owner,
                stop="",
                number=1,
                beats=1,
                **sign_of_life(session),
            )
            session.execute(first)
            session.commit()
        except IntegrityError:
            return None
        return 1, ""

    def _refuse(self, owner: str) -> NoReturn:
        raise InputError(
            f"run '{self.run_id}' is looked after by process {process_of(owner)}",
            fix="'vgrads cancel' asks it to stop; a dead one's lease ends within half a minute",
        )

    def leave(self) -> None:
        """Look after the run no more."""
        self.while_leased(self._leave)

    def _leave(self) -> None:
        mine = update(LeaseRow).where(*self._mine()).values(owner="", stop="")
        with Session(self._engine) as session:
            session.execute(mine)
            session.commit()

    def _mine(self) -> tuple[Any, ...]:
        return (
            col(LeaseRow.run_id) == self.run_id,
            col(LeaseRow.number) == self._number,
            col(LeaseRow.owner) == self._owner,
        )

    def persist(self, write: Callable[[Session, bool], object]) -> None:
        """A transaction that only this run's present manager can make; it is a sign of life too.

        ``write`` is given True where it may have been committed already: the connection broke
        before the answer came. Nobody else has written since, and what the broken one may still
        commit ends before this one begins: it holds the lease's row.
        """
        self._await(lambda again: self._write(write, again))

    def _write(self, write: Callable[[Session, bool], object], again: bool) -> None:
        began_s = time.monotonic()
        with Session(self._engine) as session:
            alive = {"beats": col(LeaseRow.beats) + 1, **sign_of_life(session)}
            if not _changed(session, update(LeaseRow).where(*self._mine()).values(**alive)):
                raise LeaseLost(f"run '{self.run_id}' has been taken over by another process")
            write(session, again)
            session.commit()
        self._confirmed_s = began_s

    def while_leased(self, work: Callable[[], _T]) -> _T:
        """Do what may be done twice; where the database is lost, again as long as this manager's
        lease lasts."""
        return self._await(lambda _: work())

    def _await(self, work: Callable[[bool], _T]) -> _T:
        if not self._number:  # nobody's manager: who asks is told at once
            return work(False)
        try:
            return await_database(work, lambda: self._confirmed_s + LEASE_S)
        except DatabaseLost as error:
            raise LeaseExpired(
                (
                    f"the manager of run '{self.run_id}' could not reach it for {LEASE_S:.0f} "
                    f"s: {error.what}"
                ),
                where=error.where,
                fix=f"what runs goes on; 'vgrads resume {self.run_id}' finds it",
            ) from error

    def confirm(self) -> None:
        """LeaseLost where somebody else may be the manager by now; asks the database where that is
        not sure."""
        if time.monotonic() - self._confirmed_s > RENEW_S:
            self.confirm_now()

    def confirm_now(self) -> None:
        """LeaseLost where somebody else is the manager by now."""
        self.persist(lambda *_: None)

    def stop_reason(self) -> str:
        """Why the run is to stop, empty while it is not; keeps the lease alive. Cheap to call
        often."""
        if time.monotonic() < self._look_s:
            return ""
        self.confirm()
        self._look_s = time.monotonic() + _LOOK_S
        return self.while_leased(self._stop)

    def _stop(self) -> str:
        with Session(self._engine) as session:
            row = session.get(LeaseRow, self.run_id)
            return row.stop if row is not None and row.number == self._number else ""

    def ask_to_stop(self, reason: str) -> bool:
        """Leave word for the manager; False where nobody is at work."""
        with Session(self._engine) as session:
            row = session.get(LeaseRow, self.run_id)
            if row is None or not row.owner or is_dead(beat_of(session, row)):
                return False
            asked = update(LeaseRow).where(
                col(LeaseRow.run_id) == self.run_id,
                col(LeaseRow.number) == row.number,
                col(LeaseRow.owner) == row.owner,
            )
            told = _changed(session, asked.values(stop=reason))
            session.commit()
        return told

    def leave_word(self, reason: str) -> None:
        """Whoever becomes the run's manager next is to stop it at once."""
        with Session(self._engine) as session:
            row = session.get(LeaseRow, self.run_id) or LeaseRow(run_id=self.run_id, owner="")
            row.stop = reason
            session.add(row)
            try:
                session.commit()
                return
            except IntegrityError:  # its manager came meanwhile
                session.rollback()
        self.leave_word(reason)

    @property
    def number(self) -> int:
        """The fencing number of this manager; 0 before it took the run."""
        return self._number

    def mailbox(self) -> MessageBox:
        """From and to whoever releases the tasks of the run, under this manager's lease."""
        return MessageBox(self._engine, self.run_id, self)

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

        self.persist(write)
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
        rows = self.while_leased(lambda: self._all(query))
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
        self.persist(lambda session, _: session.execute(delete(EventRow).where(*later)))
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
        self.persist(
            lambda session, _: session.merge(ArchiveRow(run_id=self.run_id, name=name, body=body))
        )

    def setup(self) -> Any:
        """What the run was started with; InputError where nothing was kept."""
        mine = (col(ArchiveRow.run_id) == self.run_id, col(ArchiveRow.name) == SETUP)
        rows = self.while_leased(lambda: self._all(select(ArchiveRow).where(*mine)))
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
        rows = self.while_leased(lambda: self._all(mine))
        found = {row.name: row.body for row in rows}
        books: list[Book] = []
        while (name := f"book-{len(books)}") in found:
            books.append(unpack(found[name], f"run '{self.run_id}'"))
        return books

    def _all(self, query: Any) -> list[Any]:
        with Session(self._engine) as session:
            return list(session.exec(query))


def _changed(session: Session, statement: Any) -> bool:
    """Past the session, which would compare what it has in memory: a sixth of a run's time."""
    return bool(session.connection().execute(statement).rowcount)
