"""Each function gives what its command prints with ``--json``."""

import json

import pytest

from tests.conftest import DATA
from tests.interface.conftest import LOG
from vgrads import Bag, backtest, bound, offers, plan, probability, run

JOB = ("--procs", 16, "--walltime", "2h")


def timeless(document):
    """Without how long the computation took."""
    if isinstance(document, dict):
        taken = ("seconds", "jobs_per_s", "times", "run")
        return {k: timeless(v) for k, v in document.items() if k not in taken}
    return [timeless(item) for item in document] if isinstance(document, list) else document


def as_json(document):
    return timeless(json.loads(json.dumps(document)))


@pytest.mark.parametrize("method", ["state", "qbets", "bmbp"])
@pytest.mark.parametrize("at", [None, "2008-11-20T18:00:00Z"])
def test_bound(vgrads, method, at):
    when = () if at is None else ("--at", at)
    command = vgrads("bound", LOG, *JOB, "--method", method, *when, "--json").json
    result = bound(LOG, 16, "2h", method=method, at=at)
    assert as_json(result.to_json()) == command
    assert (result.bound_s, result.jobs, result.since) == (
        command["bound_s"],
        command["jobs"],
        command["since"],
    )


def test_bound_with_its_explanation(vgrads):
    command = vgrads("bound", LOG, *JOB, "--explain", "--json").json
    assert as_json(bound(LOG, 16, "2h").explain()) == command["explanation"]


def test_probability(vgrads):
    command = vgrads("probability", LOG, *JOB, "--within", "30m", "--json").json
    result = probability(LOG, 16, "2h", within="30m")
    assert as_json(result.to_json()) == command
    assert float(result) == command["probability"]


def test_trajectory(vgrads):
    options = ("--start-by", "6h", "--probability", 0.9, "--method", "qbets")
    command = vgrads("trajectory", LOG, *JOB, *options, "--json").json
    result = bound(LOG, 16, "2h", method="qbets").trajectory("6h", 0.9)
    assert as_json(result.to_json()) == command


@pytest.mark.parametrize("by", ["log", "queue", "cluster"])
def test_backtest(vgrads, by):
    command = vgrads("backtest", LOG, "--by", by, "--method", "qbets", "--json").json
    result = backtest(LOG, by, method="qbets", levels=())
    assert as_json(result.to_json()) == timeless(command)


def test_reliability_is_the_coverage_at_each_level(vgrads):
    options = ("--method", "qbets", "-p", 0.75, "--json")
    (row,) = vgrads("backtest", LOG, *options).json["rows"]
    result = backtest(LOG, method="qbets", levels=(0.75,))
    lower, upper = result.reliability
    assert (lower.stated, lower.observed, lower.scored) == (0.75, row["coverage"], row["scored"])
    assert (upper.stated, upper.observed) == (0.95, result.rows[0].coverage)
    assert lower.low < lower.observed < lower.high


def test_plan_and_run(vgrads, plan_result):
    command = vgrads("run", DATA / "lead.yaml", "--json").json
    assert as_json(plan_result.to_json()).items() <= timeless(command).items()
    result = run(plan_result)
    outcome = command["outcome"]
    assert as_json(result.to_json()) == timeless(command)
    assert (result.in_time, result.needed) == (outcome["in_time"], outcome["needed"])
    assert result.kept == outcome["kept"]
    assert dict(result.finished_s) == outcome["finished_s"]
    states = [attempt.state for attempt in result.attempts]
    assert states.count("done") == outcome["copies"]["done"]


def test_plan_with_options(vgrads):
    options = ("--seed", 3, "-p", 0.8, "--policy", "heft", "--deadline", "4h")
    command = vgrads("plan", DATA / "lead-storm.yaml", *options, "--json").json
    result = plan(DATA / "lead-storm.yaml", seed=3, probability=0.8, policy="heft", deadline="4h")
    assert as_json(result.to_json()) == timeless(command)
    assert [p.replica for p in result.placements] == [p["copy"] for p in command["placements"]]
    assert [s.submit_s for s in result.slots] == [s["submit_s"] for s in command["slots"]]


@pytest.mark.more
def test_an_infeasible_set_says_what_would_do(vgrads, write, monkeypatch):
    text = (DATA / "lead-storm.yaml").read_text().replace("lead.json", str(DATA / "lead.json"))
    path = write("hard.yaml", text.replace("sites: sites.toml", ""))
    monkeypatch.delenv("VGRADS_EFFORT")  # enough that the same changes are found, however loaded
    answer = vgrads("plan", path, "--deadline", "10m", "--json")
    result = plan(path, deadline="10m")
    assert answer.code == 3 and not result.feasible
    assert as_json(result.to_json()) == timeless(answer.json)
    assert result.lacking and [r.change for r in result.relaxations] == [
        entry["change"] for entry in answer.json["relaxations"]
    ]


def test_offers(vgrads):
    command = vgrads("sites", "offers", DATA / "storm.grid", "--json").json
    result = offers(DATA / "storm.grid")
    assert as_json(result.to_json()) == timeless(command)
    assert offers((DATA / "storm.grid").read_text()).to_json()["groups"] == command["groups"]
    assert [group.nodes for group in result.groups] == [g["nodes"] for g in command["groups"]]


def test_a_bag_at_simulated_sites(vgrads, tmp_path):
    answer = vgrads("bags", "run", DATA / "bag.yaml", "--sites", DATA / "sites.toml", "--json")
    (command,) = answer.json["bags"]
    result = Bag.read(DATA / "bag.yaml").run(DATA / "sites.toml", tmp_path / "bag")
    assert (result.state, result.done, result.failed, result.tasks) == (
        command["state"],
        command["done"],
        command["failed"],
        command["tasks"],
    )
