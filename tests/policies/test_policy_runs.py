"""Policies as their user meets them: a file beside the bag, real agents, hosts that come by
invitation, explanations."""

import json
import os
import re
import signal
from collections import Counter

import pytest
import yaml

from tests.conftest import ROOT
from tests.dispatch.guests import Guests, bag_of, invite, start_bag
from tests.waiting import until
from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.storage.status import read_status
from vgrads.policies.policy import SLOTS, read_policy

PAPER = (ROOT / "data" / "policies" / "paper.ad").read_text()


@pytest.fixture
def ad_hoc_agents(monkeypatch, tmp_path):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    result = Guests()
    yield result
    result.stop()


def ends(vgrads, bag):
    return [json.loads(line) for line in vgrads("bags", "logs", bag, "--json").out.splitlines()]


def test_the_papers_own_policy_file_serves_a_bag(vgrads, write):
    write("paper.ad", PAPER)
    bag = write(
        "bag.yaml",
        'name: b\ncommand: "echo {x}"\nparameters: {x: {range: [40]}}\npolicy_file: paper.ad\n',
    )
    (message,) = json.loads(vgrads("bags", "run", bag, "--json").out)["bags"]
    assert (message["state"], message["done"]) == ("done", 40)


def test_files_of_a_bag_may_lie_anywhere(vgrads, write, tmp_path):
    (tmp_path / 'far "away"').mkdir()
    policy, table = tmp_path / 'far "away"' / "a b.ad", tmp_path / 'far "away"' / "t.csv"
    policy.write_text(PAPER)
    table.write_text("x\n1\n2\n")
    (tmp_path / "bags").mkdir()
    document = {
        "name": "b",
        "command": "echo {x} {y}",
        "table": str(table),
        "policy_file": '../far "away"/a b.ad',
        "parameters": {"y": {"lines": '../far "away"/t.csv'}},
    }
    bag = write("bags/bag.yaml", json.dumps(document))
    (message,) = json.loads(vgrads("bags", "run", bag, "--json").out)["bags"]
    assert (message["state"], message["done"]) == ("done", 6)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("{JobRequirements: 'Host.ErorRate <'}", "policy: JobRequirements, line 1"),
        ("{JobRequirement: 'true'}", "JobRequirement"),
        ("{Rank: null}", "line 3: policy.Rank: has none of the allowed types: None"),
        ("[1]", "line 3: policy: has none of the allowed types: [1]"),
        ("{Rank: 'random()'}", "random"),
        ("'Rank = = 3'", "Rank, line 1, column"),
        ("''", "policy"),
    ],
)
def test_a_mistake_in_a_policy_is_shown_when_the_bag_is_handed_over(vgrads, write, policy, text):
    answer = vgrads(
        "bags", "run", write("bag.yaml", f"name: b\ncommand: 'true'\npolicy: {policy}\n")
    )
    assert answer.code == 2
    assert text in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("policy_file: nowhere.ad", "policy_file: cannot be read"),
        ("policy: {Rank: 1}\npolicy_file: x.ad", "not both"),
        ("policy: {ReplicationRequirements: true}\ncopies: learned", "copies: is learned"),
        ("sites: [here]\nfailover: [there]", "failover"),
        ("failover: [mars]", "mars"),
    ],
)
def test_what_does_not_go_together_is_refused(vgrads, write, more, text):
    answer = vgrads("bags", "run", write("bag.yaml", f"name: b\ncommand: 'true'\n{more}\n"))
    assert answer.code == 2
    assert text in answer.err


def test_a_policy_file_may_begin_with_a_mark_and_must_be_a_file(vgrads, write, tmp_path):
    (tmp_path / "p.ad").write_bytes(b"\xef\xbb\xbfRank = 3\r\nJobRequirements = true\r\n")
    text = "name: b\ncommand: 'true'\npolicy_file: {}\n"
    assert vgrads("bags", "run", write("a.yaml", text.format("p.ad"))).code == 0
    os.mkfifo(tmp_path / "pipe")
    answer = vgrads("bags", "run", write("b.yaml", text.format("pipe")))
    assert answer.code == 2
    assert "policy_file: cannot be read: is not a regular file" in answer.err


@pytest.mark.more
@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("{JobRequirements: 1}", "the policy accepts none of the hosts, JobRequirements = 1"),
        ("{Concurrency: 0}", "the policy accepts none of the hosts, Concurrency = 0"),
        (
            "{GridPolicy: 'Grid.Price > 0'}",
            "the policy accepts none of the grids, GridPolicy = Grid.Price > 0",
        ),
    ],
)
def test_a_bag_that_its_policy_keeps_from_all_hosts_says_so(
    vgrads, ad_hoc_agents, tmp_path, policy, words
):
    work = start_bag(tmp_path, f"name: '[b]'\ncommand: 'true'\npolicy: {policy}\n")
    try:
        until(lambda: f"[b]: {words}" in (tmp_path / "log").read_text(), seconds=30)
        bag = bag_of(tmp_path)
        (message,) = json.loads(vgrads("bags", "status", bag, "--json").out)["bags"]
        assert message["problem"].startswith(words)
        shown = " ".join(vgrads("bags", "status", bag).out.split())
        assert bag in shown and words in shown
        requested = json.loads(vgrads("bags", "explain", bag, 0, "--json").out)
        assert any(words in reason for reason in requested["reasons"])
        answer = vgrads("bags", "explain", bag, 0, "--host", "nowhere")
        assert answer.code == 2
        assert ("here are" in answer.err) == ("hosts" in words)
    finally:
        work.send_signal(signal.SIGINT)
        work.wait(30)
    assert vgrads("bags", "cancel", bag).code in (0, 5)
    if "JobRequirements" in policy:
        assert "JobRequirements is never true" in (tmp_path / "log").read_text()


AD_HOC_AGENTS = """
name: guests
command: >-
  [ -z "$BROKEN" ] || exit 9;
  test {{x}} -lt {free} || until test -e {folder}/go; do sleep 0.1; done;
  sleep {seconds}; echo {{x}}
parameters: {{x: {{range: [{count}]}}}}
sites: [guest]
hosts: {{guests: true, idle: 30s}}
retries: 1
{more}
"""


def start_with_agents(folder, seconds, count, free, more=""):
    """A bag for guests. ``free``: how many of its tasks run at once; the others wait for a file
    ``go``."""
    text = AD_HOC_AGENTS.format(seconds=seconds, count=count, free=free, folder=folder, more=more)
    return start_bag(folder, text)


def agents_of(folder):
    """The agents of a dispatcher, by name."""
    return {agent["name"]: agent for agent in read_status(folder).get("hosts", ())}


@pytest.mark.more
def test_guests_work_a_black_hole_among_them_gets_nothing_with_the_reason(
    vgrads, ad_hoc_agents, tmp_path
):
    work = start_with_agents(tmp_path, 0.3, 150, 20, "policy: {Rank: Host.JobsToday}")
    script = invite(tmp_path)
    for i in range(4):
        ad_hoc_agents.start(script, f"good{i}")
    bag, folder = bag_of(tmp_path), dispatcher_folder(bag_of(tmp_path))
    until(lambda: sum(agent["done"] for agent in agents_of(folder).values()) > 4, seconds=60)
    ad_hoc_agents.start(script, "hole", BROKEN="1")
    until(lambda: agents_of(folder).get("hole", {}).get("barred_s"), seconds=60)
    message = json.loads(vgrads("bags", "explain", bag, 149, "--host", "hole", "--json").out)
    assert any(
        "quarantined" in reason["words"] for agent in message["hosts"] for reason in agent["why"]
    )
    (tmp_path / "go").touch()
    assert work.wait(60) == 0, (tmp_path / "log").read_text()
    by = Counter((end["host"], end["code"]) for end in ends(vgrads, bag))
    assert sum(n for (_, code), n in by.items() if code == 0) == 150
    assert by["hole", 9] <= 8  # three, and a probe now and then
    assert all(process.wait(60) == 0 for process in ad_hoc_agents.processes.values())  # told to go


@pytest.mark.more
def test_copies_save_the_tail_when_a_host_stops_without_a_word(vgrads, ad_hoc_agents, tmp_path):
    work = start_with_agents(tmp_path, 0.5, 40, 20, "copies: learned")
    script = invite(tmp_path)
    for i in range(4):
        ad_hoc_agents.start(script, f"h{i}")
    folder = dispatcher_folder(bag_of(tmp_path))

    def late():
        (bag,) = read_status(folder).get("bags") or [{"done": 0}]
        return bag["done"] >= 20 and agents_of(folder).get("h0", {}).get("holds")

    until(late, seconds=60)
    os.killpg(ad_hoc_agents.processes["h0"].pid, signal.SIGSTOP)  # and its task with it
    (tmp_path / "go").touch()
    assert work.wait(60) == 0, (tmp_path / "log").read_text()
    (bag,) = read_status(folder)["bags"]
    assert bag["done"] == 40
    assert bag["copied"] >= 1
    os.killpg(ad_hoc_agents.processes["h0"].pid, signal.SIGCONT)


def test_who_has_no_key_is_no_guest(ad_hoc_agents, tmp_path):
    work = start_with_agents(tmp_path, 0.1, 5, 5)
    script = invite(tmp_path, "--name", "friends", "--contact", "127.0.0.1")
    forged = tmp_path / "forged.sh"
    forged.write_text(script.read_text().replace("VGRADS_HOST_KEY=", "VGRADS_HOST_KEY=x"))
    ad_hoc_agents.start(forged, "stranger")
    assert ad_hoc_agents.processes["stranger"].wait(30) == 77
    ad_hoc_agents.start(script, "friend")
    assert work.wait(60) == 0


def test_an_invitation_needs_a_dispatcher_that_has_listened(vgrads, write):
    answer = vgrads("bags", "invite", "bag-0000000000")
    assert answer.code == 2
    assert "no bag" in answer.err
    (message,) = json.loads(
        vgrads("bags", "run", write("b.yaml", "name: b\ncommand: 'true'\n"), "--json").out
    )["bags"]
    assert vgrads("bags", "invite", message["id"], "--name", "a/b").code == 2


@pytest.mark.more
def test_a_killed_dispatcher_finds_its_guests_again_and_knows_the_black_hole(
    vgrads, ad_hoc_agents, tmp_path
):
    policy = 'policy: {JobRequirements: "Host.ErrorRate < 0.9", Deadline: "60", Concurrency: "2"}'
    work = start_with_agents(tmp_path, 0.3, 120, 20, policy)
    script, folder = invite(tmp_path), dispatcher_folder(bag_of(tmp_path))
    for i in range(3):
        ad_hoc_agents.start(script, f"good{i}")
    until(lambda: sum(agent["done"] for agent in agents_of(folder).values()) > 4, seconds=60)
    ad_hoc_agents.start(script, "hole", BROKEN="1")
    until(lambda: agents_of(folder).get("hole", {}).get("barred_s"), seconds=60)
    work.kill()
    work.wait()
    (tmp_path / "go").touch()
    message = json.loads(vgrads("bags", "resume", bag_of(tmp_path), "--json").out)["bags"][0]
    assert (message["state"], message["done"]) == ("done", 120)
    by = Counter((end["host"], end["code"]) for end in ends(vgrads, message["id"]))
    assert sum(n for (_, code), n in by.items() if code == 0) == 120
    assert by["hole", 9] <= 8


def test_every_policy_of_the_documents_is_one():
    text = (ROOT / "docs" / "policies.md").read_text()
    table = text.partition("## By example")[2].partition("## Copies")[0]
    rows = [
        row for row in re.findall(r"^\| [^|]+ \| `(.+)` \|$", table, re.MULTILINE) if " = " in row
    ]
    rows += re.findall(r"^    (GridPolicy = .+)$", text, re.MULTILINE)
    assert len(rows) >= 10
    for row in rows:
        assert any(map(read_policy(row.replace(r"\|", "|"), "docs").has, SLOTS))
    read_policy(
        yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])["policy"], "docs"
    )
