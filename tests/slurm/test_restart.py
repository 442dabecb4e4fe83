"""Jobs outlive their service, however it ends."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.slurm.installed import installed
from tests.slurm.test_service import Slurm
from tests.waiting import until
from vgrads.kernel.errors import INTERNAL_ERROR
from vgrads.slurm.program import CommandFailure, ask


def test_a_journal_that_a_crash_has_cut_off_is_read(tmp_path):
    slurm = Slurm(tmp_path)
    first = slurm.submit("-H", "--wrap=true")
    slurm.service.stop()
    with (tmp_path / "slurm" / "journal").open("a") as file:
        file.write('{"submitted": {"id": 20')
    slurm.begin()
    assert slurm.submit("-H", "--wrap=true") == first + 1
    slurm.end()


@pytest.mark.more
def test_the_commands_start_the_service_and_survive_its_death(tmp_path):
    with installed(tmp_path) as slurm:
        task = "until test -e go; do sleep .1; done; echo x>>out"
        array = slurm.submit("--array=0-5%2", f"--wrap={task}")
        after = slurm.submit("-d", f"afterok:{array}", "--wrap=echo after")
        rows = json.loads(slurm.run(*slurm.vgrads, "status", "--json"))["jobs"]
        assert {row["job"].partition("_")[0] for row in rows} == {array, after}
        until(lambda: "R" in slurm.run("squeue", "-h", "-o", "%t"), "a task runs", 60)
        slurm.kill(signal.SIGKILL)
        (slurm.work / "go").touch()
        other = slurm.submit("--wrap=true")
        assert int(other) == int(after) + 1
        assert slurm.wait(array, after, other) == ["COMPLETED"] * 8
        assert (slurm.work / "out").read_text() == "x\n" * 6
        assert (slurm.work / f"slurm-{after}.out").read_text() == "after\n"
        assert "runs there already" in slurm.attempt(*slurm.vgrads, "up").stderr
        slurm.kill(signal.SIGINT)
        assert not slurm.socket.exists()


@pytest.mark.more
def test_the_service_starts_from_any_folder_and_with_any_home(tmp_path):
    with installed(tmp_path) as slurm:
        (slurm.work / "json.py").write_text("raise SystemExit('not the standard library')\n")
        others = {"VGRADS_HOME": str(tmp_path / "other"), "HOME": str(tmp_path)}
        job = slurm.submit("--wrap=true", env={**slurm.environment, **others})
        assert slurm.wait(job) == ["COMPLETED"]
        assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "line", [b"\xff" * 1_000_000, b'{"jobs": ["' + b"x" * 1_000_000 + b'"]}', b'{"sumbitted": {}}']
)
def test_a_damaged_line_of_the_journal_is_named_and_can_be_removed(tmp_path, line):
    slurm = Slurm(tmp_path)
    first = slurm.submit("-H", "--wrap=true")
    slurm.service.stop()
    journal = tmp_path / "slurm" / "journal"
    before = journal.read_bytes()
    journal.write_bytes(before + line + b"\n")
    words = [sys.executable, "-m", "vgrads", "slurm"]
    environment = {**os.environ, "VGRADS_HOME": str(tmp_path)}
    for command in ("status", "up"):
        refused = subprocess.run(
            [*words, command], env=environment, capture_output=True, text=True, check=False
        )
        number = before.count(b"\n") + 1
        assert refused.returncode == 2 and len(refused.stderr) < 1000
        assert f"{journal}: line {number}, from byte {len(before)} on" in refused.stderr
    assert journal.read_bytes() == before + line + b"\n"
    subprocess.run(["sed", "-i", f"{number}d", journal], check=True)  # as the message says
    slurm.begin()
    assert slurm.states(first)[str(first)][0] == "PENDING"
    slurm.end()


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


def environments(folder):
    return [path.read_text() for path in folder.glob("h/slurm/jobs/*/*/job.json")]


@pytest.mark.more
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_no_environment_stays_after_the_end_of_a_service(tmp_path, end):
    """Its jobs end before it, or after it."""
    with installed(tmp_path, environment={"SECRET": "xyzzy"}) as slurm:
        over = slurm.submit("--wrap=true")
        assert slurm.wait(over) == ["COMPLETED"]
        task = "echo $SECRET >>begun; until test -e go; do sleep .1; done"
        array = slurm.submit("--array=0-1", f"--wrap={task}")
        until(lambda: lines_of(slurm.work / "begun") == ["xyzzy"] * 2, "they run", 60)
        slurm.kill(end)
        left = environments(tmp_path)
        assert len(left) == (1 if end == signal.SIGTERM else 2)
        (slurm.work / "go").touch()
        until(lambda: len(environments(tmp_path)) < len(left), "the jobs end", 60)
        slurm.run(*slurm.vgrads, "status")
        assert environments(tmp_path) == []
        assert slurm.wait(over, array) == ["COMPLETED"] * 3


HANGS = """
import sys, threading
from pathlib import Path
from vgrads.api.bags.in_process import LocalChannel
from vgrads.vgrid.catalog import describe_this_machine
from vgrads.dispatch.core.protocol import Rules
from vgrads.portal.web.slurm.serving import SlurmServing, serve_slurm

def hang(*_):
    threading.Event().wait()

folder, rules = Path(sys.argv[1]), Rules(stuck_s=0.5)
if sys.argv[2] == "service":
    how = SlurmServing(idle_s=60.0, keep_s=60.0, rules=rules)
    serve_slurm(folder, describe_this_machine(1), how, hang)
channel = LocalChannel(describe_this_machine(1), folder, "d", rules=rules, watched=True)
channel.start()
channel.call(hang)
hang()
"""


@pytest.mark.parametrize("what", ["service", "dispatcher"])
def test_a_service_that_hangs_is_ended_with_what_it_did(tmp_path, what):
    words = [sys.executable, "-c", HANGS, tmp_path / "s", what]
    hung = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert hung.returncode == INTERNAL_ERROR, hung.stderr
    assert "made no progress" in hung.stderr and "in hang" in hung.stderr


@pytest.mark.more
def test_a_service_in_the_background_has_a_log(tmp_path):
    with installed(tmp_path) as slurm:
        slurm.run("squeue")
        with pytest.raises(CommandFailure, match="KeyError"):
            ask(str(slurm.socket), "squeue", {})
        log = tmp_path / "h" / "slurm" / "log"
        assert "a request for squeue\nTraceback" in log.read_text()
        assert log.stat().st_mode & 0o777 == 0o600
        again = slurm.attempt(*slurm.vgrads, "up", "--background")
        assert again.returncode == 2 and "runs there already" in again.stderr
        with log.open("a") as file:
            file.write("x" * 11_000_000)
        until(lambda: log.stat().st_size < 1_000_000, "the log is shortened")
        assert "a request for squeue" in log.with_name("log.1").read_text()


NO_SITE = """
[[site]]
name = "cluster"
kind = "batch"
driver = "pbs"
procs = 8
cores_per_node = 4
queue = [{name = "none", max_procs = 8, max_walltime = "1h", max_jobs = 4}]
"""


@pytest.mark.more
def test_a_service_whose_sites_cannot_be_reached_ends_with_the_reason(tmp_path):
    (tmp_path / "sites.toml").write_text(NO_SITE)
    with installed(tmp_path, sites=tmp_path / "sites.toml") as slurm:
        job = slurm.submit("--wrap=true")
        until(lambda: not slurm.pid(), "the service ends", 90)
        status = slurm.run(*slurm.vgrads, "status")
        assert "no job could run: cluster:" in status
        assert slurm.states(job) == ["PENDING"]
        slurm.run("scancel", job)
        assert slurm.wait(job)[0].startswith("CANCELLED")


@pytest.mark.more
def test_a_service_serves_an_address_for_those_who_have_the_token(tmp_path):
    with installed(tmp_path) as slurm:
        words = (*slurm.vgrads, "up", "--listen", "127.0.0.1:0")
        serving = subprocess.Popen(words, env=slurm.environment, stderr=subprocess.PIPE, text=True)
        url = serving.stderr.readline().split()[-1]
        there, token = tmp_path / "there", tmp_path / "h" / "slurm" / "token"
        install = (*slurm.vgrads, "install", there, "--address", url, "--token-file")
        slurm.run(*install, token)
        job = slurm.run(there / "sbatch", "--parsable", "--wrap=true").strip()
        assert slurm.wait(job) == ["COMPLETED"]
        token.chmod(0o644)
        assert "chmod 600" in slurm.attempt(there / "squeue").stderr
        wrong = tmp_path / "wrong"
        wrong.write_text("guess")
        wrong.chmod(0o600)
        slurm.run(*install, wrong)
        assert "refused the token" in slurm.attempt(there / "squeue").stderr
        slurm.kill(signal.SIGINT)
        serving.wait()
        serving.stderr.close()
