"""What a person uses every day: the help in groups, the live view, the end of a run, progress."""

import re

import pytest

from tests.conftest import DATA
from tests.terminal.pseudo_terminal import in_terminal, terminal_of
from tests.waiting import until
from vgrads.kernel.compile_state import compilation
from vgrads.portal.cli import terminal
from vgrads.portal.cli.groups import GROUPS
from vgrads.portal.cli.plans.top import activity_text, watch

RUN = {
    "run": "run-0123456789",
    "name": "storm",
    "state": "running",
    "due": "2026-11-22T08:00:00+00:00",
    "promise": 0.95,
    "promise_now": 0.875,
    "needed": 2,
    "workflows_done": 1,
    "tasks": {"done": 12, "of": 48, "before": 0},
    "slots": [],
    "hint": None,
}
BAG = {
    "id": "bag-0123456789",
    "name": "sweep",
    "state": "running",
    "tasks": 1000,
    "done": 250,
    "failed": 1,
    "running": 8,
    "left_s": 90.0,
    "problem": "no site accepts agents",
}
ACTIVITY = {"at": "2026-11-22T07:32:00+00:00", "runs": [RUN], "bags": [BAG]}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("COLUMNS", raising=False)


# help


def headings(text):
    return re.findall(r"╭─ ([\w ]+?) ─", text)


def commands_of(text, heading):
    panel = text.split(f"╭─ {heading} ─")[1].split("╰")[0]
    return re.findall(r"^│ (\w+) ", panel, flags=re.MULTILINE)


def test_the_help_has_groups_with_the_five_daily_commands_first():
    text = in_terminal(80, "--help").text
    assert headings(text) == ["Options", *GROUPS]
    assert commands_of(text, "Every day") == ["run", "status", "logs", "plan", "forecast"]
    for heading, names in GROUPS.items():
        assert commands_of(text, heading) == list(names)
    assert sum(map(len, GROUPS.values())) <= 25


def test_without_arguments_ten_lines_say_what_to_do_first():
    screen = in_terminal(80)
    assert screen.code == 0
    assert len(screen.text.strip().splitlines()) == 10
    assert screen.too_long(80) == []


def test_the_help_of_a_command_is_whole_and_the_list_has_its_first_sentence():
    assert "Exit 3 where" not in in_terminal(80, "--help").text
    assert "Exit 3 where" in in_terminal(120, "sites", "offers", "--help").text


# the live view


def test_the_view_shows_the_current_promise_the_time_left_and_the_progress():
    lines = [
        line
        for part in activity_text(ACTIVITY)
        for line in str(terminal.printable(part, 80)).split("\n")
    ]
    assert lines[0].endswith("active runs: 1, active bags: 1")
    assert lines[3].split() == [
        "run-0123456789",
        "storm",
        "running",
        "28m",
        "0.875",
        "12/48",
        "1/2",
    ]
    assert lines[6].split() == [
        "bag-0123456789",
        "sweep",
        "running",
        "250/1,000",
        "1",
        "8",
        "1m",
        "30s",
    ]
    assert lines[7].strip() == "no site accepts agents"
    late = {**ACTIVITY, "at": "2026-11-22T08:01:00+00:00"}
    assert "late 1m" in str(terminal.printable(activity_text(late)[1], 80))


def test_the_view_is_read_again_until_it_is_interrupted():
    readings, pauses = [], []

    def read():
        readings.append(len(readings))
        return ACTIVITY

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    watch(terminal.console(), 2.0, read, pause)
    assert readings == [0, 1, 2]
    assert min(pauses) >= 2.0


def test_without_a_terminal_the_view_is_printed_once(vgrads):
    answer = vgrads("top")
    assert answer.code == 0
    assert "active runs: 0, active bags: 0" in answer.out
    assert "\x1b" not in answer.out
    assert vgrads("top", "--json").json["runs"] == []


# the end of a run


def test_a_run_ends_with_its_outputs_and_the_outcome_of_the_promise():
    last = in_terminal(300, "run", DATA / "local" / "local.yaml").text.strip().split("\n")[-2:]
    assert last[0].strip().startswith("Outputs: /")
    assert last[1].startswith("Promised 4 of 4 workflows")
    assert last[1].endswith("the promise was KEPT.")
    simulated = in_terminal(300, "run", DATA / "lead.yaml").text.strip().split("\n")[-2:]
    assert simulated[0] == "Outputs: none, because all sites are simulated."


# progress


@pytest.mark.parametrize("shown", [terminal.busy, None], ids=["spinner", "bar"])
def test_progress_says_when_functions_are_compiled(shown):
    with terminal_of(100) as written:

        def last():
            return b"".join(written).decode(errors="replace").rpartition("replaying")[2]

        out = terminal.console(stderr=True)
        with shown(out, "replaying") if shown else terminal.progress_bar("replaying"):
            until(lambda: written, "the first step")
            with compilation():
                until(lambda: last().startswith(": compiling, once on this machine"), last)
            until(lambda: "compiling" not in last(), last)


@pytest.mark.parametrize(
    ("arguments", "step"),
    [
        (("plan", DATA / "lead.yaml"), "placing workflows"),
        (("where", "--procs", 4), "learning from the history"),
        (("sites", "check"), "connecting to all sites"),
        (("sites", "sweep"), "querying all sites"),
        (("size", DATA / "lead.yaml"), "comparing numbers of nodes"),
        (("bags", "simulate", "--load", ".3", "--days", ".1"), "simulating"),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else "",
)
def test_a_long_command_says_at_a_terminal_what_it_does(arguments, step):
    assert step in in_terminal(80, *arguments).text
