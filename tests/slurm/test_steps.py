"""Steps that ``srun`` starts inside jobs: their processes, files and signals."""

import os
import sys

import pytest

from tests.slurm.test_service import begun, start_slurm
from tests.waiting import until
from vgrads.slurm.installation import install


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    yield from start_slurm(tmp_path_factory)


def installed_path(folder):
    """A PATH with the commands: ``srun`` inside jobs."""
    install(folder / "bin", sys.executable, str(folder / "no socket"))
    return f"{folder / 'bin'}:{os.environ['PATH']}"


STEP = """#!/bin/bash
srun -l -n 3 bash -c 'echo $SLURM_PROCID of $SLURM_NTASKS; exit $SLURM_PROCID'
echo "code $?"
srun -n1 --cpu-bind=q -o step-%t.out echo "one step"
"""


def test_srun_starts_the_processes_of_a_step_on_the_node(slurm, tmp_path):
    path = installed_path(tmp_path)
    job = slurm.submit("-n", "2", "-o", "step.out", "s.sh", script=STEP, PATH=path)
    assert slurm.wait(job) == ["COMPLETED"]
    lines = slurm.text("step.out").splitlines()
    assert {"code 2", *(f"{n}: {n} of 3" for n in range(3))} < set(lines)
    assert slurm.text("step-0.out") == "one step\n"


ARRAY = """#!/bin/bash
#SBATCH --array=3-4
#SBATCH -o batch-%A_%a.txt
srun -n 2 --output 'step-%A_%a_%t.txt' echo "$SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID"
srun --output 'step-%4j.%s-%J.txt' bash -c 'echo step $SLURM_STEP_ID'
"""


def test_the_files_of_steps_have_the_numbers_of_array_task_process_and_step(slurm, tmp_path):
    array = slurm.submit("a.sh", script=ARRAY, PATH=installed_path(tmp_path))
    assert slurm.wait(array) == ["COMPLETED"] * 2
    for job, index in ((array, 3), (array + 1, 4)):
        for process in range(2):
            assert slurm.text(f"step-{array}_{index}_{process}.txt") == f"{array} {index}\n"
        assert slurm.text(f"step-{job}.1-{job}.1.txt") == "step 1\n"


def lines(file):
    return file.read_text().splitlines()


TRAPS = """#!/bin/bash
trap 'echo batch' USR1
srun --output 'to-%t' bash -c 'trap "echo step; exit 5" USR1; touch ready; \
while :; do sleep .1; done' &
step=$!
until [ -e go ]; do sleep .1; done
wait $step
echo "code $?"
"""


@pytest.mark.parametrize("flags", [(), ("--full",)], ids=["steps", "full"])
def test_a_signal_reaches_the_steps_and_the_batch_shell_only_on_request(slurm, tmp_path, flags):
    path = installed_path(tmp_path)
    job = slurm.submit("-D", tmp_path, "-o", "out", "t.sh", script=TRAPS, PATH=path)
    until((tmp_path / "ready").exists, "the step")
    begun(slurm, job)
    slurm("scancel", *flags, "-s", "USR1", job)
    until(lambda: "step" in lines(tmp_path / "to-0"), "the signal")
    (tmp_path / "go").touch()
    assert slurm.wait(job) == ["COMPLETED"]
    out = lines(tmp_path / "out")
    assert ("code 5" in out, "batch" in out) == (True, bool(flags))


def test_the_signal_before_the_limit_is_that_of_the_steps_unless_the_batch_shell_is_stated(
    slurm, tmp_path
):
    path = installed_path(tmp_path)
    limit = ("-t", "10", "--signal=USR1@60")
    (tmp_path / "go").touch()
    job = slurm.submit("-D", tmp_path, "-o", "out", *limit, "t.sh", script=TRAPS, PATH=path)
    until((tmp_path / "ready").exists, "the step")
    folder = slurm.home / "slurm" / "jobs" / f"{job // 1000}" / str(job)
    with (folder / "signals-0").open("a") as file:
        file.write("limit 0 60.1\n")  # nine minutes are long for a test
    assert slurm.wait(job) == ["COMPLETED"]
    out = lines(tmp_path / "out")
    assert ("code 5" in out, "batch" in out) == (True, False)
