"""A bag that is run again does only what is not done: same command, environment and inputs, and
outputs that still exist unchanged."""

import json
import urllib.request
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.portal.serving import serve_this_machine
from vgrads.api.bags.reuse import _matched
from vgrads.execmgr.tasks.provenance import absolute_names, writes_elsewhere
from vgrads.portal.client import Client

COUNTED = "#!/bin/sh\necho $1 >> $(dirname $0)/ran\n"


@pytest.fixture
def bags(vgrads, write, tmp_path):
    """Runs a bag whose tasks call a script that counts them; returns its exit code, its JSON and
    the tasks that ran."""
    script = write("script.sh", COUNTED)
    (tmp_path / "ok").mkdir()
    for number in range(20):
        (tmp_path / "ok" / str(number)).touch()

    def run(*options, **fields):
        (tmp_path / "ran").write_text("")
        document = {
            "name": "again",
            "command": f"sh {script} {{x}} && test -f {tmp_path}/ok/{{x}} && echo got {{x}}",
            "parameters": {"x": {"range": [6]}},
            "retries": 0,
            **fields,
        }
        document = {name: value for name, value in document.items() if value is not None}
        answer = vgrads("bags", "run", write("bag.json", json.dumps(document)), "--json", *options)
        (bag,) = answer.json["bags"]
        return answer.code, bag, sorted((tmp_path / "ran").read_text().split(), key=int)

    return run


def folder_of(tmp_path, bag):
    return tmp_path / "home" / "dispatchers" / bag["dispatcher"] / "bags" / "0000"


def results(vgrads, bag):
    lines = vgrads("bags", "logs", bag["id"], "--json").out.splitlines()
    return {row["task"]: row for row in map(json.loads, lines) if row["final"]}


def numbers(*values):
    return [str(value) for value in values]


def test_only_what_is_not_done_is_done_and_the_results_are_complete(bags, vgrads, tmp_path):
    (tmp_path / "ok" / "4").unlink()
    code, bag, ran = bags()
    assert (code, bag["reused"], ran) == (1, 0, numbers(*range(6)))
    code, bag, ran = bags()  # the task still fails
    assert (code, bag["state"], bag["done"], bag["reused"], ran) == (1, "failed", 5, 5, ["4"])
    (tmp_path / "ok" / "4").touch()
    code, bag, ran = bags()
    assert (code, bag["state"], bag["done"], bag["reused"]) == (0, "done", 6, 5)
    assert ran == ["4"]
    rows = results(vgrads, bag)
    assert {task: row["out"] for task, row in rows.items()} == {n: f"got {n}\n" for n in range(6)}
    assert Counter(row["reused"] for row in rows.values()) == {True: 5, False: 1}
    assert all(row["host"] not in ("", "?") for row in rows.values())
    code, bag, ran = bags()  # nothing is left: no node is requested
    assert (code, bag["state"], bag["reused"], ran) == (0, "done", 6, [])
    assert {row["out"] for row in results(vgrads, bag).values()} == {f"got {n}\n" for n in range(6)}
    code, bag, ran = bags("--rerun")
    assert (code, bag["reused"], ran) == (0, 0, numbers(*range(6)))


def test_more_parameters_run_only_what_is_new(bags, vgrads):
    bags()
    code, bag, ran = bags(parameters={"x": [7, 3, 1, 8, 3]})
    # of two equal tasks one was done before
    assert (code, bag["reused"], ran) == (0, 2, numbers(3, 7, 8))
    assert {t: row["out"] for t, row in results(vgrads, bag).items()} == {
        t: f"got {n}\n" for t, n in enumerate((7, 3, 1, 8, 3))
    }
    code, bag, ran = bags(parameters={"x": {"range": [9]}})  # of two earlier runs
    assert (code, bag["reused"], ran) == (0, 8, ["6"])


CHANGES = {
    "another command": {"command": "echo other {x}"},
    "another environment": {"env": {"A": "2"}},
    "another name": {"name": "other"},
    "outputs": {"outputs": ["{x}.txt"], "command": "echo {x} > {x}.txt"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_differs_is_done_again(bags, change):
    bags(env={"A": "1"})
    _, bag, _ = bags(**{"env": {"A": "1"}, **CHANGES[change]})
    assert (bag["reused"], bag["done"]) == (0, 6)


def test_another_script_or_a_variable_of_the_user_is_another_task(bags, write, monkeypatch):
    monkeypatch.setenv("SEED", "1")
    bags(pass_env=["SEED"])
    assert bags(pass_env=["SEED"])[1]["reused"] == 6
    monkeypatch.setenv("SEED", "2")
    assert bags(pass_env=["SEED"])[1]["reused"] == 0
    write("script.sh", COUNTED + "# another\n")
    assert bags(pass_env=["SEED"])[1]["reused"] == 0


def test_inputs_count_by_their_content_and_outputs_must_be_unchanged(bags, vgrads, tmp_path):
    for name in "abc'":
        (tmp_path / f"in {name}").write_text(name)
    fields = {
        "command": f"sh {tmp_path}/script.sh {{task}}; cat in\\ {{n}} > out/{{n:raw}}",
        "parameters": {"n": ["a", "b", "c"]},
        "inputs": ["in {n}"],
        "outputs": ["out/{n}"],
    }
    fields["command"] = f"sh {tmp_path}/script.sh {{task}}; cat 'in {{n:raw}}' > out/{{n:raw}}"
    code, first, _ = bags(**fields)
    assert code == 0
    (tmp_path / "in a").write_text("A")
    (tmp_path / "in b").touch()  # the content is the same
    changed = folder_of(tmp_path, first) / "results" / "out" / "c"
    changed.write_text("X")
    code, second, ran = bags(**fields)
    assert (code, second["reused"], ran) == (0, 1, ["0", "2"])
    outputs = folder_of(tmp_path, second) / "results" / "out"
    assert {path.name: path.read_text() for path in outputs.iterdir()} == {
        "a": "A",
        "b": "b",
        "c": "c",
    }
    assert outputs.joinpath("b").samefile(folder_of(tmp_path, first) / "results" / "out" / "b")
    # what is done again in the new run leaves the files of the old one as they are
    assert vgrads("retry", second["id"], 1).code == 0
    assert not outputs.joinpath("b").samefile(folder_of(tmp_path, first) / "results" / "out" / "b")
    outputs.joinpath("a").unlink()
    assert bags(**fields)[1]["reused"] == 2  # c and b of the second run, a of none


def test_what_writes_to_an_absolute_name_is_always_done(bags, tmp_path):
    fields = {"command": f"sh {tmp_path}/script.sh {{x}} && echo {{x}} > {tmp_path}/kept-{{x}}"}
    bags(**fields)
    assert bags(**fields)[2] == numbers(*range(6))


def test_a_retried_task_that_failed_is_not_reused(bags, vgrads, tmp_path):
    _, bag, _ = bags()
    (tmp_path / "ok" / "2").unlink()
    assert vgrads("retry", bag["id"], 2).code == 1
    assert bags()[1]["reused"] == 5  # ok/2 is gone: the file is no longer read, the task fails
    (tmp_path / "ok" / "2").touch()
    code, again, ran = bags()
    assert (code, again["reused"], ran) == (0, 5, ["2"])
    assert vgrads("retry", again["id"], 1, "--json").json["bags"][0]["state"] == "done"
    assert bags()[1]["reused"] == 6


@given(st.lists(st.integers(0, 4)), st.lists(st.integers(0, 4)))
def test_equal_tasks_are_matched_one_to_one_and_as_many_as_possible(new, old):
    at, rows = _matched(np.array(new, np.int64), np.array(old, np.int64))
    assert [new[n] for n in at] == [old[n] for n in rows]
    assert len(set(at.tolist())) == len(at) == len(set(rows.tolist()))
    assert len(at) == sum((Counter(new) & Counter(old)).values())


def test_absolute_names_in_commands(tmp_path):
    text = f"cat {tmp_path}/a {tmp_path}/b x{tmp_path}/a --in={tmp_path}/a > {tmp_path}/c"
    assert absolute_names(text) == {f"{tmp_path}/a", f"{tmp_path}/b"}
    for command, elsewhere in (
        ("a > /x", True),
        ("a >> '/x y'", True),
        ("a 2>/dev/null", False),
        ("a > $HOME/x", True),
        ("a > b 2>&1", False),
        ("a > ~/x", True),
        ("a < /x", False),
    ):
        assert writes_elsewhere(command) == elsewhere, command


@pytest.mark.more
def test_a_service_reuses_on_request_what_the_same_user_has_done(tmp_path):
    served = serve_this_machine(tmp_path / "home")
    try:
        client = Client(served.url)
        document = {
            "name": "again",
            "command": "date +%s%N > {x}.txt; echo {x}; test {x} != 1",
            "parameters": {"x": [0, 1, 2]},
            "outputs": ["{x}.txt"],
            "retries": 0,
        }

        def outcome(bag):
            rows = list(client.bag_results(bag))
            status = client.read_bag(bag)
            assert {(row["task"], row["out"]) for row in rows} == {(n, f"{n}\n") for n in range(3)}
            with urllib.request.urlopen(f"{served.url}/v1/bags/{bag}/outputs/0.txt") as answer:
                return status["reused"], status["done"], answer.read()

        first, again = outcome(client.submit_bag(document)), outcome(client.submit_bag(document))
        assert (first[:2], again[:2], first[2] == again[2]) == ((0, 2), (0, 2), False)
        bag = client._ask("POST", "/v1/bags?reuse=true", document)["id"]
        assert outcome(bag) == (2, 2, again[2])
        large = document | {
            "env": {f"PADDING{n}": "x" * 20_000 for n in range(15)}
        }  # read in a process of its own
        outcome(client.submit_bag(large))
        assert outcome(client._ask("POST", "/v1/bags?reuse=true", large)["id"])[0] == 2
    finally:
        served.leave()
