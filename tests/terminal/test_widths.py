"""Every command that prints a table, in pseudo-terminals of several widths: no word is broken, a
row is one line."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.conftest import DATA, ROOT
from tests.logs import make_log
from tests.terminal.pseudo_terminal import in_terminal
from vgrads.portal.main import main
from vgrads.traces.swf import write_swf

FAILING = """\
name: failing-set-of-the-institute
deadline: 2m
at_least: 1
workflows:
  - name: storm
    tasks:
      - {id: model, runtime_s: 1, command: "echo a reason >&2; exit 3", outputs: [model.nc]}
"""


def run_quietly(*arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return int(stop.value.code or 0)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with runs that were kept and that failed, a bag, a token, run times and an audit."""
    folder = tmp_path_factory.mktemp("terminal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VGRADS_HOME", str(folder / "home"))
        patch.setenv("TERM", "xterm-256color")
        for name in ("COLUMNS", "NO_COLOR"):
            patch.delenv(name, raising=False)
        (folder / "failing.yaml").write_text(FAILING)
        (folder / "log.swf").write_text(write_swf(make_log(800, seed=1)))
        assert run_quietly("run", DATA / "local" / "local.yaml") == 0
        assert run_quietly("run", folder / "failing.yaml", "--sites", "here") == 1
        assert run_quietly("bags", "run", DATA / "bag.yaml") == 0
        assert run_quietly("token", "create", "ann", "--name", "the notebook of a course") == 0
        yield folder


@pytest.fixture(autouse=True)
def _home(home):
    return home


SETTLED = [
    ("status",),
    ("status", "failing-set-of-the-institute"),
    ("logs", "failing-set-of-the-institute"),
    ("logs", "local-shapes"),
    ("bags", "status"),
    ("bags", "policies"),
    ("sites", "list"),
    ("sites", "show", "mercury"),
    ("sites", "check"),
    ("sites", "sweep"),
    ("token", "list"),
    ("db", "audit"),
    ("pool", "status"),
    ("runtimes", "list"),
    ("runtimes", "predict", DATA / "lead.yaml"),
    ("size", DATA / "lead.yaml", "--price", "0.1"),
    ("score",),
    ("where", "--procs", 4, "--walltime", "1h"),
    ("doctor",),
]
"""Commands whose output depends on nothing but their home."""
MEASURED = [("doctor",)]
"""Of these, commands that print figures of the machine, which change between two calls."""
FIGURE = re.compile(r"\d+\.\d+")
TIMED = [
    ("plan", DATA / "lead.yaml"),
    ("run", DATA / "lead-storm.yaml"),
    ("sites", "offers", DATA / "storm.grid"),
    ("backtest", "LOG"),
    ("bags", "simulate", "LOG", "--clusters", "128x1.0"),
    ("bags", "fit", "LOG"),
]
"""Commands that also print progress or times."""


def name_of(arguments):
    return " ".join(str(getattr(item, "name", item)) for item in arguments)


def called(home, arguments):
    return [home / "log.swf" if item == "LOG" else item for item in arguments]


@pytest.mark.parametrize("arguments", SETTLED, ids=name_of)
def test_no_word_is_broken(arguments):
    whole = in_terminal(400, *arguments)
    for columns in (40, 80, 120):
        screen = in_terminal(columns, *arguments)
        assert screen.code == whole.code, columns
        assert screen.too_long(columns) == [], columns
        broken = {word for word in screen.words - whole.words if "…" not in word}
        if arguments in MEASURED:
            broken = {word for word in broken if not FIGURE.fullmatch(word)}
        assert broken == set(), columns


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("arguments", TIMED, ids=name_of)
def test_no_line_is_longer_than_the_terminal(home, arguments, columns):
    screen = in_terminal(columns, *called(home, arguments))
    assert screen.code == 0, screen.text
    assert screen.too_long(columns) == []


def test_wide_shows_every_column_however_narrow_the_terminal_is():
    header = in_terminal(40, "status", "--wide").lines[0].split()
    assert header[:3] == ["run", "set", "state"]
    assert {"promise", "cost", "started"} <= set(header)
    assert "not shown" not in in_terminal(40, "status", "--wide").text
    narrow = in_terminal(40, "status")
    assert "cost" not in narrow.lines[0]
    assert "cost" in narrow.text.split("not shown:")[1]


def test_a_run_is_a_line_and_a_reason_is_below_its_row(home):
    lines = in_terminal(80, "status").lines
    runs = json.loads(in_terminal(80, "status", "--json").text)["runs"]
    assert [line.split()[0] for line in lines[2 : 2 + len(runs)]] == [row["run"] for row in runs]
    logs = in_terminal(40, "logs", "failing-set-of-the-institute").lines
    rows = [n for n, line in enumerate(logs) if line.startswith("storm-1/model")]
    assert rows
    assert all(logs[n + 1].startswith("    exit") for n in rows)


def test_a_terminal_without_abilities_gets_no_control_sequence(monkeypatch):
    coloured = in_terminal(80, "status").raw
    assert "\x1b[" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" in coloured
    assert "\x1b[32m" not in in_terminal(80, "status").raw
    monkeypatch.setenv("TERM", "dumb")
    for arguments in (("status",), ("plan", DATA / "lead.yaml"), ("run", DATA / "lead.yaml")):
        screen = in_terminal(80, *arguments)
        assert "\x1b" not in screen.raw
        assert screen.too_long(80) == []


def test_a_pipe_has_the_width_that_columns_states(home):
    def piped(**environment):
        done = subprocess.run(
            [sys.executable, "-m", "vgrads", "status"],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env=os.environ | environment,
        )
        return done.stdout.splitlines()

    assert max(map(len, piped(COLUMNS="50"))) <= 50
    assert "not shown" not in "\n".join(piped())
    assert "\x1b" not in "\n".join(piped(COLUMNS="50"))


def test_json_does_not_depend_on_the_terminal():
    narrow, broad = (in_terminal(columns, "status", "--json").text for columns in (40, 400))
    assert narrow == broad
    assert json.loads(narrow)["runs"]
