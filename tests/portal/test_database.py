"""The database: migrated, or refused, with data in place, copied, freed of what is old."""

import gzip
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event, text

from tests.conftest import DATA
from tests.portal.migrating import (
    EARLIER,
    NEXT,
    check_earlier_is_refused,
    check_many_at_once,
    check_next_revision,
    check_shape,
    fill,
    next_steps,
)
from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.records.database import open_engine
from vgrads.portal.records.migrate import HEAD, current, prepare
from vgrads.portal.records.retention import prune
from vgrads.portal.records.sets import Sets
from vgrads.portal.records.site_records import SiteRecords
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import HistoryRow
from vgrads.traces.history import read_history


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'x.db'}"


def test_a_next_version_upgrades_after_a_copy_and_down_again(url, tmp_path):
    check_next_revision(url, tmp_path)


def test_many_open_a_database_of_an_older_revision_at_once(url, tmp_path):
    check_many_at_once(url, tmp_path)


def test_the_steps_lead_to_the_tables_of_the_code(url):
    check_shape(url)


def test_a_step_that_fails_half_way_leaves_the_database_as_it_was(url, tmp_path):
    steps = next_steps(tmp_path)
    (step,) = (steps / "versions").glob(f"{NEXT}_*.py")
    step.write_text(
        step.read_text().replace("def downgrade", "    op.drop_table('none')\n\n\ndef downgrade")
    )
    with Store(url) as store:
        fill(store)
        with closing(sqlite3.connect(tmp_path / "x.db")) as raw:

            def shape():
                query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"
                return sorted(raw.execute(query).fetchall())

            before = shape()
            with pytest.raises(Exception, match="no such table: none"):
                prepare(store.engine, NEXT, steps)
            assert shape() == before
        assert current(store.engine) == HEAD


@pytest.mark.parametrize("revision", list(EARLIER))
def test_a_database_of_an_earlier_version_is_refused(url, revision):
    check_earlier_is_refused(url, revision)


def test_a_database_of_a_newer_vgrads_is_left_alone(url, vgrads, monkeypatch):
    with Store(url) as store, store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(InputError, match="newer vgrads"):
        Store(url)
    monkeypatch.setenv("VGRADS_DB", url)
    assert vgrads("status").code == 2
    assert vgrads("db", "upgrade", HEAD).code == 2


def test_versions_on_the_command_line(url, vgrads, monkeypatch, tmp_path):
    monkeypatch.setenv("VGRADS_DB", url)
    with Store(url) as store:
        run_id = fill(store)
    assert f"version {HEAD}" in vgrads("db", "upgrade").out
    assert vgrads("db", "upgrade", "0001").code == 2
    assert vgrads("status", "--json").json["runs"][0]["run"] == run_id
    assert list(tmp_path.glob("x.db.*")) == []  # nothing was migrated


def test_a_copy_is_whole_though_somebody_writes(url, vgrads, monkeypatch, tmp_path):
    monkeypatch.setenv("VGRADS_DB", url)
    with Store(url) as store:
        set_id = store.add_set("s", {}, {}, {})
        with closing(sqlite3.connect(tmp_path / "x.db")) as writing:
            writing.execute("UPDATE workflow_set SET name = 'half'")
            writing.rollback()
            assert vgrads("db", "backup", tmp_path / "copy.db").code == 0
    with Store(f"sqlite:///{tmp_path / 'copy.db'}") as replica:
        assert replica.get_set(set_id).name == "s"
    assert vgrads("db", "backup", tmp_path / "copy.db").code == 2
    assert vgrads("db", "backup", tmp_path / "none" / "copy.db").code == 2
    monkeypatch.setenv("VGRADS_DB", "sqlite:////nowhere/x.db")
    assert vgrads("db", "backup", tmp_path / "other.db").code == 2


def old_set(store, days, state="kept"):
    set_id = store.add_set("s", {}, {}, {})
    run_id = store.add_run(set_id)
    store.set_run_state(run_id, state)
    with store.engine.begin() as connection:
        long_ago = datetime.now(UTC) - timedelta(days=days)
        for table, column in (("workflow_set", "created"), ("run", "started")):
            key = set_id if table == "workflow_set" else run_id
            connection.execute(
                text(f"UPDATE {table} SET {column} = :t WHERE id = :i"),
                {"t": str(long_ago.replace(tzinfo=None)), "i": key},
            )
    return set_id


def test_old_sets_go_with_their_runs_and_those_that_go_on_stay(url):
    with Store(url) as store:
        old, young, busy = old_set(store, 40), old_set(store, 3), old_set(store, 40, "interrupted")
        assert prune(store, None, None)["sets"] == 0
        assert prune(store, 30 * 86400.0, None)["sets"] == 1
        left = {head.id for head in Sets(store.engine).heads()}
        assert left == {young, busy}
        assert store.get_set(old) is None
        assert len(store.list_runs()) == 2


def test_old_jobs_of_histories_go_and_the_rest_predicts_the_same(url, tmp_path):
    source = DATA / "histories" / "mayhem.swf.gz"
    whole = read_history(source)
    with Store(url) as store:
        SiteRecords(store.engine).put(
            [
                HistoryRow(
                    site="m",
                    queue="q",
                    file=source.name,
                    changed=datetime.now(UTC),
                    body=source.read_bytes(),
                )
            ]
        )
        middle_s = whole.unix_start_s + float(whole.submit_s[len(whole) // 2])
        age_s = datetime.now(UTC).timestamp() - middle_s
        gone = prune(store, None, age_s)["jobs"]
        assert gone == pytest.approx(len(whole) // 2, abs=2)
        row = SiteRecords(store.engine).history("m", "q")
        path = tmp_path / row.file
        path.write_bytes(row.body)
        left = read_history(path)
        assert len(left) == len(whole) - gone
        assert left.wait_s.tolist() == whole.wait_s[gone:].tolist()
        assert gzip.decompress(row.body)
        assert prune(store, None, 1.0)["jobs"] == 0  # never all of it


def test_pruning_on_the_command_line(vgrads):
    assert vgrads("db", "prune", "--keep", "30d", "--json").json == {
        "sets": 0,
        "jobs": 0,
        "forecasts": 0,
    }
    assert vgrads("db", "prune", "--keep", "long").code == 2


def test_a_damaged_file_is_reported_with_what_to_restore(url, tmp_path):
    with Store(url):
        pass
    whole = (tmp_path / "x.db").read_bytes()
    (tmp_path / "x.db").write_bytes(b"no database " * 1000)
    with pytest.raises(SiteError, match=r"damaged.*put a copy of 'vgrads db backup'") as failed:
        Store(url)
    assert not failed.value.transient
    (tmp_path / "x.db.monday").write_bytes(whole)
    (tmp_path / "x.txt").write_text("x")
    (tmp_path / "x.db").write_bytes(whole[:100] + b"x" * 30_000)
    with pytest.raises(SiteError, match=r"x\.db\.monday', the newest copy beside it"), Store(url):
        pass


def test_an_interrupt_while_a_connection_is_given_back_is_no_traceback(tmp_path, caplog):
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}")
    for kind in (KeyboardInterrupt, ValueError):
        try:
            raise kind
        except kind:
            engine.pool.logger.error("while %s", kind.__name__, exc_info=True)
    assert [record.getMessage() for record in caplog.records] == ["while ValueError"]
    engine.dispose()


def test_ctrl_c_within_a_statement_remains_ctrl_c(tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    with Store(f"sqlite:///{tmp_path}/vgrads.db") as store:
        event.listen(store.engine, "do_execute", interrupt)
        with pytest.raises(KeyboardInterrupt), store.engine.connect() as connection:
            connection.execute(text("SELECT 1"))
        event.remove(store.engine, "do_execute", interrupt)
