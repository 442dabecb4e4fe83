"""What stands on a terminal: nothing cut off that is needed, brackets as they are, time that goes
on, lines found quickly."""

import io
from types import SimpleNamespace

import pytest

from vgrads.kernel import problems
from vgrads.kernel.documents import parse_mapping, validate
from vgrads.kernel.errors import InputError
from vgrads.portal.cli import terminal
from vgrads.portal.cli.plans.live import fitting, later
from vgrads.portal.cli.plans.logs_text import logs_text
from vgrads.portal.cli.plans.status_text import print_runs
from vgrads.vgrid.documents import SitesDocument
from vgrads.workflows.sets import SetDocument

NAME = "run-0123456789"
ROW = {
    "run": NAME,
    "name": "a [red] set",
    "state": "interrupted",
    "manager": "gone",
    "started": "2026-11-22T07:32:00+00:00",
    "due": "2026-11-22T07:42:00+00:00",
    "promise": 0.9,
    "needed": 2,
    "outcome": {"in_time": 0, "needed": 2},
    "cost_usd": 1.5,
    "hint": (
        f"its manager is gone: 'vgrads resume {NAME}' goes on, 'vgrads cancel {NAME}' gives all "
        "back"
    ),
}
ATTEMPT = {
    "workflow": "storm",
    "task": "[/x]model",
    "copy": 0,
    "attempt": 0,
    "state": "failed",
    "exit": 3,
    "reason": "exit code [/3]",
    "started_s": 1.0,
    "seconds": 2.0,
    "site": "toy",
    "slot": "cluster-of-the-institute-batch-12",
    "stdout": "",
    "stderr": "[/bold] no",
    "folder": None,
}


@pytest.fixture
def narrow(monkeypatch):
    """A console of eighty columns as commands make it, and what was written there."""
    written = io.StringIO()
    monkeypatch.setattr(terminal.sys, "stdout", written)
    out = terminal.console()
    out.width = 80
    return out, written


def test_what_a_person_must_type_again_is_whole_at_eighty_columns(narrow):
    out, written = narrow
    print_runs(out, [ROW])
    table, hint = written.getvalue().split("its manager")
    assert NAME in table
    assert "…" not in table
    assert f"'vgrads resume {NAME}'" in hint
    assert f"'vgrads cancel {NAME}'" in hint


@pytest.mark.parametrize("whole", [False, True])
def test_brackets_in_names_and_in_what_tasks_print_are_brackets(narrow, whole):
    out, written = narrow
    out.width = 200
    out.print(logs_text({"attempts": [ATTEMPT]}, whole))
    assert "storm/[/x]model" in written.getvalue()
    assert "exit code [/3]" in written.getvalue()


def test_what_a_task_prints_does_not_command_the_terminal(narrow):
    out, written = narrow
    text = "one\x1b[2J\x1b]0;owned\x07\x9b2J\ttwo"
    out.print(logs_text({"attempts": [ATTEMPT | {"stderr": text, "reason": text}]}, True))
    out.print(text, style="red")
    assert "\x1b" not in written.getvalue()
    assert "\x9b" not in written.getvalue()
    assert written.getvalue().count("one␛[2J") == 3


def test_brackets_are_brackets_wherever_a_command_says_something(vgrads, tmp_path):
    folder = tmp_path / "[" / "x]"
    folder.mkdir(parents=True)
    message = vgrads("sites", "reset", f"{folder}")
    assert (message.code, message.out) == (0, f"no observations of {folder}\n")


def test_the_line_of_a_run_keeps_what_weighs_most(narrow):
    parts = [
        "1m 5s",
        "due 12:00",
        "promise now 0.93",
        "12 of 40 workflows",
        "tasks 12/400, 3 running",
    ]
    assert fitting(parts, 200) == " · ".join(parts)
    assert fitting(parts, 50) == "1m 5s · due 12:00 · promise now 0.93"
    assert fitting(parts, 1) == "1m 5s"


def test_a_run_says_what_it_waits_for_before_anything_happens():
    uses = {
        f"s{n}": SimpleNamespace(submit_s=60.0 * n, slot=SimpleNamespace(id=f"s{n}"))
        for n in range(7)
    }
    execution = SimpleNamespace(uses=uses)
    assert later(execution, 0.0)[0] == "slot s1: will be requested at 1m, as planned"
    assert later(execution, 0.0)[-1] == "3 more slots are requested after that"
    assert later(execution, 300.0) == ["slot s6: will be requested at 6m, as planned"]
    assert later(execution, 360.0) == []


def test_the_lines_of_many_problems_are_located_in_a_single_reading(monkeypatch):
    tasks = "".join(f"      - {{id: t{n}, runtme_s: 5, procs: many}}\n" for n in range(500))
    text = f"name: big\ndeadline: 1h\nworkflows:\n  - name: w\n    tasks:\n{tasks}"
    queues = "".join(f'[[site.queue]]\nname = "q{n}"\nmax_procs = -1\n' for n in range(500))
    sites = f'[[site]]\nname = "a"\nkind = "batch"\nprocs = 3\n{queues}'
    read = []

    def counted(make):
        return lambda *given, **more: (read.append(make), make(*given, **more))[1]

    monkeypatch.setattr(problems.yaml, "compose", counted(problems.yaml.compose))
    monkeypatch.setattr(problems, "_find_toml_lines", counted(problems._find_toml_lines))
    for model, document, kind, count in (
        (SetDocument, text, "yaml", 1000),
        (SitesDocument, sites, "toml", 500),
    ):
        with pytest.raises(InputError, match=f"{count} errors") as refused:
            validate(model, parse_mapping(document, "big", kind), "big")
        assert "line 7: " in "\n".join(refused.value.lines)
    assert len(read) == 2
