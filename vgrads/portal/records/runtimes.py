"""Learned run times in the database: each record once, so that concurrent learning loses
nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col

from vgrads.api.plans.runtimes import RunTimes, learned
from vgrads.kernel.errors import InputError
from vgrads.portal.records.tables import ScoreRow, TaskRecordRow
from vgrads.runtimes.machines import Scores
from vgrads.runtimes.task_history import TaskHistory, forget, from_json, learn, to_json
from vgrads.traces.task_record import TaskRecord

_TOGETHER = 200  # keys in one query


class RunTimeRecords:
    """Task records and scores of machines."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    def history(self) -> TaskHistory:
        """Return all records, equal for any order of insertion."""
        with Session(self._engine) as session:
            bodies = session.execute(select(col(TaskRecordRow.body))).scalars().all()
        return from_json(f'{{"version": 1, "records": [{",".join(bodies)}]}}')

    def learned(self) -> RunTimes:
        """Return the learned run times for planning."""
        return learned(self.history(), self.scores())

    def learn(self, records: Iterable[TaskRecord]) -> tuple[int, int]:
        """Store records; return how many are new, and the total. Raise InputError, with nothing
        stored, for records that do not fit each other or the stored ones."""
        before = self.history()
        whole = learn(before, records)
        rows, old = _rows(whole), _rows(before)
        new = [row for key, row in rows.items() if key not in old]
        gone = [key for key in old if key not in rows]
        for row in new:  # one by one: a concurrent process may insert the same
            with Session(self._engine) as session:
                session.add(row)
                try:
                    session.commit()
                except IntegrityError:
                    session.rollback()
        self._drop(gone)
        return len(new), len(rows)

    def learn_by_kind(self, records: Mapping[str, Sequence[TaskRecord]]) -> list[InputError]:
        """Store the records of each kind that does not mix tools; return the errors of the
        others."""
        try:
            self.learn(task_record for some in records.values() for task_record in some)
            return []
        except InputError:
            pass
        refused = []
        for some in records.values():
            try:
                self.learn(some)
            except InputError as error:
                refused.append(error)
        return refused

    def forget(self, kind: str) -> int:
        """Delete a kind; return how many records it had. Raise InputError where it has none."""
        history = self.history()
        rest = _rows(forget(history, kind))
        gone = [key for key in _rows(history) if key not in rest]
        self._drop(gone)
        return len(gone)

    def _drop(self, keys: list[str]) -> None:
        with Session(self._engine) as session:
            for at in range(0, len(keys), _TOGETHER):
                some = keys[at : at + _TOGETHER]
                session.execute(delete(TaskRecordRow).where(col(TaskRecordRow.key).in_(some)))
            session.commit()

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


def _rows(history: TaskHistory) -> dict[str, TaskRecordRow]:
    """Return key → row."""
    result = {}
    for record in json.loads(to_json(history))["records"]:
        body = json.dumps(record, sort_keys=True)
        key = hashlib.sha256(body.encode()).hexdigest()
        result[key] = TaskRecordRow(key=key, kind=record["kind"], body=body)
    return result
