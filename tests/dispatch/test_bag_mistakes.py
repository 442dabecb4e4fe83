"""Mistakes in the file of a bag: what is answered shows the right text."""

import json
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.bags.bag import parts_of
from vgrads.dispatch.document import BagDocument, build_bag
from vgrads.dispatch.parameters import FileLines
from vgrads.kernel.documents import validate
from vgrads.kernel.errors import InputError
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
        assert all(name in ("", "x") for _, name, _ in parts_of(right))
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


@given(st.lists(st.text("a\r é", max_size=3), max_size=9), st.booleans(), st.integers(1, 8))
def test_lines_of_a_file_are_those_of_its_text(lines, ended, chunk):
    body = "\n".join(lines) + ("\n" if ended and lines else "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines"
        path.write_bytes(body.encode())
        read = FileLines(path, "lines", chunk)
    expected = body.split("\n")[:-1] if body.endswith("\n") else body.split("\n") if body else []
    assert [read[n] for n in range(len(read))] == [line.rstrip("\r\n") for line in expected]
