"""The mailbox of a run in the database: see
:mod:`vgrads.execmgr.mailbox`.

The number of a message is its key, so a reader continues after the last one read, even after a
crash.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sqlalchemy import Connection, func, insert, select
from sqlalchemy import Engine as SqlEngine
from sqlmodel import Session, col

from vgrads.portal.records.tables import MessageRow

if TYPE_CHECKING:
    from vgrads.execmgr.core.states import Release, RequestChange
    from vgrads.execmgr.mailbox import Mail, TaskUpdate
    from vgrads.planner.snapshot import TaskKey
    from vgrads.workflows.task import Task

Json = dict[str, Any]
_T = TypeVar("_T")
_MOST = 20_000
"""Messages per read."""


class Lease(Protocol):
    """The lease under which a run's manager writes: see
    :class:`vgrads.portal.records.run_lease.RunLease`."""

    def persist(self, write: Callable[[Connection, bool], object]) -> None:
        """Run a transaction of the manager; ``write`` is called with True where it may have been
        committed already."""

    def while_leased(self, work: Callable[[], _T]) -> _T:
        """Run repeatable work."""


class MessageBox:
    """A :class:`vgrads.execmgr.mailbox.Mailbox` for a run's manager, and the other end for the
    caller that releases its tasks.

    ``lease``: the manager's, which waits while the database is unreachable.
    """

    def __init__(self, engine: SqlEngine, run_id: str, lease: Lease | None = None) -> None:
        self._engine, self._run_id, self._lease = engine, run_id, lease

    # the run's end

    def take(self, after: int) -> Mail | None:
        """Return the messages after this number."""
        rows = (
            self._lease.while_leased(lambda: self._read(after, True))
            if self._lease
            else self._read(after, True)
        )
        if not rows:
            return None
        # imported late: the service only stores messages, and the manager of a run takes them
        from vgrads.execmgr.core.journal import change_from_json
        from vgrads.execmgr.core.states import Release
        from vgrads.execmgr.mailbox import Mail
        from vgrads.workflows.sets import TaskDocument, make_task

        released: dict[TaskKey, Release] = {}
        abandoned: dict[TaskKey, str] = {}
        added: list[tuple[str, Task]] = []
        changes: list[tuple[int, RequestChange]] = []
        acknowledged: list[tuple[int, str]] = []
        for number, body in rows:
            key = (body.get("workflow", ""), body.get("task", ""))
            if body["kind"] == "release":
                released[key] = Release(
                    number=number, command=body["command"], memory_mib=body["memory_mib"]
                )
                # of a release and a give-up of one task the later one counts
                abandoned.pop(key, None)
            elif body["kind"] == "give-up":
                abandoned[key] = body["reason"]
            elif body["kind"] == "add":
                added.append(
                    (body["workflow"], make_task(TaskDocument.model_validate(body["document"])))
                )
            elif body["kind"] == "change":
                changes.append((number, change_from_json(body["change"])))
            elif body["kind"] == "acknowledge":
                acknowledged.append((body["upto"], body["by"]))
        return Mail(
            upto=rows[-1][0],
            released=tuple(released.items()),
            abandoned=tuple(abandoned.items()),
            added=tuple(added),
            changes=tuple(changes),
            acknowledged=tuple(acknowledged),
        )

    def answer(self, answers: Sequence[TaskUpdate]) -> None:
        """Store these answers, each once."""
        rows = self._rows(False, (_answer(answer) for answer in answers))
        if not rows:
            return
        newest: list[int] = []  # before them; only this manager answers for the run

        def write(connection: Connection, again: bool) -> None:
            mine = (col(MessageRow.run_id) == self._run_id, col(MessageRow.inward).is_(False))
            newest_id = select(func.max(col(MessageRow.id))).where(*mine)
            last = connection.execute(newest_id).scalar() or 0
            # they were stored, and only the confirmation was lost
            if again and newest and last > newest[0]:
                return
            newest[:] = [last]
            connection.execute(insert(MessageRow), rows)

        if self._lease is None:
            raise RuntimeError("only the manager of a run can answer")
        self._lease.persist(write)

    # the other end

    def report(self, messages: Iterable[Mapping[str, Any]]) -> int:
        """Store messages for the run, all or none; return the number of the last one before
        them."""
        with Session(self._engine) as session:
            last = session.execute(select(func.max(col(MessageRow.id)))).scalar()
        self._write(True, messages)
        return last or 0

    def send(self, message: Mapping[str, Any]) -> int:
        """Store one message for the run; return its number."""
        with Session(self._engine) as session:
            row = MessageRow(run_id=self._run_id, inward=True, body=json.dumps(message))
            session.add(row)
            session.commit()
            session.refresh(row)
            return int(row.id or 0)

    def newest_change(self) -> int:
        """Return the number of the last message that changes the request; 0 without one."""
        changes = (number for number, body in self._read(0, True) if body["kind"] == "change")
        return max(changes, default=0)

    def added(self, after: int) -> tuple[int, list[tuple[str, str]]]:
        """Return the tasks (workflow, task) that messages after this number add, and the number of
        the last message."""
        keys, rows = [], self._read(after, True)
        while rows:
            after = rows[-1][0]
            keys += [(b["workflow"], b["task"]) for _, b in rows if b["kind"] == "add"]
            rows = self._read(after, True)
        return after, keys

    def answers(self, after: int) -> list[tuple[int, Json]]:
        """Return the run's answers after this number."""
        return self._read(after, False)

    def _rows(self, inward: bool, bodies: Iterable[Mapping[str, Any]]) -> list[Json]:
        return [
            {"run_id": self._run_id, "inward": inward, "body": json.dumps(body)} for body in bodies
        ]

    def _write(self, inward: bool, bodies: Iterable[Mapping[str, Any]]) -> None:
        rows = self._rows(inward, bodies)
        if rows:
            with Session(self._engine) as session:
                session.execute(insert(MessageRow), rows)
                session.commit()

    def _read(self, after: int, inward: bool) -> list[tuple[int, Json]]:
        mine = (col(MessageRow.run_id) == self._run_id, col(MessageRow.inward) == inward)
        query = select(col(MessageRow.id), col(MessageRow.body)).where(
            *mine, col(MessageRow.id) > after
        )
        with Session(self._engine) as session:
            rows = session.execute(query.order_by(col(MessageRow.id)).limit(_MOST)).all()
        return [(number, json.loads(body)) for number, body in rows]


def _answer(update: TaskUpdate) -> Json:
    row = asdict(update)
    workflow, task = row.pop("task")
    return {"workflow": workflow, "task": task, **row}
