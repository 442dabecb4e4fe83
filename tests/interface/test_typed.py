"""``mypy --strict`` on programs outside this checkout that import ``vgrads``."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WRONG = """
import vgrads

vgrads.bound("log.swf", procs="many")
count: int = vgrads.plan("set.yaml").promise.probability
vgrads.Bag(commands=["true"]).start()
vgrads.plam("set.yaml")
"""


@pytest.mark.more
def test_a_client_program_is_checked_strictly(tmp_path):
    """The right program passes; each wrong line of the other is refused."""
    shutil.copy(Path(__file__).with_name("client_program.py"), tmp_path)
    (tmp_path / "wrong.py").write_text(WRONG)
    command = [sys.executable, "-P", "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache"]
    done = subprocess.run(
        [*command, "client_program.py", "wrong.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[:2] for line in lines] == [
        ["wrong.py", "4"],
        ["wrong.py", "5"],
        ["wrong.py", "6"],
        ["wrong.py", "7"],
    ], done.stdout + done.stderr
