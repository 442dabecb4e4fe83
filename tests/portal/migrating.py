"""What holds of a database that is brought up and down, whatever its kind; used for SQLite and
PostgreSQL."""

from __future__ import annotations

import gzip
import json
import threading

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlmodel import SQLModel

from vgrads.api.queues.issued import LEVELS
from vgrads.execmgr.core.states import Tick
from vgrads.kernel.errors import VgradsError
from vgrads.portal.records.database import open_engine
from vgrads.portal.records.forecasts.rows import ForecastRecords
from vgrads.portal.records.migrate import HEAD, current, move
from vgrads.portal.records.reading.forecast_scores import queue_score
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
_FORECAST = text(
    "INSERT INTO forecast (id, issued_s, instant_s, submit_in_s, site, queue, procs, walltime_s, "
    "kind, method, model, owner, job, history, retrospective, times, statements, state, wait_s, "
    "job_submit_s, observed_s, covered, estimate) VALUES (:id, 9, 9, 0, 's', 'q', 4, 60, :kind, "
    ":method, 'm', :owner, '', '', FALSE, 1, :statements, :state, :wait_s, 9, 900, TRUE, '')"
)
FORECASTS_OF_BEFORE = {
    "standard": ("bound", "state", "", 0.75),
    "special": ("bound", "state", "", 0.8),
    "special and open": ("bound", "state", "", 0.99),
    "by past waits": ("bound", "qbets", "", 0.8),
    "of a service": ("bound", "state", "ann", 0.8),
    "of a list": ("where", "state", "", 0.25),
}
"""Records of an older version: kind, method, owner, and a quantile beside the standard ones."""
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


def fill_forecasts(store: Store) -> None:
    """Bring a database down to the version before views, with records of forecasts; all but one
    are scored."""
    move(store.engine, "0014", lose_data=True)
    with store.engine.begin() as connection:
        for name, (kind, method, owner, special) in FORECASTS_OF_BEFORE.items():
            levels = sorted({*LEVELS, special})
            is_open = name.endswith("open")
            values = {"id": name, "kind": kind, "method": method, "owner": owner}
            bounds = [[level, 100.0] for level in levels]
            values["statements"] = json.dumps({"bounds": bounds, "probabilities": []})
            values |= {"state": "open" if is_open else "scored", "wait_s": None if is_open else 5.0}
            connection.execute(_FORECAST, values)


def check_forecasts_of_before(url: str) -> None:
    """Records of an older version are read. Their views were not recorded; those that were learned
    at another probability than their standard quantiles leave the scores, and are counted."""
    with Store(url) as store:
        fill_forecasts(store)
    with Store(url) as store:
        rows = ForecastRecords(store.engine).matchable("s", "q", 0.0)
        assert {row.id for row in rows} == {n for n in FORECASTS_OF_BEFORE if "special" not in n}
        assert {row.view for row in rows} == {""}
        score = queue_score(store.reader, "s", "q")
        assert (score["scored"], score["watched"]["bounds"]) == (4, 4)
        assert score["views"] == [{"view": None, "scored": 4, "bounds": 4, "coverage": 1.0}]
        assert score["records"] == {
            "issued": 6,
            "open": 0,
            "scored": 4,
            "without_start": 0,
            "excluded": 2,
            "retrospective": 0,
        }
        move(store.engine, "0014", lose_data=True)
        states = store.reader.rows("SELECT state, COUNT(*) FROM forecast GROUP BY state")
        assert dict(map(tuple, states)) == {"scored": 5, "closed": 1}
    with Store(url) as store:
        assert queue_score(store.reader, "s", "q")["records"]["excluded"] == 2
        assert ForecastRecords(store.engine).remove_before(1e12) == 6


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
