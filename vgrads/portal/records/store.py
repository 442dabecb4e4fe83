"""Operations on the database: sets with their plans, runs, journals, offers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import delete, func, text
from sqlmodel import Session, SQLModel, col, select

from vgrads.kernel.errors import InputError
from vgrads.portal.records.acquisitions import newest_acquisitions
from vgrads.portal.records.database import OpenedFile, open_engine
from vgrads.portal.records.engine_reader import EngineReader
from vgrads.portal.records.migrate import prepare
from vgrads.portal.records.reader import database_url, new_id
from vgrads.portal.records.tables import (
    OPERATOR,
    AcquisitionRow,
    EventRow,
    GridRow,
    RunRow,
    SetRow,
)
from vgrads.vgrid.acquisition import Acquisition


def new_run(set_id: str, run_id: str = "", folder: Path | None = None) -> RunRow:
    """Create the row of a run that starts now. ``folder``: of its files, where its user chose
    it."""
    return RunRow(
        id=run_id or new_id("run"),
        set_id=set_id,
        state="running",
        started=datetime.now(UTC),
        how=json.dumps({"folder": str(folder)} if folder else {}),
    )


def summary_of(plan: Mapping[str, Any], budget_usd: float | None = None) -> dict[str, Any]:
    """Return the summary of a plan (JSON) for lists; ``budget_usd``: of its set."""
    names = (
        "expected",
        "feasible",
        "lacking",
        "deadline_s",
        "needed",
        "scheduled",
        "promise",
        "cost_usd",
        "policy",
        "relaxations",
        "notes",
    )
    result = {name: plan[name] for name in names if name in plan}
    promise = dict(result.get("promise", {}))
    promise.pop("by_workflow", None)  # may be long
    if not result:
        return {}
    return result | {"promise": promise, "budget_usd": budget_usd, "counts": _count_tasks(plan)}


def _count_tasks(plan: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of tasks, of replicas besides the first, of slots and of sites."""
    placements, slots = plan.get("placements", ()), plan.get("slots", ())
    tasks = {(placement["workflow"], placement["task"]) for placement in placements}
    return {
        "tasks": len(tasks),
        "replicas": len(placements) - len(tasks),
        "slots": len(slots),
        "sites": len({slot["site"] for slot in slots}),
    }


class Store:
    """Operations on all stored records."""

    def __init__(self, url: str | None = None) -> None:
        self.url = url or database_url()
        self._engine = open_engine(url)
        try:
            prepare(self._engine)
            self.refuse_lost = OpenedFile(self._engine).refuse_lost
        except BaseException:
            self.close()
            raise

    def add_set(
        self, name: str, document: dict[str, Any], plan: dict[str, Any], gantt: dict[str, Any]
    ) -> str:
        """Store a set with its plan; return its id."""
        row = SetRow(
            id=new_id("set"),
            name=name,
            created=datetime.now(UTC),
            document=json.dumps(document, default=str),
            plan=json.dumps(plan),
            gantt=json.dumps(gantt),
            summary=json.dumps(summary_of(plan, document.get("budget_usd"))),
        )
        set_id = row.id
        self.add(row)
        return set_id

    def get_set(self, set_id: str) -> SetRow | None:
        """Return one set, with all its data."""
        with Session(self._engine) as session:
            return session.get(SetRow, set_id)

    def add_run(self, set_id: str, folder: Path | None = None) -> str:
        """Add a run that starts; return its id. ``folder``: of its files, where its user chose
        it."""
        row = new_run(set_id, folder=folder)
        run_id = row.id
        self.add(row)
        return run_id

    def set_run_state(self, run_id: str, state: str) -> None:
        """Set the state of a run."""
        with Session(self._engine) as session:
            row = session.get_one(RunRow, run_id)
            row.state = state
            session.add(row)
            session.commit()

    def end_run(
        self, run_id: str, state: str, outcome: dict[str, Any], gantt: dict[str, Any]
    ) -> None:
        """Store the outcome of a run."""
        with Session(self._engine) as session:
            row = session.get_one(RunRow, run_id)
            row.state, row.outcome, row.gantt = state, json.dumps(outcome), json.dumps(gantt)
            session.add(row)
            session.commit()

    def add_acquisitions(self, run_id: str, acquisitions: Iterable[Acquisition]) -> None:
        """Store the acquisition of a run's slots, in place of earlier records."""
        with Session(self._engine) as session:
            session.execute(delete(AcquisitionRow).where(col(AcquisitionRow.run_id) == run_id))
            session.add_all(
                AcquisitionRow(run_id=run_id, **asdict(acquisition)) for acquisition in acquisitions
            )
            session.commit()

    def acquisitions(self, limit: int = 1000) -> list[Acquisition]:
        """Return the newest slots of all sites."""
        return newest_acquisitions(self.reader, limit)

    def forget_acquisitions(self, site: str, queue: str | None = None) -> int:
        """Delete the acquisitions of a site, or of one of its queues; return how many there
        were."""
        gone = delete(AcquisitionRow).where(col(AcquisitionRow.site) == site)
        if queue is not None:
            gone = gone.where(col(AcquisitionRow.queue) == queue)
        with Session(self._engine) as session:
            count = session.execute(gone).rowcount  # type: ignore[attr-defined]
            session.commit()
        return int(count)

    def add_grid(
        self, name: str, offer: dict[str, Any], gantt: dict[str, Any], owner: str = OPERATOR
    ) -> str:
        """Store an offer; return its id."""
        row = GridRow(
            id=new_id("grid"),
            name=name,
            created=datetime.now(UTC),
            offer=json.dumps(offer),
            gantt=json.dumps(gantt),
            owner=owner,
        )
        grid_id = row.id
        self.add(row)
        return grid_id

    def get_grid(self, grid_id: str) -> GridRow | None:
        """Return one offer."""
        with Session(self._engine) as session:
            return session.get(GridRow, grid_id)

    def get_run(self, run_id: str) -> RunRow:
        """Return one run. Raise InputError if there is none."""
        with Session(self._engine) as session:
            row = session.get(RunRow, run_id)
        if row is None:
            raise InputError(f"no run '{run_id}'", fix="list runs with 'vgrads status'")
        return row

    def gantt_of(self, run_id: str) -> dict[str, Any]:
        """Return the last stored chart of a run."""
        result: dict[str, Any] = json.loads(self.get_run(run_id).gantt)
        return result

    def list_runs(self, set_id: str | None = None, limit: int = 50) -> list[RunRow]:
        """Return runs, newest first."""
        query = select(RunRow).order_by(RunRow.started.desc()).limit(limit)  # type: ignore[attr-defined]
        if set_id is not None:
            query = query.where(RunRow.set_id == set_id)
        with Session(self._engine) as session:
            return list(session.exec(query))

    def events(self, run_id: str, start: int = 0) -> list[dict[str, Any]]:
        """Return the journal of a run, in order, from a position on."""
        query = select(EventRow).where(EventRow.run_id == run_id, EventRow.position >= start)
        with Session(self._engine) as session:
            return [json.loads(row.body) for row in session.exec(query.order_by(EventRow.position))]  # type: ignore[arg-type]

    def count_events(self, run_id: str) -> int:
        """Return the length of a run's journal."""
        query = select(func.count()).where(EventRow.run_id == run_id)
        with Session(self._engine) as session:
            return session.exec(query).one()

    def count_runs(self) -> dict[str, int]:
        """Return state → number of runs."""
        query = select(RunRow.state, func.count()).group_by(RunRow.state)
        with Session(self._engine) as session:
            return dict(session.exec(query).all())

    def promise_record(self, limit: int = 10_000) -> list[tuple[float, bool]]:
        """Return, for the newest terminal runs, the promise, and whether it was kept."""
        query = select(SetRow.summary, RunRow.state).join(SetRow, RunRow.set_id == SetRow.id)  # type: ignore[arg-type]
        ended = query.where(col(RunRow.state).in_(("kept", "broken")))
        with Session(self._engine) as session:
            rows = session.exec(ended.order_by(col(RunRow.started).desc()).limit(limit)).all()
        results = [(json.loads(summary), state) for summary, state in rows]
        promised = [
            (plan, state)
            for plan, state in results
            if plan.get("promise") and plan.get("needed") != 0
        ]
        return [(plan["promise"]["probability"], state == "kept") for plan, state in promised]

    def add(self, row: SQLModel) -> None:
        """Store a row."""
        with Session(self._engine) as session:
            session.add(row)
            session.commit()

    @property
    def engine(self) -> SqlEngine:
        """Return the engine, for other records in the same database (:mod:`portal.run_record`)."""
        return self._engine

    @property
    def reader(self) -> EngineReader:
        """Return a reader of the same database."""
        return EngineReader(self._engine)

    records = reader
    """The same, to read and change records by plain queries."""

    def ready(self) -> bool:
        """Return True where the database answers."""
        with Session(self._engine) as session:
            session.exec(select(SetRow.id).limit(1)).first()
        return True

    def try_writing(self) -> None:
        """Raise SiteError where the database accepts no writes: its disk is full, or it is
        read-only."""
        with self._engine.begin() as connection:
            # it changes no value, but needs all that a write needs
            connection.execute(text("UPDATE alembic_version SET version_num = version_num"))

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
