"""Mistakes in the file of a bag: what is answered shows the right text."""

import json
import signal
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.bags.bag import split_template
from vgrads.dispatch.document import BagDocument, build_bag, load_bag
from vgrads.dispatch.parameters import FileLines
from vgrads.dispatch.storage.drop_requests import answer_drops, request_drop
from vgrads.kernel.documents import validate
from vgrads.kernel.errors import InputError
from vgrads.portal.cli.bags.run import _read
from vgrads.portal.jobs.bags import Crew, _Signals


def bag(**fields):
    return {"name": "b", "parameters": {"x": [1]}, **fields}


@pytest.mark.parametrize(
    ("command", "right"),
    [
        ("awk '{print $1}' {x}", "awk '{{print $1}}' {x}"),
        ("awk '{ print $1; y = 3 }' {x:raw}", "awk '{{ print $1; y = 3 }}' {x:raw}"),
        ("f() { echo {x}; }; f", "f() {{ echo {x}; }}; f"),
        ("awk '{{print}} {print $2}'", "awk '{{print}} {{print $2}}'"),
    ],
)
def test_braces_of_a_program_are_answered_with_the_doubled_text(vgrads, write, command, right):
    answer = vgrads("bags", "run", write("bag.json", json.dumps(bag(command=command))))
    assert answer.code == 2
    assert f"double the braces that are no parameter's: {right})" in " ".join(answer.err.split())


@given(st.text("ab{} x:;", max_size=12))
def test_the_text_that_is_advised_is_accepted(text):
    try:
        build_bag(BagDocument(**bag(command=text + "{x}", retries=0)), None)
    except InputError as error:
        if "double the braces" not in (error.fix or ""):
            return
        right = error.fix.partition("parameter's: ")[2]
        commands = build_bag(BagDocument(**bag(command=right)), None).commands
        assert all(name in ("", "x") for _, name, _ in split_template(right))
        assert len(commands) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (10, "must be a list, e.g. [10] for 0, 1, … below 10"),
        ("a", "must be a list, e.g. [10]"),
        ([], "needs at least 1 entry"),
        ([1, 2, 3, 4], "has more than 3 entries"),
    ],
)
def test_a_wrong_range_is_a_single_error_with_an_example(value, text):
    document = bag(command="echo {x}", parameters={"x": {"range": value}})
    with pytest.raises(InputError) as error:
        validate(BagDocument, document, "bag.yaml")
    assert str(error.value).startswith("bag.yaml: parameters.x.range: ")
    assert text in str(error.value)


def test_ctrl_c_stops_at_once_while_commands_are_read():
    """Before its bags have been read a dispatcher cannot end in order, and need not."""
    crew = Crew(store=None, dispatcher="bag-0123456789", catalog=None)
    with pytest.raises(KeyboardInterrupt):
        _Signals(crew)._came(signal.SIGINT, None)


@given(
    st.lists(st.text("a\r é#\ufeff", max_size=3), max_size=9),
    st.booleans(),
    st.integers(1, 8),
)
def test_lines_of_a_file_are_those_of_its_text(lines, ended, chunk):
    body = "\n".join(lines) + ("\n" if ended and lines else "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines"
        path.write_bytes(body.encode())
        read = FileLines(path, "lines", chunk)
    expected = body.split("\n")[:-1] if body.endswith("\n") else body.split("\n") if body else []
    expected = [line.rstrip("\r\n") for line in expected]
    count = len(expected)
    if body.startswith("\ufeff"):
        expected[0] = expected[0][1:]
        count -= body == "\ufeff"
    expected = [line for line in expected if line.strip() and line.strip()[0] != "#"]
    assert read.ignored == count - len(expected)
    assert [read[n] for n in range(len(read))] == expected


@pytest.mark.parametrize("field", ["commands_file", "lines"])
def test_lines_without_a_value_are_no_tasks_and_their_number_is_said(vgrads, write, field):
    write("list.txt", b"\xef\xbb\xbfecho one\n\n# echo two\n  \n  echo three\r\n")
    lines = "commands_file: list.txt"
    if field == "lines":
        lines = "command: '{c:raw}'\nparameters: {c: {lines: list.txt}}"
    bag = write("bag.yaml", f"name: b\n{lines}\n")
    answer = vgrads("bags", "run", bag, "--json")
    assert answer.code == 0, answer.err
    assert "list.txt: 3 lines without a value left out (blank, or a # comment)" in answer.err
    (entry,) = answer.json["bags"]
    assert entry["tasks"] == 2


def test_a_list_of_comments_has_no_tasks(vgrads, write):
    write("list.txt", "# nothing\n")
    answer = vgrads("bags", "run", write("bag.yaml", "name: b\ncommands_file: list.txt\n"))
    assert (answer.code, "has no tasks" in answer.err) == (2, True)


@pytest.mark.parametrize("written", ["{:%Y-%m-%dT%H:%M:%SZ}", '"{:%Y-%m-%dT%H:%M:%S+00:00}"'])
def test_the_deadline_of_a_bag_may_be_an_instant(write, written):
    at = written.format(datetime.now(UTC) + timedelta(hours=2))
    document, _ = load_bag(write("b.yaml", f"name: b\ncommands: ['true']\ndeadline: {at}\n"))
    assert 7100 < document.deadline <= 7200


@pytest.mark.parametrize(
    ("deadline", "text"),
    [("2020-01-01T00:00:00Z", "is in the past"), ("2090-01-01T00:00:00", "has no time zone")],
)
def test_an_instant_that_cannot_be_a_deadline_is_refused(vgrads, write, deadline, text):
    head = "name: b\ncommands: ['true']\n"
    for words in (
        (write("a.yaml", f"{head}deadline: {deadline}\n"),),
        (write("b.yaml", head), "--deadline", deadline),
    ):
        answer = vgrads("bags", "run", *words)
        assert (answer.code, "deadline" in answer.err, text in answer.err) == (2, True, True)


def test_a_deadline_of_the_command_line_is_a_goal(vgrads, write):
    plain = write("plain.yaml", "name: b\ncommands: ['true']\n")
    stated = write("goal.yaml", "name: b\ncommands: ['true']\ndeadline: 9h\nprobability: 0.7\n")
    assert _read(plain, {})[0].goal is None
    goal = _read(plain, {"deadline": "2h"})[0].goal
    assert (goal.deadline_s, goal.probability) == (7200.0, 0.95)
    goal = _read(stated, {"deadline": "2h", "budget_usd": 3.0})[0].goal
    assert (goal.deadline_s, goal.probability, goal.budget_usd) == (7200.0, 0.7, 3.0)
    refused = vgrads("bags", "run", plain, "--budget", "3")
    assert (refused.code, "'budget_usd' needs a 'deadline'" in refused.err) == (2, True)


def test_a_request_to_drop_tasks_that_nobody_takes_is_withdrawn(tmp_path):
    given = tmp_path / "bags" / "0000" / "given"
    given.mkdir(parents=True)
    with pytest.raises(TimeoutError):
        request_drop(tmp_path, 0, [1], 0.05)
    dropped = []
    assert not answer_drops(tmp_path, 0, lambda tasks: dropped.extend(tasks) or tasks)
    assert (dropped, list((given / "drops").iterdir())) == ([], [])
