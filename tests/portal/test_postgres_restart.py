"""A database that is stopped and started again while somebody works: nothing is lost, and nothing
done twice."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial

import pytest
from sqlalchemy import make_url

from tests import waiting
from tests.portal.serving import serving
from tests.services import postgres
from tests.services.fixtures import there
from vgrads.execmgr.core.lease_errors import LeaseExpired
from vgrads.execmgr.core.states import ReplicaEnded
from vgrads.execmgr.mailbox import TaskUpdate
from vgrads.kernel.errors import SiteError
from vgrads.portal.records.bags import BagStore
from vgrads.portal.records.heartbeat import LEASE_S, new_owner
from vgrads.portal.records.mailbox import MessageBox
from vgrads.portal.records.run_lease import RunLease
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import WorkRow
from vgrads.portal.records.work import RUN, Works

until = partial(waiting.until, seconds=60.0)
pytestmark = pytest.mark.services
SITES = '[[site]]\nname = "here"\nkind = "local"\nprocs = 2\ndriver = "local"\n'
SET = """
name: two
deadline: 1h
workflows:
  - name: w
    tasks:
      - {id: first, runtime_s: 1, outputs: [one], command: "echo first >> $RAN; until test -e $GO; do sleep 0.05; done; echo 1 > one"}
      - {id: second, runtime_s: 1, parents: [first], inputs: [one], command: "echo second >> $RAN"}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    there(postgres.missing())
    pytest.importorskip("psycopg")
    with postgres.postgres_server(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture
def record(server):
    """The record of a run that this process is the manager of."""
    with Store(server.url) as store:
        run_record = RunRecord(store.engine, store.add_run(store.add_set("s", {}, {}, {})))
        run_record.lease.take()
        yield run_record


def ends(*numbers):
    return [ReplicaEnded(at_s=float(n), key=("w", f"t{n}", 0), ok=True) for n in numbers]


@contextmanager
def started_again(server, mode="fast"):
    """The server is down while the block runs."""
    server.stop(mode)
    try:
        yield
    finally:
        server.start()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_manager_waits_for_its_database_and_no_task_begins_twice(server, tmp_path, mode):
    (tmp_path / "sites.toml").write_text(SITES)
    (tmp_path / "set.yaml").write_text(SET)
    ran, go, log = tmp_path / "ran", tmp_path / "go", tmp_path / "log"
    environment = {
        **os.environ,
        "VGRADS_HOME": str(tmp_path / "home"),
        "VGRADS_DB": server.url,
        "RAN": str(ran),
        "GO": str(go),
    }
    command = [sys.executable, "-m", "vgrads", "run", tmp_path / "set.yaml", "--json", "--sites"]
    with log.open("wb") as err:
        manager = subprocess.Popen(
            [*command, tmp_path / "sites.toml"], env=environment, stderr=err, stdout=subprocess.PIPE
        )
    try:
        until(ran.exists, "the task runs")
        with started_again(server, mode):
            go.touch()  # it ends while nobody can write that down
            until(lambda: "waiting for it up to" in log.read_text(), "the manager waits")
        out, _ = manager.communicate(timeout=60)
    finally:
        if manager.poll() is None:
            manager.send_signal(signal.SIGKILL)
    assert manager.returncode == 0, log.read_text()
    assert ran.read_text().split() == ["first", "second"]
    with Store(server.url) as store:
        (row,) = [row for row in store.list_runs() if row.id == json.loads(out)["run"]]
        assert row.state == "kept"
        message = [e["key"][1] for e in store.events(row.id) if e.get("committed")]
        assert sorted(message) == ["first", "second"]


def test_a_lease_that_ends_while_the_database_is_away_ends_its_manager(server, record):
    record.append(ends(1))
    with started_again(server):
        record.lease._confirmed_s = time.monotonic() - LEASE_S + 0.3
        with pytest.raises(LeaseExpired, match="could not reach the database for 30 s") as caught:
            record.append(ends(2))
        assert caught.value.exit_code == 4 and "vgrads resume" in str(caught.value)
        record.lease._confirmed_s, record.lease._look_s = time.monotonic() - LEASE_S, 0.0
        with pytest.raises(LeaseExpired):
            record.stop_reason()
    assert record.events() == ends(1)


def test_who_holds_no_lease_is_reported_at_once(server, record):
    other = RunLease(record._engine, record.run_id)
    with started_again(server), pytest.raises(SiteError, match="database"):
        other.take()


class Proxy:
    """Between a client and PostgreSQL; breaks the next connection off that commits, ``at`` the
    request or its answer."""

    def __init__(self, port):
        self._port, self.at, self.cuts = port, "", 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets, self._threads = [self._listener], []
        self._run(self._accept)

    def _run(self, function, *arguments):
        self._threads.append(threading.Thread(target=function, args=arguments))
        self._threads[-1].start()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [near, far]
                cut = threading.Event()
                self._run(self._pass_on, near, far, cut, True)
                self._run(self._pass_on, far, near, cut, False)

    def _pass_on(self, source, target, cut, requests):
        with suppress(OSError):
            while data := source.recv(65536):
                if requests and b"COMMIT" in data and self.at:
                    at, self.at = self.at, ""
                    self.cuts += 1
                    if at == "request":
                        break
                    cut.set()
                if cut.is_set() and not requests:
                    break
                target.sendall(data)
        for item in (source, target):
            with suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)

    def close(self):
        for item in self._sockets:
            with suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for item in self._sockets:
            item.close()


@pytest.fixture
def proxy(server):
    result = Proxy(server.port)
    yield result
    result.close()


@pytest.mark.parametrize("at", ["request", "answer"])
def test_a_commit_that_nobody_answers_for_is_written_once(server, proxy, at):
    with Store(make_url(server.url).set(port=proxy.port).render_as_string()) as store:
        run_id = store.add_run(store.add_set("s", {}, {}, {}))
        record = RunRecord(store.engine, run_id)
        record.lease.take()
        record.append(ends(1))
        proxy.at = at
        record.append(ends(2, 3))
        record.append(ends(4))
        assert record.events() == ends(1, 2, 3, 4)
        answer = [TaskUpdate(task=("w", "a"), state="done", reason="")]
        record.mailbox().answer(answer)
        proxy.at = at
        record.mailbox().answer(answer)
        assert len(MessageBox(store.engine, run_id).answers(0)) == 2
        proxy.at = at
        record.lease.leave()
        assert proxy.cuts == 3
    with Store(server.url) as store:
        RunLease(store.engine, run_id).take()


@pytest.mark.parametrize("at", ["request", "answer"])
def test_a_lease_whose_taking_nobody_answered_for_is_taken_again(server, proxy, at):
    with Store(make_url(server.url).set(port=proxy.port).render_as_string()) as store:
        record = RunRecord(store.engine, store.add_run(store.add_set("s", {}, {}, {})))
        proxy.at = at
        with pytest.raises(SiteError):
            record.lease.take()
        record.lease.take()
        record.append(ends(1))


def test_work_that_a_service_does_not_know_it_took_is_taken_again(server, proxy):
    with Store(make_url(server.url).set(port=proxy.port).render_as_string()) as store:
        set_id = store.add_set("s", {}, {}, {})
        store.add(WorkRow(kind=RUN, set_id=set_id))
        works, owner = Works(store.engine), new_owner()
        proxy.at = "answer"
        with pytest.raises(SiteError):
            works.claim(owner, [RUN])
        work = works.claim(owner, [RUN])
        assert work is not None and work.set_id == set_id and work.tries == 0
        assert works.claim(owner, [RUN], {work.id}) is None
        works.finish(work, True)


def test_a_service_and_its_runs_go_on_when_the_database_is_there_again(server, tmp_path):
    (tmp_path / "sites.toml").write_text(SITES)
    tasks = [{"id": "a", "runtime_s": 2}, {"id": "b", "runtime_s": 2, "parents": ["a"]}]
    chain = {"name": "chain", "deadline": "120s", "workflows": [{"name": "w", "tasks": tasks}]}
    with serving(tmp_path, "--db", server.url, "--sites", tmp_path / "sites.toml") as service:
        client = service.client()
        run = client.run(client.submit(chain), engine="outside")
        first = client.permit(run, "w-1", "a")
        with started_again(server, "immediate"):
            until(lambda: not service.ready(), "the service notices")
        assert client.end(run, "w-1", "a", replica=first["copy"], ok=True)
        second = client.permit(run, "w-1", "b")
        assert client.end(run, "w-1", "b", replica=second["copy"], ok=True)
        assert client.wait(run) == "kept"
        assert "Traceback" not in service.log.read_text()
    with Store(server.url) as store:
        replicas = [e["key"][1] for e in store.events(run.run_id) if e.get("committed")]
        assert replicas == ["a", "b"]


def test_a_bag_that_ends_while_the_database_is_away_is_done(server, tmp_path):
    ran, go, log = tmp_path / "ran", tmp_path / "go", tmp_path / "log"
    (tmp_path / "sites.toml").write_text(SITES)
    (tmp_path / "bag.yaml").write_text(
        f'name: b\ncommand: "echo {{n}} >> {ran}; until test -e {go}; do sleep 0.05; '
        'done"\nparameters: {n: {range: [2]}}\n'
    )
    command = [sys.executable, "-m", "vgrads", "bags", "run", tmp_path / "bag.yaml", "--sites"]
    environment = {**os.environ, "VGRADS_HOME": str(tmp_path / "home"), "VGRADS_DB": server.url}
    with log.open("wb") as err:
        dispatcher = subprocess.Popen(
            [*command, tmp_path / "sites.toml"], env=environment, stderr=err, stdout=err
        )
    try:
        until(lambda: ran.exists() and len(ran.read_text().split()) == 2, "both tasks run")
        with started_again(server, "immediate"):
            go.touch()
            until(lambda: "waiting for it up to" in log.read_text(), "the dispatcher waits")
        assert dispatcher.wait(60) == 0, log.read_text()
    finally:
        if dispatcher.poll() is None:
            dispatcher.send_signal(signal.SIGKILL)
    assert sorted(ran.read_text().split()) == ["0", "1"]
    with Store(server.url) as store:
        assert [row.state for row in BagStore(store.engine).newest()] == ["done"]
