"""What `vgrads doctor` says of the programs of a machine, for the sites that need them."""

import os
import subprocess
import sys

import pytest

from vgrads.portal.doctor.checks import Unavailable
from vgrads.portal.doctor.machine import MachineFacts, UsedSite, judge_machine, read_machine

SLURM = frozenset({"sbatch", "squeue", "sacct", "scancel", "sinfo"})
HERE, FAR = UsedSite(name="a", driver="slurm"), UsedSite(name="b", driver="pbs", host="login")


def checks(sites, **different):
    stated = {"programs": frozenset(), "python": (3, 12), "synchronised": True, **different}
    facts = MachineFacts(**stated)
    return {check.name: check for check in judge_machine(facts, sites)}


@pytest.mark.parametrize(
    ("sites", "programs", "wrong"),
    [
        ([], frozenset(), []),
        ([HERE], SLURM, []),
        ([HERE], SLURM - {"sinfo"}, ["slurm commands"]),
        ([HERE, FAR], frozenset(), ["slurm commands", "ssh"]),
        ([FAR], frozenset({"ssh"}), []),
    ],
)
def test_programs_are_missing_where_a_site_needs_them(sites, programs, wrong):
    of_name = checks(sites, programs=programs)
    assert [name for name, check in of_name.items() if check.state == "wrong"] == wrong
    assert all(check.fix for check in of_name.values() if check.state == "wrong")


def test_what_is_missing_is_named_with_its_site():
    check = checks([HERE], programs=SLURM - {"sinfo"})["slurm commands"]
    assert check.message == "site a needs sinfo: not on the PATH"
    assert "access.host" in check.fix


@pytest.mark.parametrize(
    ("facts", "name", "state"),
    [
        ({"python": (3, 8)}, "python of nodes", "ok"),
        ({"python": (3, 7)}, "python of nodes", "doubtful"),
        ({"python": None}, "python of nodes", "doubtful"),
        ({"synchronised": True}, "clock", "ok"),
        ({"synchronised": False}, "clock", "doubtful"),
        ({"synchronised": None}, "clock", "unknown"),
        ({"programs": frozenset({"podman"})}, "containers", "ok"),
        ({"python_is_open": True}, "python of accounts", "ok"),
        ({"python_is_open": None}, "python of accounts", "ok"),
        ({"python_is_open": False}, "python of accounts", "doubtful"),
    ],
)
def test_python_clock_and_containers(facts, name, state):
    check = checks([], **facts)[name]
    assert (check.state, bool(check.fix)) == (state, state == "doubtful")


def test_this_machine_is_read_within_the_limit(monkeypatch, tmp_path):
    program = tmp_path / "sbatch"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = read_machine()
    assert (facts.programs, facts.python, facts.synchronised) == (
        frozenset({"sbatch"}),
        None,
        None,
    )
    assert judge_machine(Unavailable("no result"), [])[0].state == "unknown"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts tasks of other accounts")
def test_whether_accounts_may_run_this_python_is_tried():
    words = ["setpriv", "--reuid=1879048192", "--regid=1879048192", "--clear-groups"]
    words += ["sh", "-c", '"$0" -I -S -c ""', sys.executable]
    tried = subprocess.run(words, cwd="/", capture_output=True, check=False)
    assert read_machine().python_is_open == (tried.returncode == 0)
