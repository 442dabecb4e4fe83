"""A bag with the paper's own policy file over real Slurm, this machine, and hosts that came by
themselves."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest

from tests import waiting
from tests.conftest import ROOT
from tests.dispatch.guests import Guests, bag_of, invite, start_bag
from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.storage.status import read_status

pytestmark = pytest.mark.services
until = partial(waiting.until, seconds=90.0)

SITES = """
[[site]]
name = "slurm"
kind = "batch"
procs = 32
cores_per_node = 8
driver = "slurm"
[site.access]
poll = "1s"
folder = "{folder}/marks"
contact = "127.0.0.1"
[[site.queue]]
name = "batch"
max_walltime = "1h"
stated_probability = 0.95
stated_wait = "5s"
[[site]]
name = "local"
kind = "local"
procs = 1
driver = "local"
"""
BAG = """
name: everywhere
command: >-
  [ -z "$BROKEN" ] || exit 9;
  test {x} -lt 40 || mkdir began 2>/dev/null || until test -e FOLDER/go; do sleep 0.1; done;
  sleep {s}; echo {x}
parameters: {x: {range: [160]}, s: [0.6]}
policy_file: paper.ad
retries: 1
hosts: {most: 2, procs: 1, idle: 60s, longest: 5m, guests: true}
"""
"""Forty tasks run at once, then one of each agent; the others wait for a file ``go``."""


@pytest.fixture
def ad_hoc_agents(tmp_path, slurm_site, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "sites.toml").write_text(SITES.format(folder=tmp_path))
    (tmp_path / "paper.ad").write_text((ROOT / "data" / "policies" / "paper.ad").read_text())
    result = Guests()
    yield result
    result.stop()
    subprocess.run(["scancel", "-u", "root"], check=False, capture_output=True)


def test_the_papers_policies_over_slurm_this_machine_and_guests(ad_hoc_agents, tmp_path):
    bag = BAG.replace("FOLDER", str(tmp_path))
    work = start_bag(tmp_path, bag, "--sites", tmp_path / "sites.toml")
    script = invite(tmp_path)
    for i in range(2):
        ad_hoc_agents.start(script, f"guest{i}")
    folder = dispatcher_folder(bag_of(tmp_path))

    def agents():
        return {
            (agent["site"], agent["name"]): agent for agent in read_status(folder).get("hosts", ())
        }

    def status_of_bag():
        return (read_status(folder).get("bags") or [{"done": 0}])[0]

    until(
        lambda: (
            {"slurm", "local", "guest"} <= {site for (site, _), h in agents().items() if h["done"]}
        )
    )
    ad_hoc_agents.start(script, "hole", BROKEN="1")
    until(lambda: agents().get(("guest", "hole"), {}).get("barred_s"))
    (tmp_path / "go").touch()
    until(lambda: status_of_bag()["done"] >= 140)
    os.killpg(ad_hoc_agents.processes["guest0"].pid, signal.SIGKILL)  # in the tail, without a word
    status = work.wait(120)
    assert status == 0, (tmp_path / "log").read_text()
    answer = subprocess.run(
        [sys.executable, "-m", "vgrads", "bags", "logs", bag_of(tmp_path), "--json"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    ends = [json.loads(line) for line in answer.stdout.splitlines()]
    good = Counter(end["task"] for end in ends if end["code"] == 0)
    assert len(good) == 160
    assert set(good.values()) == {1}
    assert sum(end["host"] == "hole" for end in ends) <= 8
    assert not any(end["host"] == "hole" and end["code"] == 0 for end in ends)
