"""Learned run times in the database: each record once, so that concurrent learning loses
nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import Executable, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col

from vgrads.api.plans.runtimes import NOTHING, RunTimes, estimated, learned
from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.records.tables import LearnedRow, ScoreRow, TaskRecordRow
from vgrads.runtimes.common import Common, estimate, from_json, to_json
from vgrads.runtimes.machines import Scores
from vgrads.runtimes.task_history import (
    KindRecords,
    TaskHistory,
    forget,
    learn,
    record_json,
    records_from_json,
)
from vgrads.traces.task_record import TaskRecord

_TOGETHER = 200  # keys or rows in one statement
_TIMES = "run times"


class StoredRecords(KindRecords):
    """Stored records, each kind parsed when it is first needed."""

    def __init__(self, rows: Iterable[tuple[str, str]]) -> None:
        self._bodies: dict[str, list[str]] = {}
        self._parsed: dict[str, tuple[TaskRecord, ...]] = {}
        for kind, body in rows:
            self._bodies.setdefault(kind, []).append(body)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Return the names, sorted."""
        return tuple(sorted(self._bodies))

    def count(self, kind: str) -> int:
        """Return how many records a kind has."""
        return len(self._bodies.get(kind, ()))

    def of(self, kind: str) -> tuple[TaskRecord, ...]:
        """Return the records of one kind; none for a name without any."""
        if kind not in self._bodies:
            return ()
        if kind not in self._parsed:
            self._parsed[kind] = learn(TaskHistory(), records_from_json(self._bodies[kind])).records
        return self._parsed[kind]


class RunTimeRecords:
    """Task records and scores of machines."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    def history(self, kinds: Iterable[str] | None = None) -> TaskHistory:
        """Return all records, or those of some kinds, equal for any order of insertion."""
        if kinds is None:
            return _history(self._rows(_ALL))
        names = sorted(set(kinds))
        parts = [names[at : at + _TOGETHER] for at in range(0, len(names), _TOGETHER)]
        return _history(
            row
            for some in parts
            for row in self._rows(_ALL.where(col(TaskRecordRow.kind).in_(some)))
        )

    def learned(self) -> RunTimes:
        """Return the learned run times for planning."""
        rows, scores = self._rows(_ALL), self.scores()
        if not rows:
            return learned(scores=scores) if scores else NOTHING
        return estimated(StoredRecords(rows), self._common())

    def learn(self, records: Iterable[TaskRecord]) -> tuple[int, int]:
        """Store records; return how many are new, and the total. Raise InputError, with nothing
        stored, for records that do not fit each other or the stored ones."""
        count = self._store(list(records))
        if count:
            self._estimate()
        with Session(self._engine) as session:
            return count, session.scalar(select(func.count()).select_from(TaskRecordRow)) or 0

    def _store(self, fresh: Sequence[TaskRecord]) -> int:
        """Store records; return how many are new. Raise InputError as :meth:`learn`."""
        before = self.history(record.kind for record in fresh)
        rows, old = _rows(learn(before, fresh)), _rows(before)
        new = [row for key, row in rows.items() if key not in old]
        self._add(new)
        self._drop([key for key in old if key not in rows])
        return len(new)

    def learn_by_kind(self, records: Mapping[str, Sequence[TaskRecord]]) -> list[InputError]:
        """Store the records of each kind that does not mix tools; return the errors of the
        others."""
        try:
            self.learn(task_record for some in records.values() for task_record in some)
            return []
        except InputError:
            pass
        refused, count = list[InputError](), 0
        for some in records.values():
            try:
                count += self._store(some)
            except InputError as error:
                refused.append(error)
        if count:
            self._estimate()
        return refused

    def forget(self, kind: str) -> int:
        """Delete a kind; return how many records it had. Raise InputError where it has none."""
        history = self.history((kind, kind.rpartition(":")[2]))
        rest = _rows(forget(history, kind))
        gone = [key for key in _rows(history) if key not in rest]
        self._drop(gone)
        self._estimate()
        return len(gone)

    def scores(self) -> dict[str, Scores]:
        """Return machine → benchmark scores."""
        with Session(self._engine) as session:
            rows = session.execute(select(ScoreRow)).scalars().all()
            return {row.machine: Scores(cpu=row.cpu, io=row.io) for row in rows}

    def put_score(self, machine: str, scores: Scores) -> None:
        """Store a machine's scores in place of earlier ones."""
        if not (machine and scores.cpu > 0 and scores.io > 0):
            raise InputError("scores must be numbers above 0", where=machine or "machine")
        with Session(self._engine) as session:
            session.merge(ScoreRow(machine=machine, cpu=scores.cpu, io=scores.io))
            session.commit()
        self._estimate()

    def _rows(self, query: Executable) -> list[tuple[str, str]]:
        with self._engine.connect() as connection:
            return [(row[0], row[1]) for row in connection.execute(query)]

    def _add(self, rows: Sequence[dict[str, str]]) -> None:
        """Insert rows; a concurrent process may have inserted the same."""
        dialect = sqlite if self._engine.dialect.name == "sqlite" else postgresql
        query = dialect.insert(TaskRecordRow).on_conflict_do_nothing()
        with Session(self._engine) as session:
            for at in range(0, len(rows), _TOGETHER):
                session.execute(query, rows[at : at + _TOGETHER])
            session.commit()

    def _drop(self, keys: list[str]) -> None:
        with Session(self._engine) as session:
            for at in range(0, len(keys), _TOGETHER):
                some = keys[at : at + _TOGETHER]
                session.execute(delete(TaskRecordRow).where(col(TaskRecordRow.key).in_(some)))
            session.commit()

    def _common(self) -> Common:
        """Return what was estimated from all records; estimate it where it is not stored."""
        with Session(self._engine) as session:
            row = session.get(LearnedRow, _TIMES)
        stored = None if row is None else from_json(row.body)
        return stored or self._estimate()

    def _estimate(self) -> Common:
        """Estimate anew, from all records. Where it cannot be stored, later questions do it."""
        common = estimate(StoredRecords(self._rows(_ALL)), self.scores())
        try:
            with Session(self._engine) as session:
                session.merge(LearnedRow(what=_TIMES, body=to_json(common)))
                session.commit()
        except SiteError:
            pass
        return common


_ALL = select(col(TaskRecordRow.kind), col(TaskRecordRow.body))


def _history(rows: Iterable[tuple[str, str]]) -> TaskHistory:
    return learn(TaskHistory(), records_from_json([body for _, body in rows]))


def _rows(history: TaskHistory) -> dict[str, dict[str, str]]:
    """Return key → the values of a row."""
    result = {}
    for record in history.records:
        body = record_json(record)
        key = hashlib.sha256(body.encode()).hexdigest()
        result[key] = {"key": key, "kind": record.kind, "body": body}
    return result
