"""The lease of a run: its manager, and cancellation requests for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, insert, update
from sqlalchemy import Engine as SqlEngine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql import Update
from sqlmodel import Session, col

from vgrads.execmgr.core.lease_errors import LeaseExpired, LeaseLost
from vgrads.kernel.errors import InputError
from vgrads.portal.records.heartbeat import LEASE_S, RENEW_S, Watch, is_dead, new_owner, process_of
from vgrads.portal.records.lease import database_now, heartbeat_of, make_heartbeat
from vgrads.portal.records.reconnect import DatabaseLost, await_database
from vgrads.portal.records.tables import LeaseRow

_LOOK_S = 1.0  # between checks for a cancellation request
_PAUSE_S = 0.5  # between checks of a lease that needs observation
_T = TypeVar("_T")
_OF_MANAGER = (
    col(LeaseRow.run_id) == bindparam("of_run"),
    col(LeaseRow.number) == bindparam("of_number"),
    col(LeaseRow.owner) == bindparam("of_owner"),
)
_RENEW = update(LeaseRow).where(*_OF_MANAGER)


class ManagedElsewhere(InputError):
    """Another process is the manager of the run."""


class RunLease:
    """The lease of one run, held by one manager at a time.

    A new manager gets the next fencing number; a write under an older one is rejected, in its
    transaction, with :class:`vgrads.execmgr.core.lease_errors.LeaseLost`. A manager whose database
    is unreachable waits as long as its lease lasts; then it fails with
    :class:`vgrads.execmgr.core.lease_errors.LeaseExpired`.
    """

    def __init__(self, engine: SqlEngine, run_id: str) -> None:
        self._engine, self._run_id = engine, run_id
        self._look_s, self._confirmed_s = 0.0, 0.0
        self._owner, self._number = new_owner(), 0
        self._watch = Watch()

    def take_new(self, write: Callable[[Session], object]) -> None:
        """Become the manager of a run that ``write`` adds: all in one transaction."""
        with Session(self._engine) as session:
            write(session)
            self._open(session)
            session.commit()
        self._number, self._confirmed_s = 1, time.monotonic()

    def _open(self, session: Session) -> None:
        first = {"owner": self._owner, "number": 1, "heartbeats": 1, **make_heartbeat(session)}
        session.execute(insert(LeaseRow).values(run_id=self._run_id, stop="", **first))

    def take(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Become the run's manager. Raise ManagedElsewhere while another one is active.

        Where the state of the last one needs observation, this waits for up to a lease.
        """
        while (result := self.while_leased(self._free)) is None:
            pause(_PAUSE_S)
        number, stop = result
        self._number, now = number, time.monotonic()
        # a request to stop that is there already is to be seen at once
        self._confirmed_s, self._look_s = now, 0.0 if stop else now + _LOOK_S

    def _free(self) -> tuple[int, str] | None:
        """Take the lease; return its number and the cancellation reason; None where a manager may
        still be active."""
        with Session(self._engine) as session:
            row = session.get(LeaseRow, self._run_id)
            if row is None:
                return self._open_first(session)
            if row.owner == self._owner:  # also where the answer about taking it was lost
                return row.number, row.stop
            dead = self._watch.judge(heartbeat_of(session, row)) if row.owner else True
            if dead is None:
                return None
            if not dead:
                raise ManagedElsewhere(
                    f"run '{self._run_id}' is managed by process {process_of(row.owner)}",
                    fix=(
                        "stop it with 'vgrads cancel'; the lease of a process that died ends "
                        "within "
                        "half a minute"
                    ),
                )
            number, stop = row.number + 1, row.stop
            mine = {
                "owner": self._owner,
                "number": number,
                "heartbeats": row.heartbeats + 1,
                **make_heartbeat(session),
            }
            # compare and set: a row that has changed since belongs to a manager that is alive
            observed = (
                col(LeaseRow.number) == row.number,
                col(LeaseRow.heartbeats) == row.heartbeats,
                col(LeaseRow.owner) == row.owner,
            )
            if not _update_row(
                session,
                update(LeaseRow)
                .where(col(LeaseRow.run_id) == self._run_id, *observed)
                .values(**mine),
            ):
                session.rollback()
                return None  # another process was faster: check again
            session.commit()
            return number, stop

    def _open_first(self, session: Session) -> tuple[int, str] | None:
        try:
            self._open(session)
            session.commit()
        except IntegrityError:  # another process has opened it: check again
            return None
        return 1, ""

    def leave(self) -> None:
        """Release the lease."""
        self.while_leased(self._leave)

    def _leave(self) -> None:
        # the request to stop was for this manager: a later one is not to end by it
        with self._engine.begin() as connection:
            connection.execute(_RENEW.values(owner="", stop=""), self._mine())

    def _mine(self) -> dict[str, Any]:
        return {"of_run": self._run_id, "of_number": self._number, "of_owner": self._owner}

    def persist(self, write: Callable[[Connection, bool], object]) -> None:
        """Run a transaction that only this run's current manager can make; it is also a heartbeat.

        ``write`` is called with True where it may have been committed already: the connection broke
        before the answer. No other process has written since, and a commit of the broken one ends
        before this one begins: it holds the lease's row.
        """
        self._await(lambda again: self._write(write, again))

    def _write(self, write: Callable[[Connection, bool], object], again: bool) -> None:
        # before the transaction: the lease must not seem to last longer than others think it does
        began_s = time.monotonic()
        renew = _make_renewal(self._engine.dialect.name)
        with self._engine.begin() as connection:
            values = {"heartbeat_s": began_s, **self._mine()}
            if not connection.execute(renew, values).rowcount:
                raise LeaseLost(f"run '{self._run_id}' has been taken over by another process")
            write(connection, again)
        self._confirmed_s = began_s

    def while_leased(self, work: Callable[[], _T]) -> _T:
        """Run repeatable work; retry while the database is unreachable, as long as this manager's
        lease lasts."""
        return self._await(lambda _: work())

    def _await(self, work: Callable[[bool], _T]) -> _T:
        if not self._number:  # no manager: the error is raised at once
            return work(False)
        try:
            return await_database(work, lambda: self._confirmed_s + LEASE_S)
        except DatabaseLost as error:
            raise LeaseExpired(
                (
                    f"the manager of run '{self._run_id}' could not reach the database for "
                    f"{LEASE_S:.0f} "
                    f"s: {error.what}"
                ),
                where=error.where,
                fix=f"running tasks continue; resume the run with 'vgrads resume {self._run_id}'",
            ) from error

    def confirm(self) -> None:
        """Raise LeaseLost where another process may be the manager; queries the database where that
        is uncertain."""
        if time.monotonic() - self._confirmed_s > RENEW_S:
            self.confirm_now()

    def confirm_now(self) -> None:
        """Raise LeaseLost where another process is the manager."""
        self.persist(lambda *_: None)

    def stop_reason(self) -> str:
        """Return the cancellation reason of the run, empty without one; renews the lease. Cheap to
        call often."""
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
        """Return the fencing number of this manager; 0 before it took the run."""
        return self._number


@cache
def _make_renewal(dialect: str) -> Update:
    """Return the heartbeat of a manager, composed once: it is part of every transaction of a
    run."""
    beaten = {"beaten_s": database_now(dialect), "heartbeat_s": bindparam("heartbeat_s")}
    return _RENEW.values(heartbeats=col(LeaseRow.heartbeats) + 1, **beaten)


def request_stop(engine: SqlEngine, run_id: str, reason: str) -> bool:
    """Request cancellation from the manager of a run; return False where none is active."""
    with Session(engine) as session:
        row = session.get(LeaseRow, run_id)
        if row is None or not row.owner or is_dead(heartbeat_of(session, row)):
            return False
        requested = update(LeaseRow).where(
            col(LeaseRow.run_id) == run_id,
            col(LeaseRow.number) == row.number,
            col(LeaseRow.owner) == row.owner,
        )
        message = _update_row(session, requested.values(stop=reason))
        session.commit()
    return message


def store_stop_request(engine: SqlEngine, run_id: str, reason: str) -> None:
    """Store a cancellation request for the next manager of a run."""
    with Session(engine) as session:
        row = session.get(LeaseRow, run_id) or LeaseRow(run_id=run_id, owner="")
        row.stop = reason
        session.add(row)
        try:
            session.commit()
            return
        except IntegrityError:  # its manager has started
            session.rollback()
    store_stop_request(engine, run_id, reason)


def _update_row(session: Session, statement: Any) -> bool:
    """Bypass the session, which would compare its objects in memory: a sixth of a run's time."""
    return bool(session.connection().execute(statement).rowcount)
