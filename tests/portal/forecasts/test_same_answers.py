"""One question has one answer, and one refusal, in every interface: from the queue as its site
lists it."""

import json
import re

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vgrads as vgrads_package
from tests.examples import examples
from tests.portal.forecasts.learning import learn
from tests.portal.forecasts.listed_site import listed_site
from tests.waiting import until
from vgrads.api.queues.histories import AS_QUESTION
from vgrads.api.queues.history_files import open_history
from vgrads.kernel.errors import VgradsError
from vgrads.portal.client import Client
from vgrads.portal.jobs.supervisor import Places
from vgrads.portal.web.app import make_app
from vgrads.portal.web.service import Bounds
from vgrads.qbets.state_forecast import make_forecast
from vgrads.qbets.views import BEST, FULL
from vgrads.vgrid.catalog import load_catalog

CHANGING = {"age_s"}


@pytest.fixture
def interfaces(store, vgrads, tmp_path, monkeypatch):
    """The command line, a service and Python, over the same sites, and the site's commands."""
    (tmp_path / "site").mkdir()
    commands = listed_site(tmp_path / "site", monkeypatch)
    assert vgrads("sites", "add", commands.sites).code == 0
    catalog = load_catalog(commands.sites)
    app = make_app(store, catalog, Bounds(places=Places(planners=0)))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        service = app.state.service
        for queue in (q for site in service.catalog.sites for q in site.queues):
            for view in (BEST, FULL):
                learn(service.learned, queue, view)
        until(lambda: service.queues.snapshot(catalog.site("cluster")) is not None)
        yield vgrads, client, commands


def plain(answer):
    """An answer without what changes from second to second."""
    if isinstance(answer, dict):
        return {name: plain(value) for name, value in answer.items() if name not in CHANGING}
    return [plain(value) for value in answer] if isinstance(answer, list | tuple) else answer


QUESTIONS = st.fixed_dictionaries(
    {
        "site": st.sampled_from(["cluster", "cluster", "simulated"]),
        "operation": st.sampled_from(["bound", "probability", "trajectory"]),
        "procs": st.one_of(st.integers(1, 64), st.integers(65, 10_000)),
        "walltime_s": st.one_of(st.integers(60, 86_400), st.integers(86_401, 200_000)),
        "share": st.integers(1, 99).map(lambda n: n / 100),
        "method": st.sampled_from(["state", "state", "qbets"]),
        "live": st.booleans(),
    }
)


@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(question=QUESTIONS)
def test_a_question_has_one_answer(interfaces, question):
    vgrads, client, commands = interfaces
    operation, place = question["operation"], f"{question['site']}/batch"
    special = {
        "bound": {"probability": question["share"]},
        "probability": {"within_s": 3600},
        "trajectory": {"probability": question["share"], "start_by_s": 7200},
    }[operation]
    shape = {name: question[name] for name in ("procs", "walltime_s", "method", "live")}
    options = [
        *("--procs", shape["procs"], "--walltime", shape["walltime_s"]),
        *("--method", shape["method"], "--live" if shape["live"] else "--no-live"),
        *(f"--{n.removesuffix('_s').replace('_', '-')}={v}" for n, v in special.items()),
    ]
    command = vgrads(operation, place, *options, "--json")
    address = f"/v1/sites/{question['site']}/queues/batch/{operation}"
    agree(command, client.get(address, params=shape | special))
    if operation != "trajectory":
        python = {name.removesuffix("_s"): value for name, value in (shape | special).items()}
        agree(command, in_python(operation, place, python | {"sites": commands.sites}))
    if shape["method"] == "state" and shape["live"] and operation == "bound":
        agree_in_a_list(command, client, question)


def agree(command, answer):
    """A command and another interface give the same answer, or refuse in the same words."""
    document = answer.json() if hasattr(answer, "json") else answer
    if command.code:
        assert command.code == 2, command.err
        text = json.dumps(document, ensure_ascii=False)
        assert refusal(command) in text, (command.err, text)
    else:
        expected = plain(command.json)
        assert plain(document) == expected


def refusal(command):
    """What a command refuses, without the option."""
    return re.sub(r"^vgrads: --[a-z-]+: ", "", command.err.strip().splitlines()[-1])


def in_python(operation, place, arguments):
    try:
        return getattr(vgrads_package, operation)(place, **arguments).to_json()
    except VgradsError as error:
        return {"refused": error.what}


def agree_in_a_list(command, client, question):
    """The answer to one of many questions has the same bound and view, or the same refusal."""
    job = {"site": question["site"], "queue": "batch", "procs": question["procs"]}
    document = {
        "questions": [job | {"walltime_s": question["walltime_s"]}],
        "quantiles": [question["share"]],
    }
    answer = client.post("/v1/forecasts", json=document)
    if command.code:
        assert answer.status_code == 422
        assert refusal(command) in answer.json()["detail"], (command.err, answer.text)
        return
    (forecast,) = answer.json()["forecasts"]
    assert forecast["bounds"][0]["bound_s"] == command.json["bound_s"]
    assert plain(forecast["queue_view"]) == plain(command.json["queue_view"])


def test_the_client_asks_the_same(interfaces, tmp_path):
    vgrads, http, commands = interfaces

    class OverHttp(Client):
        def _ask(self, method, address, document=None, more=()):
            answer = http.request(method, address, json=document)
            assert answer.status_code == 200, answer.text
            return answer.json()

    client, shape = OverHttp("http://localhost"), ("--procs", 8, "--walltime", "2h", "--json")
    job = {"procs": 8, "walltime_s": 7200}
    pairs = [
        (client.bound("cluster", "batch", **job), ("bound", "cluster/batch")),
        (
            client.probability("cluster", "batch", within_s=600, **job),
            ("probability", "cluster/batch", "--within", "10m"),
        ),
        (
            client.trajectory("cluster", "batch", start_by_s=7200, **job),
            ("trajectory", "cluster/batch", "--start-by", "2h"),
        ),
        (client.where(**job), ("where", "--sites", commands.sites)),
    ]
    for answer, command in pairs:
        assert plain(answer) == plain(vgrads(*command, *shape).json)
    (one,) = client.forecasts([{"site": "cluster", "queue": "batch", **job}], quantiles=[0.95])
    assert one["bounds"][0]["bound_s"] == pairs[0][0]["bound_s"]
    assert pairs[0][0]["queue_view"]["waiting"] == 40
    assert commands.calls() == 1  # for all of these


def test_the_queue_moves_every_answer_and_its_age_is_stated(interfaces):
    """Forty waiting jobs of a quarter of the machine; no other interface is right without them."""
    vgrads, http, commands = interfaces
    shape = ("--procs", 16, "--walltime", "1h")
    alone = vgrads("bound", "cluster/batch", *shape, "--no-live", "--json").json
    present = vgrads("bound", "cluster/batch", *shape, "--json").json
    assert alone["queue_view"]["view"] == "started"
    assert present["queue_view"]["view"] == "full"
    text = vgrads("bound", "cluster/batch", *shape, "--no-live").out
    assert "The history shows no waiting jobs as of" in " ".join(text.split())
    history = commands.folder / "batch.txt"  # with all jobs, at its end
    empty = make_forecast(open_history(history), open_history(history).end_s, AS_QUESTION)
    assert present["bound_s"] > 2 * float(empty.bounds(16, 3600.0, 0.95)) > 0
    assert present["queue_view"]["age_s"] < 60
    text = vgrads("bound", "cluster/batch", *shape).out
    assert re.search(r"Queue as of \d+s ago: 40 jobs wait, 4 run\.", text)
    page = http.get("/sites/cluster/batch?procs=16&hours=1", headers={"accept": "text/html"}).text
    assert re.search(r"Queue as of \d+s ago: 40 jobs wait, 4 run\.", page)
    assert alone["queue_view"]["source"] == "history"
    assert commands.calls() == 1


def test_an_answer_before_the_state_is_learned_says_so(store, vgrads, tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    commands = listed_site(tmp_path / "site", monkeypatch)
    app = make_app(store, load_catalog(commands.sites), Bounds(places=Places(planners=0)))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        answer = client.get("/v1/sites/simulated/queues/batch/bound?procs=4").json()
        if answer["method"] == "qbets":  # it may have been learned meanwhile
            assert "is being learned" in answer["reason"]
        queue = app.state.service.catalog.site("simulated").queues[0]
        learn(app.state.service.learned, queue)
        learned = client.get("/v1/sites/simulated/queues/batch/bound?procs=4").json()
        assert (learned["method"], learned["reason"]) == ("state", None)


def test_a_history_that_has_grown_is_answered_by_what_was_learned_before(
    store, vgrads, tmp_path, monkeypatch
):
    """Accounting is collected again and again; answers do not fall back to past waits each time."""
    (tmp_path / "site").mkdir()
    commands = listed_site(tmp_path / "site", monkeypatch)
    history, address = commands.folder / "batch.txt", "/v1/sites/simulated/queues/batch/bound"
    app = make_app(store, load_catalog(commands.sites), Bounds(places=Places(planners=0)))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        client.get(address)
        queue = app.state.service.catalog.site("simulated").queues[0]
        learn(app.state.service.learned, queue)
        assert client.get(address).json()["method"] == "state"
        *first, last = history.read_text().splitlines()
        history.write_text("\n".join([*first, last, last.replace(last[:4], "9999", 1)]) + "\n")
        answer = client.get(address).json()
        assert answer["method"] == "state"
        assert answer["reason"] is None or "newest jobs" in answer["reason"]
        page = client.get("/sites/simulated/batch", headers={"accept": "text/html"}).text
        assert "Method <code>state</code>" in page


@pytest.mark.more  # learns several times
def test_a_learner_that_is_killed_is_started_again(store, vgrads, tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    commands = listed_site(tmp_path / "site", monkeypatch)
    app = make_app(store, load_catalog(commands.sites), Bounds(places=Places(planners=0)))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        queue = app.state.service.catalog.site("simulated").queues[0]
        learned, place = app.state.service.learned, (queue.history, queue.of_log)
        learned.find(*place)
        until(lambda: kill_learners(learned) or learned.settled(*place))
        until(lambda: learned.find(*place) is not None, "the state", 120.0)
        answer = client.get("/v1/sites/simulated/queues/batch/bound").json()
        assert (answer["method"], answer["reason"]) == ("state", None)
        assert kill_learners(learned)  # while it learns nothing
        until(lambda: learned._pool._broken)
        history = commands.folder / "batch.txt"
        *first, last = history.read_text().splitlines()
        history.write_text("\n".join([*first, last, last.replace(last[:4], "9999", 1)]) + "\n")
        assert client.get("/v1/sites/simulated/queues/batch/bound").status_code == 200
        until(lambda: learned.find(*place) is not None, "the state", 120.0)


def kill_learners(learned):
    """Kill the process that learns, once."""
    pool = learned._pool
    for process in list((pool._processes or {}).values()) if pool else ():
        process.kill()
        return True
    return False


def test_a_service_sees_what_a_command_collects(interfaces):
    """Accounting is collected by a timer, beside the service that runs."""
    vgrads, client, commands = interfaces
    history, address = commands.folder / "batch.txt", "/v1/sites/cluster/queues/batch/bound"
    before = client.get(address).json()["history"]["jobs"]
    *first, last = history.read_text().splitlines()
    history.write_text("\n".join([*first, last, last.replace(last[:4], "9999", 1)]) + "\n")
    assert vgrads("sites", "add", commands.sites).code == 0
    until(lambda: client.get(address).json()["history"]["jobs"] == before + 1)


@pytest.fixture
def before_maintenance(store, vgrads, tmp_path, monkeypatch):
    """The interfaces of a site that announces ten hours of maintenance, two hours from now."""
    (tmp_path / "site").mkdir()
    commands = listed_site(tmp_path / "site", monkeypatch)
    commands.put_queue(waiting=0, running=1)
    commands.announce(begin_in_s=7200 - 60 * 20, length_s=36_000)
    assert vgrads("sites", "add", commands.sites).code == 0
    app = make_app(store, load_catalog(commands.sites), Bounds(places=Places(planners=0)))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield vgrads, client, commands


def test_no_interface_forecasts_a_start_across_a_maintenance(before_maintenance):
    vgrads, http, commands = before_maintenance
    long_job, place = ("--procs", 16, "--walltime", "3h"), ("cluster/batch",)
    moved = vgrads("bound", *place, *long_job, "--json").json
    assert moved["bound_s"] == pytest.approx(6000 + 36_000, abs=120)
    words = r"starts after the maintenance of \d+ \w+ \d\d:\d\d, unless it asks for at most 1h \d+m"
    assert re.fullmatch(words, moved["closure"])
    assert re.search("At worst it " + words, vgrads("bound", *place, *long_job).out)
    early = vgrads("probability", *place, *long_job, "--within", "3h", "--json").json
    assert early["probability"] == 0.0
    assert re.fullmatch(r"closed from [^:]*:\d\d to [^:]*:\d\d: maintenance", early["closure"])
    late = vgrads("probability", *place, *long_job, "--within", "13h", "--json").json
    assert late["probability"] > 0.9
    soon = vgrads("probability", *place, "--procs", 16, "--walltime", "5m", "--within", "1m")
    assert "The site is closed" not in soon.out
    short = vgrads("bound", *place, "--procs", 16, "--walltime", "30m", "--json").json
    assert short["closure"] is None
    assert short["bound_s"] < 7200
    ranking = vgrads("where", "--sites", commands.sites, *long_job, "--json").json["queues"]
    (row,) = [row for row in ranking if row["site"] == "cluster"]
    assert row["expected_start_s"] > 40_000
    assert re.fullmatch(words, row["closure"])
    path = vgrads("trajectory", *place, *long_job, "--start-by", "6h", "--json").json
    assert path["submit_in_s"] is None
    assert path["best"]["probability"] == 0.0
    assert "closed from" in path["closure"]
    base = "/v1/sites/cluster/queues/batch/bound"
    until(lambda: http.get(base).json()["method"] == "state", "the state", 120.0)
    address = "/v1/sites/cluster/queues/batch/bound?procs=16&walltime_s=10800"
    later = http.get(address).json()["closure"]  # the minutes that are left may be fewer
    assert later.partition("1h")[0] == moved["closure"].partition("1h")[0]
    page = http.get("/sites/cluster/batch?procs=16&hours=3", headers={"accept": "text/html"}).text
    assert "At worst such a job starts after the maintenance of" in page
    (checked, _) = vgrads("sites", "check", commands.sites, "--json").json["sites"]
    assert any("closed from " in text for text in checked["can"]), checked
    assert commands.calls() == 1
