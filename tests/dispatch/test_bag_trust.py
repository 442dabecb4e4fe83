"""What one user's bag, one agent or one variable does wrong affects only that one."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.dispatch.test_bag_work import ends, hello, manager, run, send
from tests.portal.serving import Served
from vgrads.agent.environment import is_secret, pass_environment
from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.core.fold import apply
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.records import AttemptsEnded, TasksAssigned
from vgrads.dispatch.core.snapshot import (
    pack_snapshot,
    restore_state,
    take_snapshot,
    unpack_snapshot,
)
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.document import BagDocument, restore_written_parameters
from vgrads.dispatch.status import name_state
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.dispatch.storage.journal import DispatchJournal, read_state
from vgrads.exchange.keys import derive_key
from vgrads.exchange.values import AttemptEnd, Hello, Message
from vgrads.kernel.documents import parse_mapping, validate_field
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import parse_duration, parse_fraction, parse_instant
from vgrads.portal.client import Client
from vgrads.vgrid.documents import SitesDocument
from vgrads.workflows.sets import SetDocument

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "hush-aws",
    "PGPASSWORD": "hush-pg",
    "GITHUB_TOKEN": "hush-github",
    "HF_TOKEN": "hush-hf",
    "MY_API_KEY": "hush-api",
}


# numbers


@pytest.mark.parametrize("number", [1e-320, 1e-9, -1, 1e300, float("inf"), float("nan"), 10**400])
def test_numbers_of_documents_are_finite_and_sensible(number):
    task = {"id": "a", "command": "true"}
    workflows = {"workflows": [{"name": "w", "tasks": [task]}], "name": "s", "deadline": 60}
    site = {"name": "a", "kind": "dedicated", "procs": 1}
    for model, document in (
        (BagDocument, {"name": "x", "command": "true", "runtime_s": number}),
        (BagDocument, {"name": "x", "command": "true", "memory_mib": number}),
        (BagDocument, {"name": "x", "command": "true", "weight": number}),
        (BagDocument, {"name": "x", "command": "true", "limit": number}),
        (BagDocument, {"name": "x", "command": "true", "hosts": {"idle": number}}),
        (SetDocument, {**workflows, "budget_usd": number}),
        (
            SetDocument,
            {**workflows, "workflows": [{"name": "w", "tasks": [{**task, "runtime_s": number}]}]},
        ),
        (SitesDocument, {"site": [{**site, "speed": number}]}),
        (SitesDocument, {"site": [{**site, "boot": number}]}),
    ):
        with pytest.raises(InputError):
            validate_field(model, document)
    with pytest.raises(InputError):
        parse_duration(number)
    assert validate_field(BagDocument, {"name": "x", "command": "true", "runtime_s": 0})


@pytest.mark.parametrize("parse", [parse_duration, parse_fraction, parse_instant])
def test_numbers_that_no_float_holds_are_input_errors(parse):
    with pytest.raises(InputError):
        parse("1" + "0" * 400)


# one bag's exceptions


class Broken(Listed):
    """Commands that cannot be read."""

    def command(self, task):
        raise OverflowError("no such command")


def fill(core, agent="a", incarnation="1", seq=1):
    core.receive(
        Message(agent=agent, incarnation=incarnation, seq=seq, hello=Hello(slot="h0", procs=4)), 1.0
    )
    return core.answer(core.state.agents[core.state.by_id[agent]], 1.0)


def test_a_bag_of_a_tiny_run_time_is_served_and_stops_nobody():
    """As one that an earlier version accepted: the host ends, so that rounds are counted."""
    core = Core(State(), Rules(), lambda record: None)
    core.add(0, BagSpec(name="tiny", commands=Listed(("true",)), estimate_s=1e-320, owner="x"), 0.0)
    core.add(1, BagSpec(name="other", commands=Listed(("true",)), owner="y"), 0.0)
    hello = Hello(slot="h0", procs=4, left_s=100.0)
    core.receive(Message(agent="a", incarnation="1", seq=1, hello=hello), 1.0)
    answer = core.answer(core.state.agents[0], 1.0)
    assert {bag for bag, _, _ in answer.give} == {0, 1}


def test_a_bag_that_cannot_be_served_fails_and_the_others_are_served(tmp_path):
    async def work(result, port):
        for number, commands in ((1, Broken(("x",))), (2, Listed(("echo ok",)))):
            bag = BagSpec(name=f"bag {number}", commands=commands, owner="me")
            result.add(number, bag, BagFiles(bag, tmp_path / str(number), tmp_path))
        _, answer = await send(port, hello())
        assert answer["hello"]  # what it was given is compared when it says so again
        _, answer = await send(port, hello(2))
        assert [order[3] for order in answer["give"]] == ["echo 0", "echo ok"]
        await result.durable()
        bag = result.state.bags[1]
        assert name_state(bag) == "failed" and "OverflowError: no such command" in bag.fault
        result.state.check()

    with manager(tmp_path / "d", "echo 0") as alive:
        alive(work)
    with manager(tmp_path / "d") as alive:  # a restart does not repeat it

        async def later(results, port):
            assert [name_state(bag) for bag in results.state.bags.values()][1] == "failed"
            results.state.check()

        alive(later)


def test_a_record_that_cannot_be_applied_fails_its_bag_now_and_at_replay(tmp_path):
    journal = DispatchJournal(tmp_path)
    core = Core(State(), Rules(), journal.add)
    for number in (0, 1):
        core.add(number, BagSpec(name="x", commands=Listed(("true",))), 0.0)
    fill(core)
    core.note(AttemptsEnded(0, [AttemptEnd(999, 0, 2.0, 0, 1)]))  # no such task
    journal.write(journal.take())
    journal.close()
    for state in (core.state, read_state(tmp_path)):
        assert [name_state(bag) for bag in state.bags.values()] == ["failed", "running"]
        assert "IndexError" in state.bags[0].fault
        state.check()
        again = restore_state(unpack_snapshot(pack_snapshot(take_snapshot(state))))
        assert again.bags[0].fault == state.bags[0].fault
    with pytest.raises(KeyError):  # of no bag at all: the journal is not ours
        apply(State(), TasksAssigned(0, 7, [0]))


def test_outputs_of_a_single_bag_that_cannot_be_put_in_place_fail_that_bag(tmp_path):
    """Task 0 writes a file where task 1 needs a folder: others' ends are acknowledged all the
    same."""

    async def work(result, port):
        bag = BagSpec(name="clash", commands=Listed(("true", "true")), outputs=("{task}",))
        files = BagFiles(bag, tmp_path / "1", tmp_path)
        result.add(1, bag, files)
        (tmp_path / "1").mkdir()
        (tmp_path / "1" / "results").write_text("a file where a folder belongs")
        _, answer = await send(port, hello())
        values = [order for order in answer["give"] if order[0] == 1]
        for _, task, attempt, *_ in values:
            path = f"/outputs/1/{task}/{attempt}/{task}"
            assert (await send(port, b"text", path=path, method="PUT"))[0] == 200
        done = [
            [bag, task, attempt, 0, [0, 0, 1, 0], 0, 0, "", ""]
            for bag, task, attempt, *_ in answer["give"]
        ]
        status, _ = await send(
            port, {"host": "a", "life": "1", "seq": 2, "wait_s": 0, "ended": done}
        )
        await result.durable()
        assert status == 200 and not result.problem
        assert result.state.bags[0].tasks.counts[2] == 1

    with manager(tmp_path / "d", "echo 0") as alive:
        alive(work)


def test_a_stored_bag_that_is_not_valid_any_more_fails_alone(vgrads, write, tmp_path):
    code, bag = run(vgrads, write("bag.yaml", "name: x\ncommand: 'true'\nparameters: {x: [1]}\n"))
    assert code == 0
    folder = tmp_path / "home" / "dispatchers" / bag["id"]
    stored = json.loads((folder / "bags" / "0000" / "document.json").read_text())
    poison = stored | {"document": stored["document"] | {"name": "poison", "runtime_s": 1e-320}}
    core = Core(read_state(folder / "journal"), Rules(), lambda record: None)
    (folder / "bags" / "0001").mkdir()
    (folder / "bags" / "0001" / "document.json").write_text(json.dumps(poison))
    from vgrads.dispatch.core.faults import fault_in  # noqa: PLC0415
    from vgrads.dispatch.storage.folder import name_of, open_bag, open_readable_bags  # noqa: PLC0415

    assert [readable_bag.number for readable_bag in open_readable_bags(folder)] == [0]
    fault = fault_in(1, lambda: open_bag(folder, 1))
    core.reject(fault, name_of(folder, 1), 5.0)
    assert (core.state.bags[1].name, name_state(core.state.bags[1])) == ("poison", "failed")
    assert "runtime_s" in core.state.bags[1].fault and name_state(core.state.bags[0]) == "done"


# agents


END = [0, 0, 1, 0, [0, 0, 1, 0], 0, 0, "", ""]
WRONG = [
    b"{",
    {"host": "a"},
    hello(ended=[[0, "x"]]),
    hello(hello={"left_s": float("nan")}),
    hello(hello={"left_s": float("-inf")}),
    hello(hello={"left_s": -1e308}),
    hello(hello={"procs": 10**12}),
    hello(hello={"attributes": {"x": float("inf")}}),
    hello(hello={"name": "\ud800"}),
    hello(ended=[[*END[:7], [], ""]]),
    hello(ended=[[*END[:7], "", {}]]),
    hello(ended=[[10**40, *END[1:]]]),
    hello(ended=[[7, *END[1:]]]),
    hello(ended=[[0, 7, *END[2:]]]),
    hello(ended=[[0, -1, *END[2:]]]),
    hello(ended=[[*END[:4], [0, 0, float("nan"), 0], *END[5:]]]),
    hello(ended=[[*END[:3], True, *END[4:]]]),
    hello(returned=[[10**40, 0, 1]]),
    hello(running=[[0, 0, 1, -1]]),
    hello(wait_s="long"),
    {**hello(), "seq": 10**40},
]


@pytest.mark.parametrize("body", WRONG, ids=lambda body: repr(body)[:60])
def test_an_invalid_message_costs_its_sender_the_connection_and_the_key(body, tmp_path):
    async def work(result, port):
        key = derive_key(b"s", "h1")
        good = hello(hello={"slot": "h1"}) | {"host": "b"}
        assert (await send(port, good, key=key))[1]["give"]
        assert (await send(port, body))[0] == 400
        assert (await send(port, hello(2)))[0] == 403
        assert (await send(port, {"host": "b", "life": "1", "seq": 2, "wait_s": 0}, key=key))[
            0
        ] == 200
        assert result.state.slots["h0"].revoked and not result.state.slots.get("h1")
        assert result.state.bags[0].tasks.counts[2] == 0
        result.state.check()

    with manager(tmp_path / "d", "true") as alive:
        alive(work)


def test_outputs_of_attempts_that_nobody_was_assigned_are_refused(tmp_path):
    async def work(result, port):
        await send(port, hello())
        for path in (
            "0/0/1/undeclared",
            "9/0/1/a",
            "0/0/2/a",
            "0/-1/1/a",
            f"{10**40}/0/1/a",
            "0/0",
        ):
            assert (await send(port, b"x", path=f"/outputs/{path}", method="PUT"))[0] == 400

    with manager(tmp_path / "d", "true") as alive:
        alive(work)


# variables


def test_secrets_are_passed_to_those_alone_who_name_them():
    around = {**SECRETS, "VGRADS_DB": "x", "PATH": "/bin", "MINE": "1", "LANG": "C"}
    assert all(map(is_secret, SECRETS)) and not is_secret("TOKENIZERS_PARALLELISM")
    assert set(pass_environment(around, own=True)[0]) == {"PATH", "MINE", "LANG"}
    assert set(pass_environment(around, own=False)[0]) == {"PATH", "LANG"}
    passed, refused = pass_environment(around, True, ["HF_TOKEN", "ABSENT", "VGRADS_DB"])
    assert passed["HF_TOKEN"] == "hush-hf" and refused == ["ABSENT", "VGRADS_DB"]
    passed, refused = pass_environment(around, False, ["HF_TOKEN", "GITHUB_TOKEN"], ["HF_TOKEN"])
    assert "GITHUB_TOKEN" not in passed and refused == ["GITHUB_TOKEN"]
    assert passed["HF_TOKEN"] == "hush-hf"


def test_bags_of_the_command_line_see_no_secrets_but_those_they_name(vgrads, write, monkeypatch):
    for name, value in (*SECRETS.items(), ("MINE", "seen")):
        monkeypatch.setenv(name, value)
    text = (
        'name: x\ncommands: [env, \'env; tr "\\\\0" "\\\\n" </proc/$PPID/environ; exit 3\']\n'
        "retries: 0\npass_env: [HF_TOKEN, ABSENT]\n"
    )
    _, bag = run(vgrads, write("bag.yaml", text))
    first, second = sorted(ends(vgrads, bag["id"]), key=lambda end: end["task"])
    assert "MINE=seen" in first["out"] and "HF_TOKEN=hush-hf" in first["out"]
    assert not any(SECRETS[name] in first["out"] for name in SECRETS if name != "HF_TOKEN")
    assert "ABSENT" in first["err"] and "GITHUB_TOKEN" not in first["err"]
    assert "GITHUB_TOKEN" in second["err"] and "AWS_SECRET_ACCESS_KEY" in second["err"]
    with pytest.raises(InputError, match="pass_env"):
        validate_field(BagDocument, {"name": "x", "command": "true", "pass_env": ["VGRADS_DB"]})


def test_planned_runs_see_no_secrets_but_those_they_name(vgrads, write, tmp_path, monkeypatch):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    text = """
name: s
deadline: 60s
pass_env: [HF_TOKEN, ABSENT]
workflows:
  - name: w
    tasks:
      - {id: a, runtime_s: 1, command: "env > a.txt; echo said >&2", outputs: [a.txt]}
"""
    answer = vgrads("run", write("set.yaml", text), "--sites", "here", "--json")
    assert answer.code == 0, answer.err
    (observed,) = (tmp_path / "home" / "runs").glob("*/w-1/results/a.txt")
    assert "HF_TOKEN=hush-hf" in observed.read_text()
    assert not any(SECRETS[n] in observed.read_text() for n in SECRETS if n != "HF_TOKEN")
    (err,) = (tmp_path / "home" / "runs").glob("*/w-1/tasks/a*/stderr.txt")
    assert "ABSENT" in err.read_text() and err.read_text().endswith("said\n")


@pytest.mark.more
def test_bags_of_a_service_see_nothing_of_its_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path))
    for name, value in (*SECRETS.items(), ("SOME_SETTING", "hush-setting")):
        monkeypatch.setenv(name, value)
    sites = (ROOT / "data/local/local.toml").read_text()
    (tmp_path / "local.toml").write_text(
        sites.replace("[[site]]", '[[site]]\npass_env = ["HF_TOKEN"]', 1)
    )
    for words in (
        ["sites", "add", str(tmp_path / "local.toml")],
        ["sites", "open", "here", "local"],
    ):
        subprocess.run(
            [sys.executable, "-m", "vgrads", *words], cwd=ROOT, check=True, capture_output=True
        )
    served = Served(tmp_path)
    try:
        client = Client(served.url)
        look = "env; tr '\\0' '\\n' </proc/$PPID/environ"
        bag = client.submit_bag(
            {
                "name": "x",
                "command": look,
                "parameters": {"x": [1]},
                "pass_env": ["GITHUB_TOKEN"],
                "output_bytes": 100_000,
            }
        )
        (end,) = client.bag_results(bag)
        assert "HF_TOKEN=hush-hf" in end["out"]  # the site passes it
        assert not any(SECRETS[name] in end["out"] for name in SECRETS if name != "HF_TOKEN")
        assert "hush-setting" not in end["out"] and "GITHUB_TOKEN" in end["err"]
        poison = {"name": "x", "command": "true", "parameters": {"x": [1]}, "runtime_s": 1e-320}
        with pytest.raises(InputError, match="runtime_s"):
            client.submit_bag(poison)
    finally:
        served.leave()


# parameters and inputs


def test_parameters_are_texts_as_they_are_written():
    yaml = (
        "name: x\ncommand: 'echo {x}'\nparameters: {x: [1.50, 0x10, 010, yes, 1e3, ' a ', ~x, "
        "2026-01-01], y: {range: [0, 2]}}\n"
    )
    bag_document = validate_field(
        BagDocument, restore_written_parameters(parse_mapping(yaml, "", "yaml"))
    )
    assert bag_document.parameters["x"] == (
        "1.50",
        "0x10",
        "010",
        "yes",
        "1e3",
        " a ",
        "~x",
        "2026-01-01",
    )
    text = (
        '{"name": "x", "command": "echo {x}", "parameters": {"x": [1.50, 1e3, '
        '100000000000000000001, true, "a"]}}'
    )
    bag_document = validate_field(
        BagDocument, restore_written_parameters(parse_mapping(text, "", "json"))
    )
    assert bag_document.parameters["x"] == ("1.50", "1e3", "100000000000000000001", "true", "a")
    again = BagDocument.model_validate_json(bag_document.model_dump_json())
    assert again.parameters == bag_document.parameters


def test_parameters_reach_commands_as_they_are_written(vgrads, write):
    text = (
        "name: x\ncommand: 'echo {x} {n}'\nparameters: {x: [1.50, 0x10, 010, yes], n: {range: "
        "[100000000000000000, 100000000000000002]}}\n"
    )
    code, bag = run(vgrads, write("bag.yaml", text))
    assert code == 0
    printed = {end["out"].strip() for end in ends(vgrads, bag["id"])}
    assert printed == {
        f"{x} {n}" for x in ("1.50", "0x10", "010", "yes") for n in (10**17, 10**17 + 1)
    }


def test_inputs_that_are_not_there_are_refused_by_name(vgrads, write, tmp_path):
    write("in-1.txt", "x")
    path = write(
        "bag.yaml", "name: x\ncommand: 'cat {x}'\nparameters: {x: [1, 2]}\ninputs: ['in-{x}.txt']\n"
    )
    answer = vgrads("bags", "run", path)
    assert answer.code == 2 and "inputs: no such file: 'in-2.txt'" in answer.err
    assert not list((tmp_path / "home").glob("dispatchers/*/bags/*"))
