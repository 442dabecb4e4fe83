"""The record of an active run: its journal and its execution plans, under the lease of its
manager."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from sqlalchemy import Connection, delete, func, insert, select
from sqlalchemy import Engine as SqlEngine
from sqlmodel import Session, col

from vgrads.api.plans.run_setup import Setup
from vgrads.execmgr.core.alarm_checks import AlarmSender
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.journal import event_to_json
from vgrads.execmgr.core.states import Event
from vgrads.portal.records.archive import pack
from vgrads.portal.records.engine_reader import EngineReader
from vgrads.portal.records.mailbox import MessageBox
from vgrads.portal.records.reading.runs import SETUP, RunReader
from vgrads.portal.records.run_lease import RunLease
from vgrads.portal.records.tables import ArchiveRow, EventRow, RunRow

_APPEND = insert(EventRow)


class RunRecord:
    """The record of one run: a journal for the holder of its ``lease``, and the archive for
    resuming it. Any process may read it."""

    def __init__(self, engine: SqlEngine, run_id: str) -> None:
        self._engine, self.run_id = engine, run_id
        self.lease, self.stored = RunLease(engine, run_id), RunReader(EngineReader(engine), run_id)
        self._position = 0
        self._alarms: AlarmSender | None = None

    def create(self, row: RunRow, setup: object, execution: ExecutionPlan) -> None:
        """Add a run with all data for resuming it, and become its manager: all in one
        transaction."""

        def write(session: Session) -> None:
            session.add(row)
            # the rows below refer to that of the run
            session.flush()
            session.add(ArchiveRow(run_id=self.run_id, name=SETUP, body=pack(setup)))
            session.add(ArchiveRow(run_id=self.run_id, name="book-0", body=pack(execution)))

        self.lease.take_new(write)

    def confirm(self) -> None:
        """Raise LeaseLost where another process may be the manager."""
        self.lease.confirm()

    def stop_reason(self) -> str:
        """Return the cancellation reason of the run, empty without one; renews the lease."""
        return self.lease.stop_reason()

    def mailbox(self) -> MessageBox:
        """Return the mailbox for the caller that releases the run's tasks, under this manager's
        lease."""
        return MessageBox(self._engine, self.run_id, self.lease)

    def notify_by(self, sender: AlarmSender) -> None:
        """Let messages about the promise be sent."""
        self._alarms = sender

    def alarms(self) -> AlarmSender | None:
        """Return what sends messages about the promise; None: nothing is sent."""
        return self._alarms

    # the journal

    def append(self, events: Iterable[Event]) -> None:
        """Append events durably, in this order."""
        rows = [
            {"run_id": self.run_id, "position": position, "body": json.dumps(event_to_json(event))}
            for position, event in enumerate(events, self._position)
        ]

        def write(connection: Connection, again: bool) -> None:
            # a first try may have been committed although its answer was lost
            if rows and not (again and self._count(connection) == self._position + len(rows)):
                connection.execute(_APPEND, rows)

        self.lease.persist(write)
        self._position += len(rows)

    def _count(self, connection: Connection) -> int:
        query = select(func.count()).where(col(EventRow.run_id) == self.run_id)
        return connection.execute(query).scalar_one()

    def repeated_requests(self) -> Counter[str]:
        """Return how often each slot was requested again."""
        return self.lease.while_leased(self.stored.repeated_requests)

    def events(self, until: int | None = None) -> list[Event]:
        """Return the stored events, all or up to a position; later appends follow them. Raise
        InputError as :meth:`RunReader.events`."""
        results = self.lease.while_leased(lambda: self.stored.events(until))
        self._position = len(results)
        return results

    def cut(self, position: int) -> None:
        """Delete the events from a position on."""
        later = (col(EventRow.run_id) == self.run_id, col(EventRow.position) >= position)
        self.lease.persist(lambda connection, _: connection.execute(delete(EventRow).where(*later)))
        self._position = position

    def begin_again(self) -> None:
        """Delete all events: a simulated run is simulated from its start."""
        self.cut(0)

    # the archive

    def keep_setup(self, setup: object) -> None:
        """Store the run's start parameters."""
        self._keep(SETUP, setup)

    def store_execution(self, version: int, execution: ExecutionPlan) -> None:
        """Store an execution plan; its version's event may or may not be written later."""
        self._keep(f"book-{version}", execution)

    def _keep(self, name: str, value: object) -> None:
        row = {"run_id": self.run_id, "name": name, "body": pack(value)}

        def write(connection: Connection, _: bool) -> None:
            mine = (col(ArchiveRow.run_id) == self.run_id, col(ArchiveRow.name) == name)
            connection.execute(delete(ArchiveRow).where(*mine))
            connection.execute(insert(ArchiveRow), row)

        self.lease.persist(write)

    def setup(self) -> Setup:
        """Return the run's start parameters. Raise InputError where none were stored."""
        return self.lease.while_leased(self.stored.setup)

    def begun(self) -> bool:
        """Return True where a manager stored the start parameters."""
        return self.stored.begun()

    def executions(self) -> list[ExecutionPlan]:
        """Return the execution plans by version."""
        return self.lease.while_leased(self.stored.executions)
