"""What a person reads after a mistake: a unit, a value, a wrong file; and what the demonstration
and plans print."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import permutations

import pytest

import vgrads as api
from tests.conftest import DATA, ROOT
from tests.logs import make_log
from tests.terminal.pseudo_terminal import in_terminal
from vgrads.api.plans.unit_mistakes import ask_for_unit
from vgrads.portal.cli.queues.text import explanation_text
from vgrads.traces.swf import write_swf

SET = {
    "name": "storm",
    "deadline": "3",
    "at_least": 1,
    "workflows": [{"name": "w", "tasks": [{"id": "model", "runtime_s": 600, "command": "true"}]}],
}


def plan(vgrads, write, deadline, *more):
    path = write("storm.json", json.dumps(SET | {"deadline": deadline}))
    return vgrads("plan", path, "--sites", "here", *more)


# units


@pytest.mark.parametrize(
    ("deadline", "question"),
    [
        ("3", "3 means 3 seconds; did you mean 3h?"),
        (1, "1 means 1 second; did you mean 1h?"),
        ("0.5", "0.5 means 0.5 seconds; did you mean 0.5h?"),
    ],
)
def test_a_bare_number_that_makes_a_plan_impossible_is_asked_about(
    vgrads, write, deadline, question
):
    answer = plan(vgrads, write, deadline)
    assert answer.code == 3
    assert question in answer.err
    assert question in plan(vgrads, write, deadline, "--json").json["lacking"]


def test_without_a_sufficient_change_hours_are_asked_about(vgrads, write):
    answer = plan(vgrads, write, "3", "--effort", 0)
    assert "3 means 3 seconds; did you mean 3h?" in answer.err


@pytest.mark.parametrize("deadline", ["3s", "00:00:03", "0.05m"])
def test_a_deadline_with_a_unit_is_not_asked_about(vgrads, write, deadline):
    answer = plan(vgrads, write, deadline)
    assert answer.code == 3
    assert "did you mean" not in answer.err


def test_a_bare_number_that_is_enough_is_not_asked_about(vgrads, write):
    answer = plan(vgrads, write, 7200)
    assert answer.code == 0
    assert "did you mean" not in answer.out + answer.err


def test_a_deadline_that_was_replaced_is_not_asked_about():
    chosen = api.read_set(DATA / "lead.yaml", deadline=3).workflow_set
    assert ask_for_unit(chosen, ()) == "3 means 3 seconds; did you mean 3h?"
    assert ask_for_unit(replace(chosen, deadline_s=60.0), ()) == ""


def test_run_and_the_python_interface_ask_too(vgrads, write):
    question = "3 means 3 seconds; did you mean 3h?"
    path = write("storm.json", json.dumps(SET))
    assert question in vgrads("run", path, "--sites", "here").err
    assert question in vgrads("plan", DATA / "lead.yaml", "--deadline", 3).err
    result = api.plan(api.read_set(DATA / "lead.yaml", deadline=3))
    assert question in result.lacking


# errors


def test_a_plan_that_is_impossible_is_reported_once_and_in_readable_times(vgrads, write):
    answer = plan(vgrads, write, "3s", "--effort", 1.5)
    assert answer.out == ""
    assert answer.err.count("cannot be placed") == 1
    first, lacking, change = answer.err.strip().split("\n")
    assert first.endswith("no plan finishes 1 workflow within 3s")
    assert "takes 10m" in lacking
    assert "the deadline is 3s away" in lacking
    assert change.startswith("  sufficient change: a later deadline (by 10m ")


def test_an_error_breaks_no_word_at_a_terminal(vgrads, write):
    path = write("storm.json", json.dumps(SET))
    screen = in_terminal(60, "plan", path, "--sites", "here", "--effort", 1.5)
    assert screen.too_long(60) == []
    assert screen.words >= set(plan(vgrads, write, "3", "--effort", 1.5).err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bound", "x.swf", "--procs", "sixteen"), "--procs: must be a whole number, is 'sixteen'"),
        (("bound", "x.swf", "--procs", "0"), "--procs: must be at least 1, is '0'"),
        (("size", "x.yaml", "--price", "cheap"), "--price: must be a number, is 'cheap'"),
        (("bags", "explain", "BAG", "x"), "N: must be a whole number, is 'x'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_value_is_reported_in_plain_words(vgrads, arguments, message):
    answer = vgrads(*arguments)
    assert answer.code == 2
    assert answer.err == f"vgrads: {message}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("bound", "HISTORY: is missing (see 'vgrads bound --help')"),
        ("token create --days 3", "--days: no such option (see 'vgrads token create --help')"),
        (
            "plan x --jsn",
            "--jsn: no such option; did you mean '--json'? (see 'vgrads plan --help')",
        ),
        ("gantt x --format y", "--format: no such option (see 'vgrads gantt --help')"),
        ("bound x --procs", "--procs: needs a value (see 'vgrads bound --help')"),
        ("plan x --json=3", "--json: takes no value (see 'vgrads plan --help')"),
        ("plan a b c", "unexpected argument 'b c' (see 'vgrads plan --help')"),
        ("bond", "bond: no such command; did you mean 'bound'? (see 'vgrads --help')"),
        ("sites xyz", "xyz: no such command (see 'vgrads sites --help')"),
        ("bags --", "missing command (see 'vgrads bags --help')"),
        ("--nope", "--nope: no such option (see 'vgrads --help')"),
        ("study whatif", "log: is missing (see 'vgrads study whatif --help')"),
        ("study whatif x --nope", "--nope: no such option (see 'vgrads study whatif --help')"),
        ("study whatif x y", "unexpected argument 'y' (see 'vgrads study whatif --help')"),
        ("study whatif --seed", "--seed: needs a value (see 'vgrads study whatif --help')"),
        (
            "study whatif --seed a",
            "--seed: must be a whole number, is 'a' (see 'vgrads study whatif --help')",
        ),
        (
            "study pool --only x",
            "--only: 'x' is none of 'table', 'peers', 'random', 'capacity', 'rest' "
            "(see 'vgrads study pool --help')",
        ),
    ],
)
def test_wrong_arguments_are_a_line_as_all_other_errors(vgrads, arguments, message):
    answer = vgrads(*arguments.split())
    assert (answer.code, answer.out, answer.err) == (2, "", f"vgrads: {message}\n")


def test_a_group_without_a_command_shows_its_help(vgrads):
    answer = vgrads("db")
    assert answer.code == 2
    assert "backup" in answer.out + answer.err
    assert "vgrads:" not in answer.err


def test_a_log_in_place_of_a_set_is_named_with_what_it_is_for(vgrads, write):
    path = write("log.swf", write_swf(make_log(50, seed=1)))
    for more in ((), ("--deadline", "4h")):
        answer = vgrads("plan", path, *more)
        assert answer.code == 2
        assert f"{path}: is a queue log (swf), not a workflow set" in answer.err
        assert f"'vgrads bound {path} --procs 16 --walltime 2h'" in answer.err


KINDS = {
    "pool.yaml": ("a pool", "vgrads pool run FILE"),
    "lead.yaml": ("a workflow set", "vgrads plan FILE"),
    "sites.toml": ("a description of sites", "--sites FILE"),
    "bag.yaml": ("a bag", "vgrads bags run FILE"),
}
READERS = {
    "pool.yaml": ("pool", "run"),
    "lead.yaml": ("plan",),
    "sites.toml": ("sites", "add"),
    "bag.yaml": ("bags", "run"),
}


@pytest.mark.parametrize(("file", "reader"), tuple(permutations(KINDS, 2)))
def test_a_file_of_another_kind_is_named_as_what_it_is(vgrads, file, reader):
    kind, use = KINDS[file]
    answer = vgrads(*READERS[reader], DATA / file)
    text = f"is {kind}, not {KINDS[reader][0]} (use it with '{use}')"
    assert (answer.code, answer.err) == (2, f"vgrads: {DATA / file}: {text}\n")


def test_known_keys_are_listed_once_and_briefly(vgrads, write):
    path = write("b.yaml", "name: b\ncommand: 'true'\nxyz: 1\nuvw: 2\nhosts: {abc: 1}\nnamme: 2\n")
    first, *lines = vgrads("bags", "run", path).err.splitlines()
    assert first == f"vgrads: {path}: 4 errors"
    assert lines[0].startswith("  line 3: xyz: unknown key (known: name, command, ")
    assert lines[0].endswith(" more)") and len(lines[0]) < 200
    assert lines[1] == "  line 4: uvw: unknown key"
    assert lines[2].startswith("  line 5: hosts.abc: unknown key (known: most, least, procs, ")
    assert lines[3] == "  line 6: namme: unknown key; did you mean 'name'?"


# the demonstration, and plans


@pytest.mark.more  # plans with much effort
def test_a_cheaper_plan_is_explained_by_what_it_saves(vgrads):
    line = " ".join(vgrads("plan", DATA / "lead-storm.yaml", "--effort", 3).out.split())
    saved = re.search(r"cheaper plan: \$?([\d.]+) instead of \$?([\d.]+)", line)
    assert float(saved[1]) < float(saved[2])
    promises = line.split("on average, promise ")[1].split(";")[0].split(" → ")
    assert float(promises[1].split()[0]) < float(promises[0])
    assert "; 0.9 is enough" in line


def test_what_does_not_move_a_bound_takes_one_line():
    moved = [
        {"side": "size of the job", "moved_s": 120.0, "reason": "requested time 2h"},
        {"side": "waiting jobs", "moved_s": 0.2, "reason": "0 jobs"},
        {"side": "this user's jobs", "moved_s": 0.0, "reason": ""},
    ]
    text = explanation_text(
        {"method": "state", "why": "x", "queues": [], "usual_bound_s": 60.0, "moved": moved}
    )
    assert "+0s" not in text
    assert "nothing waiting jobs; this user's jobs" in text
    assert text.endswith("3m bound now")


INTERRUPTED = """
import runpy, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "{module}":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = ["bags"]
runpy.run_module("vgrads", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["cli.options", "cli.bags.commands"])
def test_ctrl_c_while_a_command_is_imported_is_a_line(module):
    program = INTERRUPTED.format(module=f"vgrads.portal.{module}")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "vgrads: interrupted\n")


LOST = """
import os, runpy, signal, sys

class Losing:
    def find_spec(self, name, *_):
        if name == "vgrads.portal.cli.options":
            try:
                os.kill(os.getpid(), signal.SIGINT)
                signal.pause()
            except BaseException:  # as in callbacks, and where an extension is initialized
                raise ImportError("lost") from None

sys.meta_path.insert(0, Losing())
sys.argv[1:] = ["bags"]
runpy.run_module("vgrads", run_name="__main__")
"""


def test_ctrl_c_that_an_import_would_lose_is_a_line():
    done = subprocess.run(
        [sys.executable, "-c", LOST], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "vgrads: interrupted\n")


def test_little_is_imported_before_ctrl_c_is_looked_after():
    program = "import sys; import vgrads.__main__; print('typing' in sys.modules)"
    command = [sys.executable, "-S", "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
