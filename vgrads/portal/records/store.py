"""The database behind a few verbs: sets with their plans, runs, journals, sites, histories."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import ExceptionContext, delete, func, make_url, text
from sqlalchemy import event as sql_event
from sqlalchemy.exc import ArgumentError, InternalError, OperationalError
from sqlmodel import Session, SQLModel, col, create_engine, select

from vgrads.api.config import home
from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.records.migrate import prepare
from vgrads.portal.records.reconnect import DatabaseLost, connection_options, is_lost
from vgrads.portal.records.tables import (
    AcquisitionRow,
    CollectionRow,
    EventRow,
    GridRow,
    HistoryRow,
    LinkRow,
    RunRow,
    SetRow,
    SiteRow,
)
from vgrads.vgrid.acquisition import Acquisition

_SQLITE, _BUSY_MS = "sqlite:///", 10_000
GOES_ON = ("running", "interrupted")
"""States of a run that has not ended."""


def database_url() -> str:
    """``VGRADS_DB``, else an SQLite file in :func:`vgrads.api.config.home`."""
    return os.environ.get("VGRADS_DB") or f"sqlite:///{home() / 'vgrads.db'}"


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite database; None for any other, or one in memory."""
    try:
        found = make_url(url)
    except ArgumentError:
        return None
    if found.get_backend_name() != "sqlite" or found.database in (None, "", ":memory:"):
        return None
    return Path(str(found.database))


def close_to_others(url: str) -> None:
    """Take from everybody else what older versions left open: the home with its runs, the
    database's files."""
    here, place = home(), sqlite_file(url)
    files = [place.with_name(place.name + more) for more in ("", "-wal", "-shm")] if place else []
    for path in (here, here / "runs", *files):
        if path.exists() and path.stat().st_mode & 0o077:
            with suppress(PermissionError):  # somebody else's: theirs to close
                path.chmod(path.stat().st_mode & 0o700)


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
        self._save(row)
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
        self._save(row)
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
            session.execute(delete(HistoryRow).where(HistoryRow.site == name))  # type: ignore[arg-type]
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

    def histories(self) -> list[tuple[str, str]]:
        """Site and queue of every history that is kept."""
        with Session(self._engine) as session:
            return [(s, q) for s, q in session.exec(select(HistoryRow.site, HistoryRow.queue))]

    def history(self, site: str, queue: str) -> HistoryRow | None:
        """The history of a queue."""
        with Session(self._engine) as session:
            return session.get(HistoryRow, (site, queue))

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
        self._save(row)

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


def open_engine(url: str | None = None) -> SqlEngine:
    """The database, as it is; InputError for a URL that is none, or of a kind that is not
    installed."""
    chosen = url or database_url()
    if chosen == f"{_SQLITE}{home() / 'vgrads.db'}":
        home().mkdir(parents=True, exist_ok=True, mode=0o700)
    file = sqlite_file(chosen)
    if file is not None:
        _make_secret(file)
    try:
        engine = create_engine(chosen, **connection_options(make_url(chosen)))
    except (ArgumentError, ImportError) as error:
        raise InputError(f"cannot be used: {error}", where="database URL") from error
    sql_event.listen(engine, "handle_error", _translate)
    if engine.dialect.name == "sqlite":
        sql_event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _make_secret(file: Path) -> None:
    """A new database's file, for nobody else. One that is there is not opened: closing it would
    take all of this process's locks off it (https://www.sqlite.org/howtocorrupt.html, 2.2)."""
    with suppress(OSError):  # there already; or it cannot be made, which is told when it is used
        os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o600))


def _translate(context: ExceptionContext) -> SiteError | None:
    """A database that cannot do what it is asked is a site that fails: said in a line, asked again
    later."""
    lost = is_lost(context)
    database = isinstance(context.sqlalchemy_exception, OperationalError | InternalError)
    if context.is_pre_ping or not (database or context.is_disconnect):
        return None
    said = (str(context.original_exception).splitlines() or ["no word"])[0]
    if lost:
        return DatabaseLost(said, site="database", transient=True, fix="see VGRADS_DB")
    fix = "free some room on its disk" if "full" in said else "see VGRADS_DB"
    return SiteError(said, site="database", transient=True, fix=fix)


def _prepare_sqlite(connection: Any, _: Any) -> None:
    """Readers beside one writer; a commit is on disk before anything is done about it."""
    for pragma in (f"busy_timeout={_BUSY_MS}", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
    end_s = time.monotonic() + _BUSY_MS / 1000.0
    # two that come first at once: the one that finds it locked is refused without being made to
    # wait
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.02)
