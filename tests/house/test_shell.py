"""The prompt for contributors."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT

LINES = """
[name for name in names_shown if name not in globals()]
0 < half < len(events), bool(state.slots), state.now_s > 0
fold(executions, events[: half + 1]) == step(execution, state, events[half])[0]
run.kept == (run.verdict == "kept")
"""


@pytest.mark.more  # plans a set
def test_the_prompt_has_a_plan_and_a_run_half_way():
    names = "names_shown = 'catalog plan run execution events state step fold'.split()\n"
    done = subprocess.run(
        [sys.executable, "-m", "scripts.shell"],
        cwd=ROOT,
        input=names + LINES.lstrip(),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [line.replace(">>> ", "") for line in done.stdout.splitlines()[-5:]]
    shown = [line for line in answers if line.strip()]
    assert shown == ["[]", "(True, True, True)", "True", "True"]
