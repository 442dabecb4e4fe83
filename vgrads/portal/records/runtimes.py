"""Learned run times in the database: each record once, so that concurrent learning loses
nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy import Engine as SqlEngine
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col

from vgrads.api.plans.runtimes import NOTHING, RunTimes, learn_from_estimates
from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.records.tables import (
    OPERATOR,
    LearnedRow,
    RunRow,
    ScoreRow,
    SetRow,
    TaskRecordRow,
)
from vgrads.runtimes.common import Common, estimate, from_json, pool_tools, to_json
from vgrads.runtimes.machines import Scores
from vgrads.runtimes.task_history import (
    KindRecords,
    TaskHistory,
    forget,
    learn,
    parse_records,
    record_json,
)
from vgrads.runtimes.tools import Tools, sums_of, without
from vgrads.runtimes.tools import from_json as tools_from_json
from vgrads.runtimes.tools import to_json as tools_to_json
from vgrads.traces.task_record import TaskRecord

_TOGETHER = 200  # keys or rows in one statement
_TIMES, _TOOLS, _SUMS = "run times ", "tools ", "all tools"
Json = dict[str, Any]


class StoredRecords(KindRecords):
    """Stored records, (kind, JSON, owner), each kind parsed when it is first needed."""

    def __init__(self, rows: Iterable[tuple[str, str, str]]) -> None:
        self._bodies: dict[str, list[tuple[str, bool]]] = {}
        self._parsed: dict[str, tuple[TaskRecord, ...]] = {}
        for kind, body, owner in rows:
            self._bodies.setdefault(kind, []).append((body, owner == OPERATOR))

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
            self._parsed[kind] = self._read(self._bodies[kind])
        return self._parsed[kind]

    @staticmethod
    def _read(rows: list[tuple[str, bool]]) -> tuple[TaskRecord, ...]:
        try:
            return _make_history(body for body, _ in rows).records
        except InputError:  # a name that means something else to the operator
            return _make_history(body for body, is_operators in rows if not is_operators).records


class _Estimates:
    """What was estimated from the records that one owner may use."""

    def __init__(self, engine: SqlEngine, owner: str) -> None:
        self._engine, self._owner = engine, owner

    def usable(self) -> StoredRecords:
        """Return the owner's records and the operator's."""
        return StoredRecords(self._rows(col(TaskRecordRow.owner).in_({self._owner, OPERATOR})))

    def own(self, *conditions: ColumnElement[bool]) -> list[tuple[str, str, str]]:
        """Return kind, JSON and owner of the owner's records, all or some."""
        return self._rows(col(TaskRecordRow.owner) == self._owner, *conditions)

    def _rows(self, *conditions: ColumnElement[bool]) -> list[tuple[str, str, str]]:
        with self._engine.connect() as connection:
            rows = connection.execute(_ALL.where(*conditions))
            return [(row[0], row[1], row[2]) for row in rows]

    def common(self) -> Common:
        """Return what was estimated from all records; estimate it where it is not stored."""
        stored = from_json(self._learned_row(_TIMES + self._owner) or "{}")
        return stored or self.estimate()

    def others(self) -> Tools:
        """Return the distributions of tools that enough other owners have run."""
        sums: Json = json.loads(self._learned_row(_SUMS) or "{}")
        own = tools_from_json(json.loads(self._learned_row(_TOOLS + self._owner) or "{}"))
        return without(sums, own)

    def _learned_row(self, what: str) -> str | None:
        with Session(self._engine) as session:
            row = session.get(LearnedRow, what)
            return None if row is None else row.body

    def estimate(self) -> Common:
        """Estimate anew, from all records. Where it cannot be stored, later questions do it."""
        common = estimate(self.usable(), _read_scores(self._engine))
        try:
            with Session(self._engine) as session:
                if self._owner == OPERATOR:  # others' estimates were with the old records
                    theirs = col(LearnedRow.what).startswith(_TIMES)
                    session.execute(delete(LearnedRow).where(theirs))
                else:
                    self._share(session)
                session.merge(LearnedRow(what=_TIMES + self._owner, body=to_json(common)))
                session.commit()
        except SiteError:
            pass
        return common

    def _share(self, session: Session) -> None:
        """Store the distributions of the tools that the owner has run, and the sums over owners."""
        tools = tools_to_json(pool_tools(StoredRecords(self.own())))
        session.merge(LearnedRow(what=_TOOLS + self._owner, body=json.dumps(tools)))
        # the sums below are read from the database and must contain what was just stored
        session.flush()
        each = select(col(LearnedRow.body)).where(col(LearnedRow.what).startswith(_TOOLS))
        owners = [tools_from_json(json.loads(text)) for text in session.scalars(each)]
        session.merge(LearnedRow(what=_SUMS, body=json.dumps(sums_of(owners))))


class RunTimeRecords:
    """Task records of one owner, with those of the operator, which serve everybody, and scores of
    machines."""

    def __init__(self, engine: SqlEngine, owner: str = OPERATOR) -> None:
        self._engine, self._owner = engine, owner
        self._estimates = _Estimates(engine, owner)

    @classmethod
    def of_run(cls, engine: SqlEngine, run_id: str) -> Self:
        """Return those of the owner of a run's set."""
        query = select(col(SetRow.owner)).join(RunRow, col(RunRow.set_id) == col(SetRow.id))
        with Session(engine) as session:
            owner = session.scalar(query.where(col(RunRow.id) == run_id))
        return cls(engine, owner or OPERATOR)

    def history(self, kinds: Iterable[str] | None = None) -> TaskHistory:
        """Return all records of the owner, or those of some kinds, equal for any order of
        insertion."""
        if kinds is None:
            return _make_history(body for _, body, _ in self._estimates.own())
        names = sorted(set(kinds))
        parts = [names[at : at + _TOGETHER] for at in range(0, len(names), _TOGETHER)]
        return _make_history(
            body
            for some in parts
            for _, body, _ in self._estimates.own(col(TaskRecordRow.kind).in_(some))
        )

    def learned(self) -> RunTimes:
        """Return the learned run times for planning."""
        records, scores, others = self._estimates.usable(), self.scores(), self._estimates.others()
        if records.kinds:
            return learn_from_estimates(records, self._estimates.common(), others)
        if scores or others:
            return learn_from_estimates(TaskHistory(), estimate(TaskHistory(), scores), others)
        return NOTHING

    def learn(self, records: Iterable[TaskRecord]) -> tuple[int, int]:
        """Store records; return how many are new, and the total. Raise InputError, with nothing
        stored, for records that do not fit each other or the stored ones."""
        count = self._store(list(records))
        if count:
            self._estimates.estimate()
        with Session(self._engine) as session:
            mine = select(func.count()).where(col(TaskRecordRow.owner) == self._owner)
            return count, session.scalar(mine) or 0

    def _store(self, fresh: Sequence[TaskRecord]) -> int:
        """Store records; return how many are new. Raise InputError as :meth:`learn`."""
        before = self.history(record.kind for record in fresh)
        rows, old = self._stored(learn(before, fresh)), self._stored(before)
        new = [row for key, row in rows.items() if key not in old]
        # new rows before old ones are deleted: a crash in between loses no record
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
            self._estimates.estimate()
        return refused

    def forget(self, kind: str) -> int:
        """Delete a kind; return how many records it had. Raise InputError where it has none."""
        history = self.history((kind, kind.rpartition(":")[2]))
        rest = self._stored(forget(history, kind))
        gone = [key for key in self._stored(history) if key not in rest]
        self._drop(gone)
        self._estimates.estimate()
        return len(gone)

    def scores(self) -> dict[str, Scores]:
        """Return machine → benchmark scores."""
        return _read_scores(self._engine)

    def put_score(self, machine: str, scores: Scores) -> None:
        """Store a machine's scores in place of earlier ones."""
        if not (machine and scores.cpu > 0 and scores.io > 0):
            raise InputError("scores must be numbers above 0", where=machine or "machine")
        with Session(self._engine) as session:
            session.merge(ScoreRow(machine=machine, cpu=scores.cpu, io=scores.io))
            session.commit()
        _Estimates(self._engine, OPERATOR).estimate()

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

    def _stored(self, history: TaskHistory) -> dict[str, dict[str, str]]:
        """Return key → the values of a row."""
        result = {}
        for record in history.records:
            body = record_json(record)
            text = body if self._owner == OPERATOR else f"{self._owner}\0{body}"
            key = hashlib.sha256(text.encode()).hexdigest()
            result[key] = {"key": key, "kind": record.kind, "body": body, "owner": self._owner}
        return result


_ALL = select(col(TaskRecordRow.kind), col(TaskRecordRow.body), col(TaskRecordRow.owner))


def _make_history(bodies: Iterable[str]) -> TaskHistory:
    return learn(TaskHistory(), parse_records(list(bodies)))


def _read_scores(engine: SqlEngine) -> dict[str, Scores]:
    with Session(engine) as session:
        rows = session.execute(select(ScoreRow)).scalars().all()
        return {row.machine: Scores(cpu=row.cpu, io=row.io) for row in rows}
