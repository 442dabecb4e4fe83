"""The key of a slot: no task finds it in the environment of a process above it, and other processes
of the same user cannot look into the agent."""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.dispatch.test_bag_work import ends, run
from vgrads.agent.link import KEY, KEY_DESCRIPTOR, ManagerAddress, hide_key

ABOVE = """
name: looks
command: >-
  pid=$$; while [ "$pid" -gt 1 ]; do tr '\\0' '\\n' </proc/$pid/environ | grep -a ^VGRADS_;
  pid=$(sed -n 's/^PPid:.//p' /proc/$pid/status); done; echo end
"""
LOOKS_INTO = """
import ctypes, os, sys
from vgrads.agent.processes import conceal

def begin():
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as after execve(2)

def can_read(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return bool(file.read(1)) or name != "environ"
    except OSError:
        return False

begin()
ready, go = os.pipe(), os.pipe()
pid = os.fork()
if not pid:
    os.write(ready[1], b"1")
    os.read(go[0], 1)
    conceal()
    os.write(ready[1], b"2")
    os.read(go[0], 1)
    os._exit(0)
os.read(ready[0], 1)
before = can_read(pid, "environ")
os.write(go[1], b"1")
os.read(ready[0], 1)
print(before, can_read(pid, "environ"), can_read(pid, "maps"))
os.write(go[1], b"2")
os.waitpid(pid, 0)
"""


def test_no_process_above_a_task_shows_the_key(vgrads, write):
    status, bag = run(vgrads, write("bag.yaml", ABOVE))
    assert status == 0
    (end,) = ends(vgrads, bag["id"])
    names = {line.partition("=")[0] for line in end["out"].splitlines()}
    assert KEY_DESCRIPTOR in names and "end" in names  # it has seen the agent
    assert KEY not in names


def test_other_processes_of_its_user_cannot_look_into_an_agent():
    done = subprocess.run(
        [sys.executable, "-c", LOOKS_INTO], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.stdout.startswith("False"):
        pytest.skip("this system shows no process to another one of its user")
    assert done.stdout.split() == ["True", "False", "False"], done.stderr


def test_a_key_is_read_once():
    environment = {KEY: "of-the-slot", "VGRADS_CONTACT": "tls://127.0.0.1:1"}
    hide_key(environment)
    descriptor = int(environment[KEY_DESCRIPTOR])
    again = os.dup(descriptor)
    assert KEY not in environment
    assert ManagerAddress.from_environment(environment).key == "of-the-slot"
    with pytest.raises(ValueError, match="read before"):
        ManagerAddress.from_environment({**environment, KEY_DESCRIPTOR: str(again)})


def test_an_agent_without_a_key_says_so(tmp_path):
    settings = tmp_path / "manager.json"
    settings.write_text(json.dumps({"VGRADS_CONTACT": "tls://127.0.0.1:1"}))
    done = subprocess.run(
        [sys.executable, "-m", "vgrads.agent.main", settings],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 78
    assert KEY in done.stderr and "Traceback" not in done.stderr
    assert not settings.exists()  # it may hold a key
