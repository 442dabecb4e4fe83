"""Unmodified programs that call Slurm's commands, over this machine."""

import hashlib
import re
from functools import partial

import pytest

from tests import waiting
from tests.slurm.client_programs import Clients, needed
from tests.slurm.installed import installed
from vgrads.api.slurm.records import FIRST_ID

until = partial(waiting.until, seconds=120.0)

pytestmark = pytest.mark.more


@pytest.fixture
def slurm(tmp_path):
    needed()
    with installed(tmp_path) as slurm:
        slurm.wait(slurm.submit("--wrap=true"))
        yield slurm


@pytest.fixture
def clients(slurm):
    return Clients(slurm)


def ends(slurm):
    """The states of all jobs but the first, which has started the service."""
    return slurm.run("sacct", "-X", "-n", "-P", "-r", "vgrads", "-o", "State").splitlines()[1:]


def test_parsl_runs_apps_in_workers_that_its_slurm_provider_starts(slurm, clients):
    result = clients.parsl(4)
    assert result["squares"] == [0, 1, 4, 9]
    assert result["jobs"]
    assert all(int(job) > FIRST_ID for job in result["jobs"])
    assert (slurm.folder / "parsl" / "text").read_text() == "a bash app\n"
    until(lambda: not slurm.left(), slurm.left)
    assert {state.split()[0] for state in ends(slurm)} == {"CANCELLED"}


def check_psij(slurm, result, count):
    states = result["states"]
    assert [states.pop(f"job{n}") for n in range(count)] == ["COMPLETED"] * count
    assert states == {"bad": "FAILED", "long": "CANCELED"}
    assert result["exit_code"] == 3
    assert len({*result["ids"]}) == count + 2
    assert (slurm.folder / "psij" / "job0.out").read_text() == "hello 1\n"
    jobs = result["ids"][:count]
    assert slurm.states(*jobs) == ["COMPLETED"] * count


def test_psij_sees_jobs_complete_fail_and_end_when_it_cancels_them(slurm, clients):
    check_psij(slurm, clients.psij(3), 3)


def test_toil_computes_with_its_slurm_batch_system(slurm, clients):
    assert clients.toil(3) == "5"
    assert ends(slurm) == ["COMPLETED"] * 5


def test_snakemake_runs_a_workflow_with_its_slurm_plugin(slurm, clients):
    assert clients.snakemake(4) == "0\n1\n2\n3\n"
    assert ends(slurm) == ["COMPLETED"] * 5
    assert len(set((slurm.folder / "snakemake" / "jobs").read_text().split())) == 4


def test_aiida_reads_the_replies(slurm, clients):
    result = clients.aiida()
    running = result["running"]
    assert result["states"][-2:] == ["running", "done"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", running.pop("submitted"))
    stated = {"title": "aiida-1", "queue": "vgrads", "machines": 1, "limit_s": 600}
    assert running == {**stated, "owner": slurm.run("id", "-un").strip()}
    code, lines, err = result["accounting"]
    assert (code, err) == (0, "")
    record = dict(zip(lines[0].split("|"), lines[1].split("|"), strict=True))
    assert (record["JobID"], record["State"]) == (result["job"], "COMPLETED")
    assert result["killed"] is True


NEXTFLOW = """\
#!/bin/bash
#SBATCH -J nf-{name}
#SBATCH -o {folder}/.command.log
#SBATCH --no-requeue
#SBATCH --signal B:USR2@30
#SBATCH -c 1
#SBATCH -t 00:05:00
#SBATCH --mem 100M
#SBATCH -p vgrads
NXF_CHDIR={folder}
set -e
set -u
finish() {{ code=$?; printf -- $code > {folder}/.exitcode; exit $code; }}
trap finish EXIT
trap 'kill $child || true; wait $child || true; exit 140' TERM INT USR1 USR2
[[ $NXF_CHDIR ]] && cd "$NXF_CHDIR"
touch {folder}/.command.begin
bash -ue .command.sh >.command.out 2>.command.err &
child=$!
wait $child
cat .command.out .command.err
"""


def nextflow_task(slurm, name, command):
    """Submit a task as Nextflow does; return its folder and the number of its job."""
    folder = slurm.folder / "nf" / hashlib.sha256(name.encode()).hexdigest()[:8]
    folder.mkdir(parents=True)
    (folder / ".command.sh").write_text(command)
    (folder / ".command.run").write_text(NEXTFLOW.format(name=name, folder=folder))
    reply = slurm.run("sbatch", ".command.run", cwd=folder)
    return folder, re.fullmatch(r"Submitted batch job (\d+)\n", reply)[1]


def test_nextflows_calls(slurm):
    """A transcript of what Nextflow's executor calls, and reads."""
    user = slurm.run("id", "-un").strip()

    def states():
        queue = ("squeue", "--noheader", "-o", "%i %t", "-t", "all", "-p", "vgrads", "-u", user)
        lines = [line.split() for line in slurm.run(*queue).splitlines()]
        assert all(len(words) == 2 for words in lines)
        return dict(lines)

    good, done = nextflow_task(slurm, "hello_(1)", "echo hello; echo warned >&2\n")
    bad, failed = nextflow_task(slurm, "fail_(2)", "exit 7\n")
    long, killed = nextflow_task(slurm, "sleep_(3)", "sleep 600\n")
    until(lambda: states().get(killed) == "R" and (long / ".command.begin").exists(), states)
    assert slurm.run("scancel", killed) == ""
    until(lambda: [states()[job] for job in (done, failed, killed)] == ["CD", "F", "CA"], states)
    exits = [(folder / ".exitcode").read_text() for folder in (good, bad, long)]
    assert exits == ["0", "7", "140"]
    assert (good / ".command.out").read_text() == "hello\n"
    assert (good / ".command.err").read_text() == "warned\n"
    assert (good / ".command.log").read_text().split() == ["hello", "warned"]
