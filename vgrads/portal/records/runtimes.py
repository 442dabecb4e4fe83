"""What was learned of run times, in the database: each record once, so that whoever learns at the
same time loses nothing."""

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
from vgrads.runtimes.known import Known, forget, from_json, learn, to_json
from vgrads.runtimes.machines import Scores
from vgrads.traces.task_record import TaskRecord

_TOGETHER = 200  # keys in one question


class RunTimeRecords:
    """Task records and scores of machines."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    def known(self) -> Known:
        """All that is kept; the same value however it came together."""
        with Session(self._engine) as session:
            bodies = session.execute(select(col(TaskRecordRow.body))).scalars().all()
        return from_json(f'{{"version": 1, "records": [{",".join(bodies)}]}}')

    def learned(self) -> RunTimes:
        """What planning asks."""
        return learned(self.known(), self.scores())

    def learn(self, records: Iterable[TaskRecord]) -> tuple[int, int]:
        """Keep records; how many are new, and how many are known now. InputError, with nothing
        kept, for records that do not fit to each other or to what is known."""
        before = self.known()
        whole = learn(before, records)
        rows, old = _rows(whole), _rows(before)
        new = [row for key, row in rows.items() if key not in old]
        gone = [key for key in old if key not in rows]
        for row in new:  # one by one: somebody else may have learned the same meanwhile
            with Session(self._engine) as session:
                session.add(row)
                try:
                    session.commit()
                except IntegrityError:
                    session.rollback()
        self._drop(gone)
        return len(new), len(rows)

    def learn_by_kind(self, records: Mapping[str, Sequence[TaskRecord]]) -> list[InputError]:
        """Keep the records of each kind that does not mix tools; what is wrong with the others."""
        try:
            self.learn(one for some in records.values() for one in some)
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
        """Drop a kind; how many records it had. InputError where nothing is known of it."""
        known = self.known()
        rest = _rows(forget(known, kind))
        gone = [key for key in _rows(known) if key not in rest]
        self._drop(gone)
        return len(gone)

    def _drop(self, keys: list[str]) -> None:
        with Session(self._engine) as session:
            for at in range(0, len(keys), _TOGETHER):
                some = keys[at : at + _TOGETHER]
                session.execute(delete(TaskRecordRow).where(col(TaskRecordRow.key).in_(some)))
            session.commit()

    def scores(self) -> dict[str, Scores]:
        """Machine → what a benchmark gave."""
        with Session(self._engine) as session:
            rows = session.execute(select(ScoreRow)).scalars().all()
            return {row.machine: Scores(cpu=row.cpu, io=row.io) for row in rows}

    def put_score(self, machine: str, scores: Scores) -> None:
        """Keep a machine's scores in place of earlier ones."""
        if not (machine and scores.cpu > 0 and scores.io > 0):
            raise InputError("scores are numbers above 0", where=machine or "machine")
        with Session(self._engine) as session:
            session.merge(ScoreRow(machine=machine, cpu=scores.cpu, io=scores.io))
            session.commit()


def _rows(known: Known) -> dict[str, TaskRecordRow]:
    """Key → row."""
    found = {}
    for record in json.loads(to_json(known))["records"]:
        body = json.dumps(record, sort_keys=True)
        key = hashlib.sha256(body.encode()).hexdigest()
        found[key] = TaskRecordRow(key=key, kind=record["kind"], body=body)
    return found
