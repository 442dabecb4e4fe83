"""The database behind a few verbs: sets with their plans, runs, journals, offers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import delete, func, text
from sqlmodel import Session, SQLModel, col, select

from vgrads.kernel.errors import InputError
from vgrads.portal.records.database import database_url, open_engine
from vgrads.portal.records.migrate import prepare
from vgrads.portal.records.tables import (
    AcquisitionRow,
    EventRow,
    GridRow,
    RunRow,
    SetRow,
)
from vgrads.vgrid.acquisition import Acquisition

GOES_ON = ("running", "interrupted")
"""States of a run that has not ended."""


def new_id(prefix: str) -> str:
    """A short id that is hard to guess."""
    return f"{prefix}-{secrets.token_hex(5)}"


def new_run(set_id: str, run_id: str = "", folder: Path | None = None) -> RunRow:
    """A run that begins now. ``folder``: where its files go, where its user chose that."""
    return RunRow(
        id=run_id or new_id("run"),
        set_id=set_id,
        state="running",
        started=datetime.now(UTC),
        how=json.dumps({"folder": str(folder)} if folder else {}),
    )


def summary_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Of a plan as JSON, what lists show."""
    names = (
        "feasible",
        "lacking",
        "deadline_s",
        "needed",
        "scheduled",
        "promise",
        "cost_usd",
        "policy",
    )
    found = {name: plan[name] for name in names if name in plan}
    promise = dict(found.get("promise", {}))
    promise.pop("by_workflow", None)  # may be long
    return found | {"promise": promise} if found else {}


class Store:
    """Everything that is kept, behind a few verbs."""

    def __init__(self, url: str | None = None) -> None:
        self.url = url or database_url()
        self._engine = open_engine(url)
        try:
            prepare(self._engine)
        except BaseException:
            self.close()
            raise

    def add_set(
        self, name: str, document: dict[str, Any], plan: dict[str, Any], gantt: dict[str, Any]
    ) -> str:
        """Keep a set with its plan; returns its id."""
        row = SetRow(
            id=new_id("set"),
            name=name,
            created=datetime.now(UTC),
            document=json.dumps(document, default=str),
            plan=json.dumps(plan),
            gantt=json.dumps(gantt),
            summary=json.dumps(summary_of(plan)),
        )
        set_id = row.id
        self.add(row)
        return set_id

    def get_set(self, set_id: str) -> SetRow | None:
        """One set, with everything that was written."""
        with Session(self._engine) as session:
            return session.get(SetRow, set_id)

    def add_run(self, set_id: str, folder: Path | None = None) -> str:
        """A run begins; returns its id. ``folder``: where its files go, where its user chose
        that."""
        row = new_run(set_id, folder=folder)
        run_id = row.id
        self.add(row)
        return run_id

    def set_run_state(self, run_id: str, state: str) -> None:
        """How a run stands."""
        with Session(self._engine) as session:
            row = session.get_one(RunRow, run_id)
            row.state = state
            session.add(row)
            session.commit()

    def end_run(
        self, run_id: str, state: str, outcome: dict[str, Any], gantt: dict[str, Any]
    ) -> None:
        """How a run ended."""
        with Session(self._engine) as session:
            row = session.get_one(RunRow, run_id)
            row.state, row.outcome, row.gantt = state, json.dumps(outcome), json.dumps(gantt)
            session.add(row)
            session.commit()

    def add_acquisitions(self, run_id: str, found: Iterable[Acquisition]) -> None:
        """Keep how the slots of a run came about, in place of what was kept of it."""
        with Session(self._engine) as session:
            session.execute(delete(AcquisitionRow).where(col(AcquisitionRow.run_id) == run_id))
            session.add_all(AcquisitionRow(run_id=run_id, **asdict(one)) for one in found)
            session.commit()

    def acquisitions(self, limit: int = 1000) -> list[Acquisition]:
        """The newest slots of all sites."""
        query = select(AcquisitionRow).order_by(AcquisitionRow.id.desc()).limit(limit)  # type: ignore[union-attr]
        with Session(self._engine) as session:
            rows = session.exec(query).all()
        return [Acquisition(**row.model_dump(exclude={"id", "run_id"})) for row in rows]

    def forget_acquisitions(self, site: str, queue: str | None = None) -> int:
        """Forget how slots of a site, or of one of its queues, came about; how many there were."""
        gone = delete(AcquisitionRow).where(col(AcquisitionRow.site) == site)
        if queue is not None:
            gone = gone.where(col(AcquisitionRow.queue) == queue)
        with Session(self._engine) as session:
            count = session.execute(gone).rowcount  # type: ignore[attr-defined]
            session.commit()
        return int(count)

    def add_grid(
        self, name: str, offer: dict[str, Any], gantt: dict[str, Any], owner: str = "local"
    ) -> str:
        """Keep an offer; returns its id."""
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
        """One offer."""
        with Session(self._engine) as session:
            return session.get(GridRow, grid_id)

    def get_run(self, run_id: str) -> RunRow:
        """One run; InputError if there is none."""
        with Session(self._engine) as session:
            row = session.get(RunRow, run_id)
        if row is None:
            raise InputError(f"no run '{run_id}'", fix="vgrads status lists them")
        return row

    def gantt_of(self, run_id: str) -> dict[str, Any]:
        """The chart of a run as it was last kept."""
        found: dict[str, Any] = json.loads(self.get_run(run_id).gantt)
        return found

    def list_runs(self, set_id: str | None = None, limit: int = 50) -> list[RunRow]:
        """Newest first."""
        query = select(RunRow).order_by(RunRow.started.desc()).limit(limit)  # type: ignore[attr-defined]
        if set_id is not None:
            query = query.where(RunRow.set_id == set_id)
        with Session(self._engine) as session:
            return list(session.exec(query))

    def events(self, run_id: str, start: int = 0) -> list[dict[str, Any]]:
        """The journal of a run, in order, from a position on."""
        query = select(EventRow).where(EventRow.run_id == run_id, EventRow.position >= start)
        with Session(self._engine) as session:
            return [json.loads(row.body) for row in session.exec(query.order_by(EventRow.position))]  # type: ignore[arg-type]

    def count_events(self, run_id: str) -> int:
        """How long the journal of a run is."""
        query = select(func.count()).where(EventRow.run_id == run_id)
        with Session(self._engine) as session:
            return session.exec(query).one()

    def count_runs(self) -> dict[str, int]:
        """State → how many runs."""
        query = select(RunRow.state, func.count()).group_by(RunRow.state)
        with Session(self._engine) as session:
            return dict(session.exec(query).all())

    def promise_record(self, limit: int = 10_000) -> list[tuple[float, bool]]:
        """Of the newest runs that ended: what had been promised, and whether it was kept."""
        query = select(SetRow.summary, RunRow.state).join(SetRow, RunRow.set_id == SetRow.id)  # type: ignore[arg-type]
        ended = query.where(col(RunRow.state).in_(("kept", "broken")))
        with Session(self._engine) as session:
            rows = session.exec(ended.order_by(col(RunRow.started).desc()).limit(limit)).all()
        found = [(json.loads(summary), state) for summary, state in rows]
        promised = [
            (plan, state)
            for plan, state in found
            if plan.get("promise") and plan.get("needed") != 0
        ]
        return [(plan["promise"]["probability"], state == "kept") for plan, state in promised]

    def add(self, row: SQLModel) -> None:
        """Keep a row."""
        with Session(self._engine) as session:
            session.add(row)
            session.commit()

    @property
    def engine(self) -> SqlEngine:
        """For what is kept elsewhere in the same database (:mod:`portal.run_record`)."""
        return self._engine

    def ready(self) -> bool:
        """True where the database answers."""
        with Session(self._engine) as session:
            session.exec(select(SetRow.id).limit(1)).first()
        return True

    def try_writing(self) -> None:
        """SiteError where the database takes nothing more: its disk is full, or it may only be
        read."""
        with self._engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = version_num"))

    def close(self) -> None:
        """Give connections back."""
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
