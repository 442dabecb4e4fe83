"""Bags at simulated sites: the dispatcher's core, fleet and journal in virtual time, seen from the command line."""

import json

import pytest

from dispatch.journal import read_state
from portal.jobs.bags import dispatcher_folder
from tests.conftest import ROOT

SITES = ROOT / "data" / "sites.toml"


def written(folder, **more):
    document = {"name": "squares", "command": "echo {x}", "parameters": {"x": {"range": [300]}}, "runtime_s": 30, "hosts": {"most": 4}, **more}  # fmt: skip
    path = folder / "bag.yaml"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("release", ["distributed", "central", "coordinated", "look-ahead"])
def test_a_bag_is_done_at_simulated_sites(vgrads, tmp_path, release):
    path = written(tmp_path, hosts={"most": 4, "release": release})
    (told,) = vgrads("bags", "run", path, "--sites", SITES, "--json").json["bags"]
    assert (told["state"], told["done"]) == ("done", 300)
    state = read_state(dispatcher_folder(told["dispatcher"]) / "journal")
    state.check()
    slots = [slot for slot in state.slots.values() if "site" in slot]
    assert slots
    assert all(slot["ended"] for slot in slots)
    assert all(slot["hosts"] <= 4 for slot in slots)
    assert not any(host.here for host in state.hosts.values())
    spent_s = sum(host.done for host in state.hosts.values()) * 30.0
    assert spent_s == 9000.0
    lines = vgrads("bags", "logs", told["id"], "--json").out.splitlines()
    ended = [json.loads(line) for line in lines]
    assert {end["task"] for end in ended if end["code"] == 0} == set(range(300))


def test_the_same_seed_plays_the_same(vgrads, tmp_path):
    path = written(tmp_path)
    ran = [
        vgrads("bags", "run", path, "--sites", SITES, "--json").json["bags"][0] for _ in range(2)
    ]
    ends = []
    for told in ran:
        state = read_state(dispatcher_folder(told["dispatcher"]) / "journal")
        ends.append((state.bags[0].ended_s, [host.done for host in state.hosts.values()]))
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    ("more", "words"),
    [({"runtime_s": None}, "runtime_s"), ({"runtime_s": 7200, "hosts": {"longest": "1h"}}, "no host stays longer")],
)  # fmt: skip
def test_what_cannot_be_played_is_refused_before(vgrads, tmp_path, more, words):
    refused = vgrads("bags", "run", written(tmp_path, **more), "--sites", SITES)
    assert refused.code == 2
    assert words in refused.err + refused.out


def test_only_sites_that_a_bag_names_are_asked(vgrads, tmp_path):
    path = written(tmp_path, sites=["mayhem"])
    (told,) = vgrads("bags", "run", path, "--sites", SITES, "--json").json["bags"]
    state = read_state(dispatcher_folder(told["dispatcher"]) / "journal")
    assert {slot["site"] for slot in state.slots.values() if "site" in slot} == {"mayhem"}
