"""What holds of a database that is brought up and down, whatever its kind; used for SQLite and
PostgreSQL."""

from __future__ import annotations

import gzip
import threading

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlmodel import SQLModel

from vgrads.execmgr.core.states import Tick
from vgrads.kernel.errors import VgradsError
from vgrads.portal.records.database import open_engine
from vgrads.portal.records.forecasts.rows import ForecastRecords
from vgrads.portal.records.migrate import HEAD, current, move
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.sets import Sets
from vgrads.portal.records.site_records import SiteRecords
from vgrads.portal.records.store import Store

_PLAN = (
    '{"feasible": true, "lacking": null, "deadline_s": 60, "needed": 1, "scheduled": 1, '
    '"promise": {"probability": 0.9}, "cost_usd": 0}'
)
_OLD = [
    "INSERT INTO workflow_set (id, name, created, document, plan, gantt) VALUES "
    f"('set-0123456789', 'old', '2025-01-02 03:04:05', '{{}}', '{_PLAN}', '{{}}')",
    "INSERT INTO run (id, set_id, state, started, outcome, gantt) VALUES "
    "('run-0123456789', 'set-0123456789', 'kept', '2025-01-02 03:04:05', '{}', '{}')",
    (
        "INSERT INTO run_event (run_id, position, body) VALUES ('run-0123456789', 0, "
        '\'{"kind": "tick", "at_s": 1.0}\')'
    ),
    "INSERT INTO site (name, document) VALUES ('kth', '{}')",
    (
        "INSERT INTO history (site, queue, file, changed, body) VALUES (:s, 'q', 'l.swf.gz', "
        "'2025-01-02 03:04:05', :b)"
    ),
]
_FORECAST = (
    "INSERT INTO forecast (id, issued_s, instant_s, submit_in_s, site, queue, procs, walltime_s, "
    "kind, method, model, owner, job, history, retrospective, times, statements, state, estimate) "
    "VALUES ('old', 9, 9, 0, 's', 'q', 4, 60, 'bound', 'state', 'm', '', '', '', FALSE, 1, "
    "'{\"bounds\"\\: [], \"probabilities\"\\: []}', 'open', '')"
)
BODY = gzip.compress(b"a log")


def fill_old(url: str) -> None:
    """A database of the time before versions, with a set, a run, its journal and a history."""
    engine = open_engine(url)
    move(engine, "0001")
    with engine.begin() as connection:
        for statement in _OLD:
            values = {"s": "kth", "b": BODY} if ":b" in statement else {}
            connection.execute(
                text(statement.replace("\\:", ":"))
                if values
                else text(statement.replace(":", "\\:")),
                values,
            )
        connection.execute(text("DROP TABLE alembic_version"))
    engine.dispose()


def check_contents(store: Store) -> None:
    """Everything that :func:`fill_old` wrote is there."""
    head = Sets(store.engine).head("set-0123456789")
    assert head is not None
    assert (head.name, head.owner, head.state, head.revision) == ("old", "local", "planned", 1)
    assert head.summary["promise"] == {"probability": 0.9}
    assert store.get_run("run-0123456789").state == "kept"
    assert RunRecord(store.engine, "run-0123456789").events() == [Tick(at_s=1.0)]
    row = SiteRecords(store.engine).history("kth", "q")
    assert row is not None
    assert row.body == BODY


def check_up_and_down(url: str) -> None:
    """An old database is brought up, down and up again with all that it holds, and looks as a new
    one does."""
    fill_old(url)
    with Store(url) as store:
        assert current(store.engine) == HEAD
        check_contents(store)
        check_shape(store)
        move(store.engine, "0001", lose_data=True)
        assert "token" not in inspect(store.engine).get_table_names()
    with Store(url) as store:
        check_contents(store)
        SiteRecords(store.engine).remove("kth")
        assert SiteRecords(store.engine).history("kth", "q") is None
        move(store.engine, "base", lose_data=True)
        assert set(inspect(store.engine).get_table_names()) <= {"alembic_version"}


def check_shape(store: Store) -> None:
    """The steps lead to the tables that the code knows."""
    with store.engine.connect() as connection:
        result = compare_metadata(MigrationContext.configure(connection), SQLModel.metadata)
    assert not result, result


def check_forecasts_of_before(url: str) -> None:
    """Records of forecasts of an older version are read; their views were not recorded."""
    with Store(url) as store:
        move(store.engine, "0014", lose_data=True)
        with store.engine.begin() as connection:
            connection.execute(text(_FORECAST))
    with Store(url) as store:
        (row,) = ForecastRecords(store.engine).matchable("s", "q", 0.0)
        assert (row.id, row.view) == ("old", "")
        ForecastRecords(store.engine).remove_before(1e12)


def check_many_at_once(url: str) -> None:
    """Several processes open an old database at the same time: it is brought up once."""
    fill_old(url)
    problems: list[BaseException] = []

    def open_it() -> None:
        try:
            with Store(url) as store:
                check_contents(store)
        except (AssertionError, VgradsError, RuntimeError) as error:
            problems.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
