"""The database: workflow sets, their plans, their runs and the journals of these."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import event as sql_event
from sqlalchemy import func
from sqlalchemy.exc import OperationalError
from sqlmodel import Field, Session, SQLModel, create_engine, select

from kernel.errors import InputError, SiteError
from portal.config import database_url, home
from vgrid.binding import Acquisition


class SetRow(SQLModel, table=True):
    """A workflow set that was handed over, as it was written, with its plan."""

    __tablename__ = "workflow_set"
    id: str = Field(primary_key=True)
    name: str
    created: datetime
    document: str
    plan: str
    gantt: str


class RunRow(SQLModel, table=True):
    """A run of a set: running, kept, broken or interrupted."""

    __tablename__ = "run"
    id: str = Field(primary_key=True)
    set_id: str = Field(foreign_key="workflow_set.id", index=True)
    state: str
    started: datetime
    outcome: str = "{}"
    gantt: str = "{}"


class EventRow(SQLModel, table=True):
    """One event of a run's journal."""

    __tablename__ = "run_event"
    run_id: str = Field(foreign_key="run.id", primary_key=True)
    position: int = Field(primary_key=True)
    body: str


class ArchiveRow(SQLModel, table=True):
    """A value that a run is resumed from: what it was started with, and its books."""

    __tablename__ = "run_archive"
    run_id: str = Field(foreign_key="run.id", primary_key=True)
    name: str = Field(primary_key=True)
    body: bytes


class LeaseRow(SQLModel, table=True):
    """Who looks after a run, until when (seconds since 1970), and why it is to stop, if it is."""

    __tablename__ = "run_lease"
    run_id: str = Field(foreign_key="run.id", primary_key=True)
    owner: str
    until_s: float
    stop: str = ""


class AcquisitionRow(SQLModel, table=True):
    """A slot of a run from request to end; what binding overhead and rates are learned from."""

    __tablename__ = "acquisition"
    id: int | None = Field(default=None, primary_key=True)
    run_id: str = Field(foreign_key="run.id", index=True)
    site: str = Field(index=True)
    queue: str
    procs: int
    requested_s: float
    granted_s: float | None = None
    ready_s: float | None = None
    ended_s: float | None = None
    refused: bool = False
    broken: bool = False


class GridRow(SQLModel, table=True):
    """An offer of nodes that was made for a request."""

    __tablename__ = "virtual_grid"
    id: str = Field(primary_key=True)
    name: str
    created: datetime
    offer: str
    gantt: str


class SiteRow(SQLModel, table=True):
    """A site as it would stand in a TOML file; the paths of its histories are in their own table."""

    __tablename__ = "site"
    name: str = Field(primary_key=True)
    document: str


class LinkRow(SQLModel, table=True):
    """A network link between two sites."""

    __tablename__ = "link"
    one: str = Field(primary_key=True)
    other: str = Field(primary_key=True)
    document: str


class HistoryRow(SQLModel, table=True):
    """The history of a queue: a log file as it was given."""

    __tablename__ = "history"
    site: str = Field(primary_key=True, foreign_key="site.name", ondelete="CASCADE")
    queue: str = Field(primary_key=True)
    file: str
    changed: datetime
    body: bytes


class CollectionRow(SQLModel, table=True):
    """How far a site's accounting has been collected, in seconds since 1970."""

    __tablename__ = "collection"
    site: str = Field(primary_key=True, foreign_key="site.name", ondelete="CASCADE")
    until_s: float


def new_id(prefix: str) -> str:
    """A short id that is hard to guess."""
    return f"{prefix}-{secrets.token_hex(5)}"


class Store:
    """Everything that is kept, behind a few verbs."""

    def __init__(self, url: str | None = None) -> None:
        chosen = url or database_url()
        if url is None and chosen.startswith("sqlite:///"):
            home().mkdir(parents=True, exist_ok=True)
        try:
            self._engine = _open(chosen)
            SQLModel.metadata.create_all(self._engine)
        except OperationalError as error:
            raise SiteError(
                f"cannot open the database: {error.orig}",
                site="database",
                transient=True,
                fix="see VGRADS_DB",
            ) from error

    def add_set(
        self, name: str, document: dict[str, Any], plan: dict[str, Any], gantt: dict[str, Any]
    ) -> str:
        """Keep a set with its plan; returns its id."""
        row = SetRow(
            id=new_id("set"), name=name, created=datetime.now(UTC), document=json.dumps(document, default=str),
            plan=json.dumps(plan), gantt=json.dumps(gantt),
        )  # fmt: skip
        set_id = row.id
        self._save(row)
        return set_id

    def get_set(self, set_id: str) -> SetRow | None:
        """One set."""
        with Session(self._engine) as session:
            return session.get(SetRow, set_id)

    def list_sets(self, limit: int = 100) -> list[SetRow]:
        """Newest first."""
        with Session(self._engine) as session:
            return list(session.exec(select(SetRow).order_by(SetRow.created.desc()).limit(limit)))  # type: ignore[attr-defined]

    def add_run(self, set_id: str) -> str:
        """A run begins; returns its id."""
        run_id = new_id("run")
        self._save(RunRow(id=run_id, set_id=set_id, state="running", started=datetime.now(UTC)))
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
        """Keep how the slots of a run came about."""
        with Session(self._engine) as session:
            session.add_all(AcquisitionRow(run_id=run_id, **asdict(one)) for one in found)
            session.commit()

    def acquisitions(self, limit: int = 1000) -> list[Acquisition]:
        """The newest slots of all sites."""
        query = select(AcquisitionRow).order_by(AcquisitionRow.id.desc()).limit(limit)  # type: ignore[union-attr]
        with Session(self._engine) as session:
            rows = session.exec(query).all()
        return [Acquisition(**row.model_dump(exclude={"id", "run_id"})) for row in rows]

    def add_grid(self, name: str, offer: dict[str, Any], gantt: dict[str, Any]) -> str:
        """Keep an offer; returns its id."""
        row = GridRow(
            id=new_id("grid"), name=name, created=datetime.now(UTC), offer=json.dumps(offer), gantt=json.dumps(gantt)
        )  # fmt: skip
        grid_id = row.id
        self._save(row)
        return grid_id

    def get_grid(self, grid_id: str) -> GridRow | None:
        """One offer."""
        with Session(self._engine) as session:
            return session.get(GridRow, grid_id)

    def put_sites(self, rows: Iterable[SQLModel]) -> None:
        """Keep sites, links and histories; those of the same names are replaced, all or nothing."""
        with Session(self._engine) as session:
            for row in rows:
                session.merge(row)
                session.flush()
            session.commit()

    def put_collected(self, site: str, until_s: float, histories: Iterable[HistoryRow]) -> None:
        """Keep histories and how far they go, both or neither."""
        self.put_sites([*histories, CollectionRow(site=site, until_s=until_s)])

    def collected_until(self, site: str) -> float | None:
        """How far a site's accounting has been collected; None where it never was."""
        with Session(self._engine) as session:
            row = session.get(CollectionRow, site)
            return row.until_s if row else None

    def site_rows(self) -> tuple[list[SiteRow], list[LinkRow], list[HistoryRow]]:
        """Everything that is known about sites."""
        with Session(self._engine) as session:
            sites = session.exec(select(SiteRow).order_by(SiteRow.name)).all()
            links = session.exec(select(LinkRow)).all()
            return list(sites), list(links), list(session.exec(select(HistoryRow)))

    def remove_site(self, name: str) -> bool:
        """Forget a site with its histories and links; False where there is none."""
        with Session(self._engine) as session:
            row = session.get(SiteRow, name)
            if row is None:
                return False
            for link in session.exec(select(LinkRow)):
                if name in (link.one, link.other):
                    session.delete(link)
            session.delete(row)
            session.commit()
        return True

    def get_run(self, run_id: str) -> RunRow:
        """One run; InputError if there is none."""
        with Session(self._engine) as session:
            row = session.get(RunRow, run_id)
        if row is None:
            raise InputError(f"no run '{run_id}'", fix="vgrads status lists them")
        return row

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

    def count_runs(self) -> dict[str, int]:
        """State → how many runs."""
        query = select(RunRow.state, func.count()).group_by(RunRow.state)
        with Session(self._engine) as session:
            return dict(session.exec(query).all())

    @property
    def engine(self) -> SqlEngine:
        """For what is kept elsewhere in the same database (:mod:`portal.run_record`)."""
        return self._engine

    def ready(self) -> bool:
        """True where the database answers."""
        with Session(self._engine) as session:
            session.exec(select(SetRow.id).limit(1)).first()
        return True

    def _save(self, row: SQLModel) -> None:
        with Session(self._engine) as session:
            session.add(row)
            session.commit()

    def close(self) -> None:
        """Give connections back."""
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(url: str) -> SqlEngine:
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        sql_event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: Any) -> None:
    """Readers beside one writer; a commit is on disk before anything is done about it."""
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=10000"):
        connection.execute(f"PRAGMA {pragma}")
