"""The same database behind PostgreSQL: journals, archives, leases, sites, and a whole run."""

import itertools

import pytest
from sqlalchemy import make_url, text

from tests.conftest import DATA
from tests.portal.migrating import (
    check_earlier_is_refused,
    check_many_at_once,
    check_next_revision,
    check_shape,
)
from tests.portal.serving import LEAD, serving
from tests.portal.test_portal import check_that_a_single_run_begins
from tests.security.test_accounts import check_services_agree
from tests.services import postgres
from tests.services.fixtures import there
from vgrads.execmgr.core.states import Cancelled, ReplicaEnded
from vgrads.kernel.errors import InputError
from vgrads.portal.records.database import open_engine
from vgrads.portal.records.run_lease import request_stop
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store

_numbers = itertools.count()
pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    there(postgres.missing())
    pytest.importorskip("psycopg")
    with postgres.postgres_service(tmp_path_factory.mktemp("postgres")) as url:
        yield url


def test_a_run_is_planned_carried_out_resumed_and_drawn(url, vgrads, monkeypatch, tmp_path):
    monkeypatch.setenv("VGRADS_DB", url)
    assert vgrads("run", DATA / "lead.yaml", "--as-stated", "--json").code == 0
    (row,) = vgrads("status", "--json").json["runs"]
    assert row["state"] == "kept"
    assert vgrads("gantt", row["run"], "-o", tmp_path / "g.html").code == 0
    with Store(url) as store:
        before = store.events(row["run"])
        assert store.events(row["run"], start=5) == before[5:]
        assert store.count_runs() == {"kept": 1}
        store.set_run_state(row["run"], "interrupted")
    assert vgrads("resume", row["run"], "--json").code == 0
    with Store(url) as store:
        assert store.events(row["run"]) == before


def test_a_single_manager_at_a_time_and_what_it_writes_is_there(url):
    with Store(url) as store:
        run_id = store.add_run(store.add_set("s", {}, {}, {}))
        first, second = RunRecord(store.engine, run_id), RunRecord(store.engine, run_id)
        first.lease.take()
        with pytest.raises(InputError, match="is managed"):
            second.lease.take()
        events = [
            Cancelled(at_s=1.0, reason="x"),
            ReplicaEnded(at_s=2.0, key=("w", "t", 0), ok=True),
        ]
        first.append(events)
        assert second.events() == events
        assert request_stop(store.engine, run_id, "enough")
        first.lease._look_s = 0.0
        assert first.stop_reason() == "enough"
        first.lease.leave()
        second.lease.take()
        second.lease.leave()


def test_of_runs_that_are_requested_at_once_a_single_run_begins(url):
    check_that_a_single_run_begins(url)


def test_sites_are_stored(url, vgrads, monkeypatch):
    monkeypatch.setenv("VGRADS_DB", url)
    assert vgrads("sites", "add", DATA / "sites.toml").code == 0
    assert len(vgrads("sites", "list", "--json").json["sites"]) >= 7
    assert vgrads("sites", "remove", "kittyhawk").code in (0, 2)


@pytest.fixture
def empty(url):
    """A database of its own on the same server."""
    name = f"d{next(_numbers)}"
    admin = open_engine(url).execution_options(isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def test_a_next_version_upgrades_and_down_again(empty, tmp_path):
    check_next_revision(empty, tmp_path)


@pytest.mark.parametrize("revision", [None, "0002", "0008", "0016"])
def test_a_database_of_an_earlier_version_is_refused(empty, revision):
    check_earlier_is_refused(empty, revision)


def test_services_on_one_database_agree_about_accounts(empty):
    check_services_agree(empty)


def test_many_open_a_database_of_an_older_revision_at_once(empty, tmp_path):
    check_many_at_once(empty, tmp_path)


def test_the_steps_lead_to_the_tables_of_the_code(empty):
    check_shape(empty)


def test_the_service_plans_and_runs_over_it(empty, tmp_path, monkeypatch):
    with serving(tmp_path, "--db", empty) as service:
        client = service.client()
        set_id = client.submit(LEAD, key="once")
        assert client.submit(LEAD, key="once") == set_id
        run = client.run(set_id)
        assert client.wait(run) == "kept"
        service.kill()
        service.begin()
        assert [r["state"] for r in service.client().read(set_id)["runs"]] == ["kept"]
