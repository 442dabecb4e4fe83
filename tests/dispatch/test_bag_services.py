"""Bags over real Slurm (agents on four nodes) and real Grid Engine, while hosts and the dispatcher
are killed."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests import waiting
from tests.conftest import ROOT
from tests.services.two_sites import SITES
from vgrads.agent.processes import environment_of, parent_of, variable_of

pytestmark = pytest.mark.services
until = partial(waiting.until, seconds=90.0)

BAG = """
name: seen
command: >-
  until test -e {folder}/begin; do sleep 0.05; done;
  echo {{x}} >> {folder}/ran; sleep 0.1; echo {{x}}
parameters:
  x: {{range: [{count}]}}
sites: [{sites}]
hosts: {{most: 4, procs: 2, idle: 3s, longest: 5m}}
"""


@pytest.fixture
def world(tmp_path, slurm_site, gridengine_site, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    access = f'[site.access]\npoll = "1s"\nfolder = "{tmp_path}/marks"\ncontact = "127.0.0.1"'
    (tmp_path / "sites.toml").write_text(SITES.format(access=access))

    def put(count, sites):
        path = tmp_path / "bag.yaml"
        path.write_text(BAG.format(count=count, folder=tmp_path, sites=sites))
        return path

    yield put
    for command in ("scancel -u root", "qdel -u root"):
        subprocess.run(command.split(), check=False, capture_output=True)


def start(folder, *arguments):
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "vgrads",
                "bags",
                *map(str, arguments),
                "--sites",
                str(folder / "sites.toml"),
            ],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )


def begin(folder):
    """Let the tasks do their work, and return when one has."""
    (folder / "begin").touch()
    until((folder / "ran").exists, lambda: read_config(folder))


def agents(folder):
    """Agents of the bag that a batch system has started: process → node. Not those of other tests
    beside this one, and not what an agent has just forked and what is still called like it."""
    result, slots = {}, f"{bag_of(folder)}.".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            # read once: what an agent forked becomes a task meanwhile, which has no slot's name
            variables = environment_of(int(path.name)).split(b"\0")
            values = dict(variable.split(b"=", 1) for variable in variables if b"=" in variable)
            started = values.get(b"VGRADS_SLOT", b"").startswith(slots)
            if words[1:4] == [b"-I", b"-X", b"vgrads-agent"] and started:
                result[int(path.name)] = values.get(b"VGRADS_NODE")
    return {pid: node for pid, node in result.items() if parent_of(pid) not in result}


def showing_the_key(bag):
    """Processes of a bag's slots in whose environment other processes can read the key."""
    return [
        int(path.name)
        for path in Path("/proc").glob("[0-9]*")
        if variable_of(int(path.name), "VGRADS_SLOT").startswith(f"{bag}.")
        and variable_of(int(path.name), "VGRADS_HOST_KEY")
    ]


def agent_per_node(nodes):
    """The agent of each node: what a killed agent had just forked may outlive it for a moment."""
    return list({node: pid for pid, node in nodes.items()}.values())


def read_config(folder):
    return (folder / "log").read_text()


def bag_of(folder):
    until(lambda: "bag-" in read_config(folder), "the name of the bag")
    return re.search(r"bag-[0-9a-f]{10}", read_config(folder))[0]


def done(folder):
    """Task → how often it is said to be done."""
    answer = subprocess.run(
        [sys.executable, "-m", "vgrads", "bags", "logs", bag_of(folder), "--json"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    ends = [json.loads(line) for line in answer.stdout.splitlines()]
    return Counter(end["task"] for end in ends if end["code"] == 0)


def nothing_left():
    queued = subprocess.run(["squeue", "-h"], capture_output=True, text=True, check=True).stdout
    listed = subprocess.run(["qstat"], capture_output=True, text=True, check=True).stdout
    return not queued.strip() and not listed.strip()


def test_a_bag_on_four_slurm_nodes_with_hosts_and_dispatcher_killed(world, tmp_path):
    """Agents by fan-out; two are killed, then the dispatcher, which comes back: all done, each
    committed once."""
    run = start(tmp_path, "run", world(600, "slurm"))
    until(lambda: len(set(agents(tmp_path).values())) == 4, lambda: read_config(tmp_path))
    begin(tmp_path)
    assert not showing_the_key(bag_of(tmp_path))
    first, second, *others = agent_per_node(agents(tmp_path))
    for pid in (first, second):
        os.kill(pid, signal.SIGKILL)
    run.send_signal(signal.SIGKILL)
    run.wait()
    survivors = set(others)
    assert len(survivors) == 2
    before = len((tmp_path / "ran").read_text().split())
    again = start(tmp_path, "resume", bag_of(tmp_path))
    until(
        lambda: len((tmp_path / "ran").read_text().split()) > before + 50,
        lambda: read_config(tmp_path),
    )
    assert survivors <= agents(tmp_path).keys()
    assert again.wait(120) == 0, read_config(tmp_path)
    assert done(tmp_path) == Counter(dict.fromkeys(range(600), 1))
    assert set(map(int, (tmp_path / "ran").read_text().split())) == set(range(600))
    until(nothing_left, "slots given back")


def test_a_bag_on_grid_engine_with_a_host_killed(world, tmp_path):
    """The one host there is dies: its slot ends, another one is asked for, and nothing is lost."""
    run = start(tmp_path, "run", world(60, "sge"))
    until(lambda: agents(tmp_path), lambda: read_config(tmp_path))
    begin(tmp_path)
    for pid in agents(tmp_path):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert run.wait(120) == 0, read_config(tmp_path)
    assert done(tmp_path) == Counter(dict.fromkeys(range(60), 1))
    until(nothing_left, "slots given back")
