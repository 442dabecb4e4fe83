"""Where nothing can be printed (a full disk, a closed terminal), programs still do what they
must."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.chaos.world import HERE
from tests.conftest import ROOT
from tests.terminal.pseudo_terminal import open_terminal
from tests.waiting import until
from vgrads.agent.main import MISTOLD
from vgrads.exchange.agent_file import build_agent_file

STEP = [sys.executable, "-m", "vgrads.slurm.step_program"]


def code_of(*command, **variables):
    """Exit code of a program whose stderr is a file on a full disk."""
    with Path("/dev/full").open("w") as full:
        return subprocess.run(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=full,
            env={**os.environ, **variables},
            timeout=60,
            check=False,
        ).returncode


@pytest.mark.parametrize(
    ("words", "code"), [(["status", "run-0000000000"], 2), (["bags", "run", "absent.yaml"], 2)]
)
def test_a_command_that_fails_has_its_exit_status(words, code, tmp_path):
    assert code_of(sys.executable, "-m", "vgrads", *words, VGRADS_HOME=str(tmp_path)) == code


def test_an_agent_that_is_not_usable_has_its_exit_status(tmp_path):
    file = tmp_path / "agent.pyz"
    file.write_bytes(build_agent_file())
    assert code_of(sys.executable, str(file), VGRADS_CONTACT="nowhere") == MISTOLD


def test_a_step_whose_task_fails_ends_the_others():
    begun_s = time.monotonic()
    script = "[ $SLURM_PROCID = 0 ] && exit 3; exec sleep 30"
    code = code_of(*STEP, "-n", "2", "--kill-on-bad-exit", "sh", "-c", script, SLURM_JOB_ID="1")
    assert code == 128 + 15
    assert time.monotonic() - begun_s < 25


def test_a_labelled_step_does_not_wait_for_its_output():
    lines = "yes >&2; exit 3"
    assert code_of(*STEP, "-n", "1", "--label", "sh", "-c", lines, SLURM_JOB_ID="1") == 3


def test_a_run_goes_on_when_its_terminal_is_closed(tmp_path):
    (tmp_path / "sites.toml").write_text(HERE.format("here", 2))
    task = {"id": "a", "runtime_s": 1, "command": "echo >begun; sleep 2; echo x >out.txt"}
    workflows = [{"name": "w", "tasks": [task | {"outputs": ["out.txt"]}]}]
    document = {"name": "s", "deadline": "5m", "sites": "sites.toml", "workflows": workflows}
    (tmp_path / "set.json").write_text(json.dumps(document))
    reader, writer = open_terminal(80)
    manager = subprocess.Popen(
        [sys.executable, "-m", "vgrads", "run", str(tmp_path / "set.json")],
        cwd=ROOT,
        stdout=writer,
        stderr=writer,
        env={**os.environ, "VGRADS_HOME": str(tmp_path / "home")},
    )
    os.close(writer)
    try:
        until(lambda: list(tmp_path.rglob("begun")), "the task", 60)
        os.close(reader)
        manager.wait(60)
    finally:
        manager.kill()
        manager.wait()
    with closing(sqlite3.connect(tmp_path / "home" / "vgrads.db")) as database:
        assert database.execute("SELECT state FROM run").fetchall() == [("kept",)]


def test_a_bag_is_done_where_nothing_can_be_printed(tmp_path):
    (tmp_path / "sites.toml").write_text(HERE.format("here", 2))
    (tmp_path / "bag.yaml").write_text("name: b\ncommands: ['true']\n")
    words = ["bags", "run", tmp_path / "bag.yaml", "--sites", tmp_path / "sites.toml", "--json"]
    home = tmp_path / "home"
    command = [sys.executable, "-m", "vgrads", *map(str, words)]
    assert code_of(*command, VGRADS_HOME=str(home)) == 4  # its result was not printed
    with closing(sqlite3.connect(home / "vgrads.db")) as database:
        assert database.execute("SELECT state FROM bag").fetchall() == [("done",)]
