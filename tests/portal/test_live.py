"""What goes on, told to others: a served run seen through the client, an outside engine, webhooks,
figures."""

import json
import os
import socket
import threading
import time
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import uvicorn
from immutables import Map

from tests.conftest import DATA
from tests.portal.serving import LEAD
from tests.ports import free_ports
from tests.waiting import until
from vgrads.execmgr.core.states import ReplicaEnded, RunState, Tick
from vgrads.execmgr.engines.outside import OutsideEngine
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.kernel.clock import SimClock
from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.cli.plans.top import ActivityReader
from vgrads.portal.client import Client, RunHandle
from vgrads.portal.jobs.webhook import SIGNATURE, Webhook, sign
from vgrads.portal.records.store import Store
from vgrads.portal.web.app import make_app
from vgrads.vgrid.catalog import load_catalog

DIAMOND = {
    "name": "diamond",
    "deadline": "60s",
    "workflows": [
        {
            "name": "w",
            "count": 2,
            "tasks": [
                {"id": "a", "runtime_s": 2},
                {"id": "b", "runtime_s": 2, "parents": ["a"]},
                {"id": "c", "runtime_s": 2, "parents": ["a"]},
                {"id": "d", "runtime_s": 2, "parents": ["b", "c"]},
            ],
        }
    ],
}


@contextmanager
def served(store, sites):
    """The service on a free port of the loopback address."""
    port = free_ports()
    config = uvicorn.Config(
        make_app(store, load_catalog(sites)), host="127.0.0.1", port=port, log_level="error"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield Client(f"http://127.0.0.1:{port}")
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path))
    monkeypatch.setenv("VGRADS_DB", f"sqlite:///{tmp_path / 'test.db'}")
    store = Store()
    yield store
    store.close()


@pytest.fixture
def local_sites(tmp_path):
    path = tmp_path / "sites.toml"
    path.write_text('[[site]]\nname = "here"\nkind = "local"\nprocs = 4\ndriver = "local"\n')
    return path


def test_events_stream_resume_and_end(store):
    with served(store, DATA / "sites.toml") as client:
        run = client.run(client.submit(LEAD))
        events = list(client.events(run))
        assert (events[-1]["event"], events[-1]["state"]) == ("end", "kept")
        assert {"slot", "copy"} <= {event["event"] for event in events}
        retained = store.events(run.run_id)
        assert [e["at_s"] for e in events[:-1]] == [e["at_s"] for e in retained]
        middle = events[len(events) // 2]["id"]
        rest = list(client.events(run, after=middle))
        assert rest == events[len(events) // 2 + 1 :]
        assert client.wait(run) == "kept"


def test_an_outside_engine_is_sent_where_and_when_and_order_is_respected(store, local_sites):
    """Everything is announced at once, in a wrong order; nothing gets its turn before its parents
    are done."""
    with served(store, local_sites) as client:
        set_id = client.submit(DIAMOND)
        run = client.run(set_id, engine="outside")
        began, ended, lock = {}, {}, threading.Lock()

        def work(workflow, task):
            turn = client.permit(run, workflow, task)
            assert (turn["site"], turn["slot"].startswith("here")) == ("here", True)
            with lock:
                began[workflow, task] = time.monotonic()
            time.sleep(0.05)
            with lock:
                ended[workflow, task] = time.monotonic()
            assert client.end(run, workflow, task, replica=turn["copy"], ok=True)

        tasks = [(w, t) for w in ("w-1", "w-2") for t in ("d", "c", "b", "a")]
        threads = [threading.Thread(target=work, args=task) for task in tasks]
        for thread in threads:
            thread.start()
        assert client.wait(run) == "kept"
        for thread in threads:
            thread.join(20)
        for workflow in ("w-1", "w-2"):
            for parent, child in (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")):
                assert ended[workflow, parent] <= began[workflow, child]
        with pytest.raises(InputError, match="has ended"):
            client.permit(run, "w-1", "a")
        with pytest.raises(InputError):
            client.permit(RunHandle(set_id, "run-0000000000"), "w-1", "a")


def test_a_run_is_cancelled_over_rest(store, local_sites):
    with served(store, local_sites) as client:
        set_id = client.submit(DIAMOND)
        with pytest.raises(InputError, match="no active run"):
            client.cancel(set_id)
        run = client.run(set_id, engine="outside")
        client.permit(run, "w-1", "a")
        with pytest.raises(InputError, match="no task 'e'"):
            client.permit(run, "w-1", "e")
        with pytest.raises(InputError, match="no workflow 'w 1'"):
            client.end(run, "w 1", "a", ok=True)
        client.cancel(set_id)
        assert client.wait(run) == "cancelled"


def test_who_watches_does_not_read_a_run_again_that_has_no_news(store, local_sites):
    with served(store, local_sites) as client:
        run, reader = client.run(client.submit(DIAMOND), engine="outside"), ActivityReader()
        until(lambda: any("tasks" in row for row in reader.read()["runs"]))
        until(lambda: is_read_once(reader))
        (quiet,) = reader.read()["runs"]
        assert quiet["run"] == run.run_id and quiet["tasks"]["done"] == 0
        client.permit(run, "w-1", "a")
        client.end(run, "w-1", "a", ok=True)
        until(lambda: reader.read()["runs"][0]["tasks"]["done"] == 1)
        client.cancel(run.set_id)
        assert client.wait(run) == "cancelled"
        assert reader.read()["runs"] == []


def is_read_once(reader):
    """Whether the second of two readings has the details of the first."""
    return reader.read()["runs"][0] is reader.read()["runs"][0]


def test_tasks_of_others_are_not_run_by_the_service(store, local_sites):
    with served(store, local_sites) as client:
        set_id = client.submit(DIAMOND)
        with pytest.raises(InputError, match="engine=outside"):
            client.run(set_id)


def test_figures_for_prometheus(store):
    with served(store, DATA / "sites.toml") as client:
        assert client.wait(client.run(client.submit(LEAD))) == "kept"
        with urllib.request.urlopen(f"{client._url}/metrics") as answer:
            text = answer.read().decode()
    assert 'vgrads_runs{state="kept"} 1.0' in text
    assert 'fate="granted"' in text
    reserved = sum(
        float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("vgrads_slot_bounds_total")
    )
    assert reserved >= 1
    assert 'vgrads_slot_wait_seconds_bucket{le="+Inf"' in text
    assert "vgrads_kept 1.0" in text


def test_a_service_that_is_not_there():
    with pytest.raises(SiteError) as gone:
        Client("http://127.0.0.1:9", timeout_s=2.0).submit({})
    assert gone.value.transient


def order(task, replica=0, attempt=0):
    return TaskOrder(
        key=("w", task, replica),
        site="s",
        slot="a",
        procs=1,
        command="",
        runtime_s=1.0,
        attempt=attempt,
    )


def test_turns_wait_for_both_sides_and_are_abandoned_if_nobody_comes():
    clock = SimClock()
    engine = OutsideEngine(clock, patience_s=100.0)
    assert engine.announce(("w", "a")) == []
    engine.start([order("a"), order("a", replica=1), order("b")])
    assert {o.key for o in engine.announce(("w", "a"))} == {("w", "a", 0), ("w", "a", 1)}
    engine.cancel(("w", "a", 1))
    assert engine.report(("w", "a", 0), True)
    assert not engine.report(("w", "a", 1), True)  # cancelled: not needed any more
    assert not engine.report(("w", "a", 0), True)  # told before
    clock.advance_to(101.0)
    ends = {event.key[1]: event for event in engine.poll()}
    assert (ends["a"].ok, ends["b"].ok, ends["b"].reason) == (
        True,
        False,
        "no engine requested its start permit",
    )
    offered = engine.offered(("w", "c"))
    assert not offered.done()
    engine.start([order("c")])
    assert offered.result(0) is None
    assert [o.key for o in engine.announce(("w", "c"))] == [("w", "c", 0)]
    left = engine.offered(("w", "d"))
    engine.detach()
    assert left.done()


class Listener:
    """Somebody's address: remembers what came, refuses as often as it is told to."""

    def __init__(self, refusals=0, code=503):
        self.bodies, self.signatures, self.left = [], [], refusals
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                refuse = outer.left > 0
                outer.left -= refuse
                if not refuse:
                    outer.bodies.append(json.loads(body))
                    outer.signatures.append(self.headers[SIGNATURE] == sign("secret", body))
                self.send_response(code if refuse else 204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def listen():
    created = []

    def make(**how):
        created.append(Listener(**how))
        return created[-1]

    yield make
    for listener in created:
        listener.server.shutdown()
        listener.server.server_close()


def state(now_s=1.0):
    return RunState(now_s=now_s, slots=Map(), replicas=Map(), done=Map(), lost=Map())


def test_webhooks_are_signed_in_order_and_tried_again(listen):
    listener = listen(refusals=2)
    hook = Webhook(listener.url, "secret", "run-1", pause=lambda _: 0.01)
    hook(None, state(), [Tick(at_s=1.0)])
    for n in range(3):
        hook(None, state(), [ReplicaEnded(at_s=float(n), key=("w", "t", n), ok=True)])
    hook.outcome = {"kept": True}
    hook.close()
    assert [body["events"][0]["at_s"] for body in listener.bodies[:-1]] == [0.0, 1.0, 2.0]
    assert listener.bodies[-1] == {"run": "run-1", "outcome": {"kept": True}}
    assert all(listener.signatures)
    assert hook.undelivered == 0


def test_webhooks_that_are_not_configured_or_not_there_hold_nothing_up(listen):
    unwanted = Webhook(listen(refusals=99, code=404).url, "secret", "run-1", pause=lambda _: 0.01)
    nobody = Webhook("http://127.0.0.1:9/", "secret", "run-1", pause=lambda _: 0.01)
    for hook in (unwanted, nobody):
        hook(None, state(), [ReplicaEnded(at_s=0.0, key=("w", "t", 0), ok=True)])
        hook.close()
        assert hook.undelivered == 2
    with pytest.raises(InputError, match="not an http or https URL"):
        Webhook("file:///etc/passwd", "secret", "run-1")


def test_a_receiver_that_never_answers_does_not_hold_the_end_of_a_run_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hook = Webhook(f"http://127.0.0.1:{silent.getsockname()[1]}/", "secret", "run-1")
        for n in range(1100):  # more than may wait
            hook(None, state(), [ReplicaEnded(at_s=0.0, key=("w", "t", n), ok=True)])
        closing = threading.Thread(target=hook.close, args=(0.1,), daemon=True)
        closing.start()
        closing.join(5.0)
        assert not closing.is_alive()
        assert hook.undelivered > 0


@pytest.mark.more
def test_a_run_from_the_command_line_tells_its_webhook(vgrads, listen, monkeypatch):
    listener = listen()
    missing = vgrads("run", DATA / "lead.yaml", "--webhook", listener.url)
    assert (missing.code, "VGRADS_WEBHOOK_SECRET" in missing.err) == (2, True)
    monkeypatch.setenv("VGRADS_WEBHOOK_SECRET", "secret")
    assert vgrads("run", DATA / "lead.yaml", "--webhook", listener.url, "--json").code == 0
    assert listener.bodies[-1]["outcome"]["kept"] is True
    assert all(listener.signatures)
    assert os.environ["VGRADS_WEBHOOK_SECRET"] not in json.dumps(listener.bodies)
