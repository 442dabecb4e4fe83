"""The lease of a run: who looks after it, and word to whoever does that the run is to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import insert, update
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col

from vgrads.execmgr.core.journal import LeaseExpired, LeaseLost
from vgrads.kernel.errors import InputError
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
from vgrads.portal.records.reconnect import DatabaseLost, await_database
from vgrads.portal.records.tables import LeaseRow

_LOOK_S = 1.0  # between looks whether the run is to stop
_PAUSE_S = 0.5  # between looks at a lease that only time can tell of
_T = TypeVar("_T")


class RunLease:
    """The lease of one run, held by one manager at a time.

    Whoever becomes the manager gets the next fencing number; what is written under an older one is
    refused, in the transaction that would write it, with
    :class:`vgrads.execmgr.core.journal.LeaseLost`. A manager whose database cannot be reached waits
    for it as long as its lease lasts; then it is over, with
    :class:`vgrads.execmgr.core.journal.LeaseExpired`.
    """

    def __init__(self, engine: SqlEngine, run_id: str) -> None:
        self._engine, self._run_id = engine, run_id
        self._look_s, self._confirmed_s = 0.0, 0.0
        self._owner, self._number = new_owner(), 0
        self._watch = Watch()

    def take_new(self, write: Callable[[Session], object]) -> None:
        """Be the manager of a run that ``write`` adds: all in one transaction."""
        with Session(self._engine) as session:
            write(session)
            self._open(session)
            session.commit()
        self._number, self._confirmed_s = 1, time.monotonic()

    def _open(self, session: Session) -> None:
        first = {"owner": self._owner, "number": 1, "beats": 1, **sign_of_life(session)}
        session.execute(insert(LeaseRow).values(run_id=self._run_id, stop="", **first))

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
            row = session.get(LeaseRow, self._run_id)
            if row is None:
                return self._open_first(session)
            if row.owner == self._owner:  # also where the answer that it was taken was lost
                return row.number, row.stop
            dead = self._watch.judge(beat_of(session, row)) if row.owner else True
            if dead is None:
                return None
            if not dead:
                raise InputError(
                    f"run '{self._run_id}' is looked after by process {process_of(row.owner)}",
                    fix=(
                        "'vgrads cancel' asks it to stop; a dead one's lease ends within half a "
                        "minute"
                    ),
                )
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
                update(LeaseRow).where(col(LeaseRow.run_id) == self._run_id, *seen).values(**mine),
            ):
                session.rollback()
                return None  # somebody was quicker: look again at whom
            session.commit()
            return number, stop

    def _open_first(self, session: Session) -> tuple[int, str] | None:
        try:
            self._open(session)
            session.commit()
        except IntegrityError:
            return None
        return 1, ""

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
            col(LeaseRow.run_id) == self._run_id,
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
                raise LeaseLost(f"run '{self._run_id}' has been taken over by another process")
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
                    f"the manager of run '{self._run_id}' could not reach it for {LEASE_S:.0f} "
                    f"s: {error.what}"
                ),
                where=error.where,
                fix=f"what runs goes on; 'vgrads resume {self._run_id}' finds it",
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
            row = session.get(LeaseRow, self._run_id)
            return row.stop if row is not None and row.number == self._number else ""

    @property
    def number(self) -> int:
        """The fencing number of this manager; 0 before it took the run."""
        return self._number


def ask_manager_to_stop(engine: SqlEngine, run_id: str, reason: str) -> bool:
    """Leave word for the manager of a run; False where nobody is at work."""
    with Session(engine) as session:
        row = session.get(LeaseRow, run_id)
        if row is None or not row.owner or is_dead(beat_of(session, row)):
            return False
        asked = update(LeaseRow).where(
            col(LeaseRow.run_id) == run_id,
            col(LeaseRow.number) == row.number,
            col(LeaseRow.owner) == row.owner,
        )
        told = _changed(session, asked.values(stop=reason))
        session.commit()
    return told


def leave_word(engine: SqlEngine, run_id: str, reason: str) -> None:
    """Whoever becomes a run's manager next is to stop it at once."""
    with Session(engine) as session:
        row = session.get(LeaseRow, run_id) or LeaseRow(run_id=run_id, owner="")
        row.stop = reason
        session.add(row)
        try:
            session.commit()
            return
        except IntegrityError:  # its manager came meanwhile
            session.rollback()
    leave_word(engine, run_id, reason)


def _changed(session: Session, statement: Any) -> bool:
    """Past the session, which would compare what it has in memory: a sixth of a run's time."""
    return bool(session.connection().execute(statement).rowcount)
