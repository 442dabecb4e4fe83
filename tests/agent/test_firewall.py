"""A host behind a network of its own, from which one address can be reached and into which nothing
comes."""

import json
import os
import subprocess

import pytest

from tests.dispatch.guests import Guests, bag_of, invite, start_bag

BAG = """
name: behind
command: "echo {x} > {task}.txt; cat in.txt"
parameters: {x: {range: [30]}}
inputs: [in.txt]
outputs: ["{task}.txt"]
sites: [guest]
hosts: {guests: true}
"""


@pytest.fixture
def network():
    """A network namespace with one cable to this machine: (its name, this machine's address
    there)."""
    name = f"vg{os.getpid()}"
    here, there = f"{name}a"[:15], f"{name}b"[:15]
    subnet = f"10.203.{os.getpid() % 250}"

    def ip(*words, check=True):
        return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)

    try:
        ip("netns", "add", name)
        ip("link", "add", here, "type", "veth", "peer", "name", there)
    except (OSError, subprocess.CalledProcessError) as error:
        ip("netns", "del", name, check=False)
        pytest.skip(f"network namespaces are not allowed here: {error}")
    try:
        ip("link", "set", there, "netns", name)
        ip("addr", "add", f"{subnet}.1/30", "dev", here)
        ip("link", "set", here, "up")
        ip("-n", name, "addr", "add", f"{subnet}.2/30", "dev", there)
        ip("-n", name, "link", "set", there, "up")
        yield name, f"{subnet}.1"
    finally:
        ip("netns", "del", name, check=False)
        ip("link", "del", here, check=False)


def test_a_host_behind_a_firewall_works_through_a_single_outgoing_connection(
    vgrads, network, tmp_path, monkeypatch
):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    (tmp_path / "in.txt").write_text("one\n")
    work, ad_hoc_agents = start_bag(tmp_path, BAG), Guests()
    name, address = network
    script = invite(tmp_path, "--contact", address)
    fenced = tmp_path / "fenced.sh"
    fenced.write_text(f"exec ip netns exec {name} sh {script}\n")
    try:
        ad_hoc_agents.start(fenced, "inside")
        assert work.wait(60) == 0, (tmp_path / "log").read_text()
    finally:
        ad_hoc_agents.stop()
        work.kill()
    ends = [
        json.loads(line)
        for line in vgrads("bags", "logs", bag_of(tmp_path), "--json").out.splitlines()
    ]
    assert {end["out"] for end in ends} == {"one\n"}
    results = tmp_path / "home" / "dispatchers" / bag_of(tmp_path) / "bags" / "0000" / "results"
    assert {path.read_text() for path in results.glob("[0-9]*.txt")} == {
        f"{i}\n" for i in range(30)
    }
