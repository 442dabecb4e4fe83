"""Where nothing can be written on stderr (a full disk), programs still do what they must."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from vgrads.agent.main import MISTOLD
from vgrads.exchange.agent_file import agent_file

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
    file.write_bytes(agent_file())
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
