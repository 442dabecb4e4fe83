"""Bags at simulated sites: the dispatcher's core, fleet and journal in virtual time, seen from the
command line."""

import json

import pytest

from tests.conftest import ROOT
from vgrads.api.bags import virtual
from vgrads.api.bags.execution import ControlRequests, submit_bag
from vgrads.api.bags.virtual import VirtualBagWork, find_simulated_part
from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.document import load_bag
from vgrads.dispatch.storage.journal import read_state
from vgrads.vgrid.catalog import load_catalog

SITES = ROOT / "data" / "sites.toml"


def written(folder, **more):
    document = {
        "name": "squares",
        "command": "echo {x}",
        "parameters": {"x": {"range": [300]}},
        "runtime_s": 30,
        "hosts": {"most": 4},
        **more,
    }
    path = folder / "bag.yaml"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("release", ["distributed", "central", "coordinated", "look-ahead"])
def test_a_bag_is_done_at_simulated_sites(vgrads, tmp_path, release):
    path = written(tmp_path, hosts={"most": 4, "release": release})
    (message,) = vgrads("bags", "run", path, "--sites", SITES, "--json").json["bags"]
    assert (message["state"], message["done"]) == ("done", 300)
    state = read_state(dispatcher_folder(message["dispatcher"]) / "journal")
    state.check()
    slots = [slot for slot in state.slots.values() if slot.site]
    assert slots
    assert all(slot.ended for slot in slots)
    assert all(slot.agents <= 4 for slot in slots)
    assert not any(agent.here for agent in state.agents.values())
    spent_s = sum(agent.done for agent in state.agents.values()) * 30.0
    assert spent_s == 9000.0
    assert vgrads("bags", "status", message["id"], "--json").json["bags"][0]["state"] == "done"
    assert "done" in vgrads("bags", "explain", message["id"], 7).out
    lines = vgrads("bags", "logs", message["id"], "--json").out.splitlines()
    ended = [json.loads(line) for line in lines]
    assert {end["task"] for end in ended if end["code"] == 0} == set(range(300))


def test_the_same_seed_plays_the_same(vgrads, tmp_path):
    path = written(tmp_path)
    ran = [
        vgrads("bags", "run", path, "--sites", SITES, "--json").json["bags"][0] for _ in range(2)
    ]
    ends = []
    for message in ran:
        state = read_state(dispatcher_folder(message["dispatcher"]) / "journal")
        ends.append((state.bags[0].ended_s, [agent.done for agent in state.agents.values()]))
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"runtime_s": None}, "runtime_s"),
        ({"runtime_s": 7200, "hosts": {"longest": "1h"}}, "no node stays longer"),
    ],
)
def test_what_cannot_be_played_is_refused_before(vgrads, tmp_path, more, words):
    refused = vgrads("bags", "run", written(tmp_path, **more), "--sites", SITES)
    assert refused.code == 2
    assert words in refused.err + refused.out


def test_only_sites_that_a_bag_names_are_queried(vgrads, tmp_path):
    path = written(tmp_path, sites=["mayhem"])
    (message,) = vgrads("bags", "run", path, "--sites", SITES, "--json").json["bags"]
    state = read_state(dispatcher_folder(message["dispatcher"]) / "journal")
    assert {slot.site for slot in state.slots.values() if slot.site} == {"mayhem"}


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A dispatcher's folder with a bag that was stopped in the middle, and the sites."""
    monkeypatch.setattr(virtual, "_LOOK_S", 0.0)
    folder, path = tmp_path / "dispatcher", written(tmp_path)
    whole = load_catalog(SITES)
    submit_bag(folder, 0, load_bag(path)[0], tmp_path, whole)
    catalog = find_simulated_part(whole, folder)
    stopped = VirtualBagWork(
        folder,
        catalog,
        "bag-x",
        lambda: ControlRequests(new=[0]),
        lambda payload: payload["bags"][0]["done"] > 50 and stopped.end(),
    )
    assert stopped.carry_out().unfinished == "interrupted"
    return folder, catalog


def test_a_bag_that_was_stopped_goes_on_with_what_was_done(begun):
    folder, catalog = begun
    before = read_state(folder / "journal")
    assert 50 < before.bags[0].tasks.counts[2] < 300
    assert not any(agent.here for agent in before.agents.values())
    assert all(slot.ended for slot in before.slots.values())
    ended = VirtualBagWork(folder, catalog, "bag-x", lambda: ControlRequests(new=[0])).carry_out()
    assert not ended.unfinished
    state = read_state(folder / "journal")
    state.check()
    assert state.bags[0].tasks.counts[2] == 300
    assert sum(agent.done for agent in state.agents.values()) == 300
    assert state.bags[0].ended_s > before.now_s


def test_a_bag_that_was_stopped_can_be_dropped(begun):
    folder, catalog = begun
    control_requests = ControlRequests(new=[0], stops={0: "no more"})
    VirtualBagWork(folder, catalog, "bag-x", lambda: control_requests).carry_out()
    state = read_state(folder / "journal")
    assert state.bags[0].cancelled == "no more"
    assert state.bags[0].tasks.counts[4] > 0


def test_a_request_is_no_wider_than_its_queue(vgrads, tmp_path):
    path = written(tmp_path, sites=["mayhem"], hosts={"most": 64})
    (message,) = vgrads("bags", "run", path, "--sites", SITES, "--json").json["bags"]
    state = read_state(dispatcher_folder(message["dispatcher"]) / "journal")
    (queue,) = load_catalog(SITES).site("mayhem").queues
    requested = [slot.agents for slot in state.slots.values() if slot.agents]
    assert sum(requested) >= 64
    assert max(requested) == queue.max_procs
