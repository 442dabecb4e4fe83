"""Runs and bags with real commands in this process: results, events, interruption."""

import asyncio
import os
import signal
from datetime import timedelta

import pytest

from tests.conftest import DATA
from tests.interface.conftest import LOCAL_SITE, commands
from tests.waiting import runs, until
from vgrads import Bag, InfeasibleError, InputError, VgradsError, plan, read_set, run


def test_a_mapping_runs_here_and_its_output_can_be_read(tmp_path):
    events = []
    document = commands("echo one > a; cat a", "echo 2; echo 3 >&2")
    document["workflows"][0]["tasks"][0]["outputs"] = ["a"]
    result = run(document, tmp_path / "out", sites=LOCAL_SITE, on_event=events.append)
    assert (result.verdict, result.kept, result.in_time) == ("kept", True, 1)
    assert (result.folder / "w-1" / "results" / "a").read_text() == "one\n"
    assert result.printed("w-1/t0") == ("one\n", "")
    assert result.printed("t1") == ("2\n", "3\n")
    assert [(a.task, a.state, a.exit_code) for a in result.attempts] == [
        ("t0", "done", 0),
        ("t1", "done", 0),
    ]
    assert {event["kind"] for event in events} >= {"slot", "copy"}


def test_a_broken_promise_is_a_result(tmp_path):
    result = run(commands("exit 7"), tmp_path / "out", sites="here")
    assert (result.verdict, result.in_time, result.needed) == ("broken", 0, 1)
    assert result.attempts[-1].exit_code == 7


def test_deadlines_may_be_timedeltas():
    document = commands("true")
    assert read_set(document, timedelta(minutes=5)).deadline_s == 300
    assert read_set({**document, "deadline": timedelta(hours=1)}).deadline_s == 3600
    assert read_set(DATA / "lead.yaml", 90).deadline_s == 90


def test_tasks_of_an_earlier_run_are_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document = commands("echo 1 > a")
    document["workflows"][0]["tasks"][0]["outputs"] = ["a"]
    first = run(document, "out", sites="here")
    again = plan(document, "here", earlier=[first.folder])
    assert not again.placements and "nothing is left to run" in repr(again)
    assert run(again, "out").verdict == "kept" or not again.placements


def test_ctrl_c_ends_the_tasks_and_releases_the_slots(tmp_path):
    """The command is at work when Ctrl-C comes, and gone when the call returns."""
    note = tmp_path / "pid"

    def interrupt(event):
        if event["kind"] == "slot" and event["state"] == "READY":
            until(lambda: note.exists() and note.read_text(), "the task")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(commands(f"echo $$ > {note}; sleep 60"), sites="here", on_event=interrupt)
    until(lambda: not runs(int(note.read_text())), "the end of the task")


def test_an_exception_of_the_callback_ends_the_run():
    def refuse(event):
        raise ZeroDivisionError(event["kind"])

    with pytest.raises(ZeroDivisionError):
        run(commands("sleep 60"), sites="here", on_event=refuse)


def test_a_folder_has_one_run_at_a_time(tmp_path):
    refused = []

    def second(_):
        if not refused:
            with pytest.raises(InputError, match="another run uses it") as error:
                run(commands("true"), tmp_path, sites="here")
            refused.append(error.value.where)

    assert run(commands("true"), tmp_path, sites="here", on_event=second).kept
    assert refused == [f"folder {tmp_path}"]


def test_an_infeasible_set_is_not_run():
    with pytest.raises(InfeasibleError, match="lacking") as error:
        run(DATA / "lead.yaml", sites="here")
    assert error.value.exit_code == 3 and isinstance(error.value, VgradsError)


def test_a_bag_returns_texts_outputs_and_failures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "add.txt").write_text("10\n")
    command = "expr {x} + $(cat add.txt) | tee out-{x}; test {x} -lt 3"
    bag = Bag(
        command=command,
        parameters={"x": [1, 2, 3]},
        inputs=["add.txt"],
        outputs=["out-{x}"],
        retries=1,
        limit="1m",
    )
    statuses = []
    result = bag.run(folder="bag", on_status=statuses.append)
    assert (result.state, result.tasks, result.done, result.failed) == ("failed", 3, 2, 1)
    assert result.printed() == {0: "11\n", 1: "12\n"} and result.printed(1) == {1: "12\n"}
    assert [path.read_text() for path in result.outputs[:2]] == ["11\n", "12\n"]
    (failure,) = result.failures
    assert (failure.task, failure.attempts, failure.reason) == (2, 2, "exit code 1")
    assert statuses[-1]["done"] == 2 and "nodes" in statuses[-1]


def test_the_same_bag_goes_on_where_it_ended(tmp_path):
    count = tmp_path / "count"
    bag = Bag(commands=[f"echo x >> {count}"] * 3)
    assert bag.run(folder=tmp_path / "bag").done == 3
    assert bag.run(folder=tmp_path / "bag").done == 3
    assert count.read_text() == "x\n" * 3
    with pytest.raises(InputError, match="holds another bag"):
        Bag(commands=["true"]).run(folder=tmp_path / "bag")


def test_tasks_that_an_earlier_run_of_the_bag_has_done_are_left_out():
    def run(last, **options):
        command = "echo {x} | tee {x}.txt; test {x} -lt 3"
        bag = Bag(
            name="x",
            command=command,
            parameters={"x": range(1, last + 1)},
            outputs=["{x}.txt"],
            retries=0,
        )
        result = bag.run(**options)
        assert (result.done, result.failed) == (2, last - 2)
        assert result.printed() == {0: "1\n", 1: "2\n"}
        assert [path.read_text() for path in result.outputs] == ["1\n", "2\n"]
        return result

    first = run(3)
    assert (first.reused, run(4).reused, run(4, rerun=True).reused) == (0, 2, 0)
    (first.results / "1.txt").unlink()
    assert run(3).reused == 2  # of the newer runs


def test_a_bag_runs_inside_an_event_loop():
    """As in a notebook."""

    async def cell():
        return Bag(commands=["echo hi"]).run().printed()

    assert asyncio.run(cell()) == {0: "hi\n"}


def test_ctrl_c_ends_a_bag_and_it_can_go_on(tmp_path):
    sent = []
    gate = tmp_path / "gate"
    gate.touch()

    def interrupt(status):
        if status["running"] and not sent:
            sent.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    bag = Bag(commands=["true", f"while test -e {gate}; do sleep .1; done"])
    with pytest.raises(KeyboardInterrupt):
        bag.run(folder=tmp_path / "bag", on_status=interrupt)
    gate.unlink()
    result = bag.run(folder=tmp_path / "bag")
    assert (result.state, result.done) == ("done", 2)
