"""Ctrl-C ends a program and its calls, wherever it waits for them."""

import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.portal.serving import serve_this_machine
from tests.waiting import runs, until

BEGINS = """
import os, pathlib, time, vgrads
folder = pathlib.Path({folder!r})
def slow(number=0):
    (folder / "process").write_text(str(os.getpid()))
    while not (folder / "go").exists():
        time.sleep(.05)
    (folder / "done").touch()
executor = vgrads.Executor(1, sites={sites!r}, name={name!r})
"""
WAITS = {
    "in its block": "with executor: executor.submit(slow).result()",
    "in map": "with executor: list(executor.map(slow, range(9)))",
    "for a dependent call": "with executor: executor.submit(abs, executor.submit(slow)).result()",
    "without a block": "executor.submit(slow).result()",
    "as its block ends": "with executor: executor.submit(slow)",
    "at its end": "executor.submit(slow)",
}


def interrupted(folder, home, text, sites, name=""):
    """Interrupt a program while a call of it runs; return its exit code, errors and the call's
    process."""
    folder.mkdir()
    begins = BEGINS.format(folder=str(folder), sites=sites, name=name)
    program = subprocess.Popen(
        [sys.executable, "-c", begins + text],
        env={**os.environ, "VGRADS_HOME": str(home), "PYTHONPATH": f"{ROOT}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    process = folder / "process"
    until(lambda: process.exists() and process.read_text(), "the call has begun", 60)
    program.send_signal(signal.SIGINT)
    _, err = program.communicate(timeout=60)  # without its end, the call runs for ever
    return program.returncode, err, int(process.read_text())


@pytest.mark.more
@pytest.mark.parametrize("text", WAITS.values(), ids=WAITS)
def test_the_calls_of_this_machine_end(tmp_path, home, text):
    code, err, process = interrupted(tmp_path / "calls", home, text, "local")
    if text != WAITS["at its end"]:
        assert (code, err.splitlines()[-1]) == (-signal.SIGINT, "KeyboardInterrupt")
    assert err.count("Traceback") == err.count("KeyboardInterrupt") <= 1
    until(lambda: not runs(process), "the end of the call's process")
    assert not list((home / "executor-runs").iterdir())


@pytest.mark.more
@pytest.mark.parametrize("text", [WAITS["in its block"], WAITS["without a block"]])
def test_a_service_goes_on_with_the_calls_of_an_executor_with_a_name(tmp_path, home, text):
    served = serve_this_machine(tmp_path / "service")
    try:
        folder = tmp_path / "unnamed"
        code, err, process = interrupted(folder, home, text, served.url)
        assert (code, err.splitlines()[-1]) == (-signal.SIGINT, "KeyboardInterrupt")
        until(lambda: not runs(process), "the end of the call's process")
        folder = tmp_path / "calls"
        code, err, process = interrupted(folder, home, text, served.url, "study")
        assert (code, err.splitlines()[-1]) == (-signal.SIGINT, "KeyboardInterrupt")
        assert runs(process)
        (folder / "go").touch()
        until((folder / "done").exists, "the end of the call")
    finally:
        served.leave()
