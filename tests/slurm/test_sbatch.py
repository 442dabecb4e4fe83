"""Submissions: options and their sources, what is ignored and refused; the environment of tasks."""

import re

import pytest

from tests.slurm.jobs import NOW_S, job
from vgrads.slurm.environment import (
    ArrayShape,
    Export,
    TaskPlace,
    exported,
    parse_export,
    task_environment,
)
from vgrads.slurm.errors import Reply, SlurmError
from vgrads.slurm.job import JobState
from vgrads.slurm.sbatch import (
    SubmissionContext,
    batch_submission,
    expected_start,
    parse_arguments,
    submission_error,
    submitted,
)
from vgrads.slurm.srun import parse_srun
from vgrads.slurm.text.options import OPTIONAL, REQUIRED
from vgrads.slurm.text.sbatch_options import ALIASES, IGNORED, OPTIONS, REFUSED, VARIABLES
from vgrads.slurm.times import format_instant

CONTEXT = SubmissionContext("/home/ann", NOW_S)


def submission(*arguments, script="#!/bin/sh\n", environment=None):
    parsed = parse_arguments(arguments, environment)
    return batch_submission(parsed, script, environment or {}, CONTEXT)


def refused(*arguments, **more):
    with pytest.raises(SlurmError) as caught:
        submission(*arguments, **more)
    return caught.value.reply


def test_a_wrapped_command():
    request = submission("--wrap=sleep 2")
    assert request.script == "#!/bin/sh\n# This script was created by sbatch --wrap.\n\nsleep 2\n"
    assert (request.name, request.command, request.folder) == ("wrap", "", "/home/ann")
    assert (request.tasks, request.cpus_per_task, request.nodes) == (1, 1, 1)
    assert request.memory_mib is request.limit_s is request.requeue is request.array is None


def test_a_script_with_arguments():
    parsed = parse_arguments(["-n2", "run.sh", "-n", "3", "two words"])
    assert (parsed.script, parsed.script_arguments) == ("run.sh", ("-n", "3", "two words"))
    request = batch_submission(parsed, "#!/bin/sh\n", {}, CONTEXT)
    assert (request.tasks, request.name) == (2, "run.sh")
    assert request.command == "/home/ann/run.sh -n 3 two words"


def test_a_script_from_standard_input():
    assert parse_arguments(["-H"]).script == "-"
    assert submission("-H").name == "sbatch"


def test_the_command_line_is_stronger_than_the_environment_than_the_script():
    script = "#!/bin/sh\n#SBATCH -J script -p script -t 1 --mem=5\n"
    environment = {
        "SBATCH_PARTITION": "environment",
        "SBATCH_TIMELIMIT": "2",
        "SBATCH_MEM_PER_CPU": "7",
        "SLURM_JOB_NAME": "outer",
    }
    request = submission("-t", "3", "x.sh", script=script, environment=environment)
    assert (request.name, request.partition, request.limit_s) == ("script", "environment", 180.0)
    assert (request.memory_mib, request.memory_per_cpu_mib) == (7, 7)


def test_of_two_contradicting_options_the_last_counts():
    assert submission("--requeue", "--no-requeue", "--wrap=x").requeue is False
    assert submission("--no-requeue", "--requeue", "--wrap=x").requeue is True
    script = "#!/bin/sh\n#SBATCH --no-requeue\n"
    assert submission("--requeue", "x.sh", script=script).requeue is True
    assert submission("x.sh", script=script).requeue is False


def test_the_options_of_nextflow():
    script = """\
#!/bin/bash
#SBATCH -J nf-sort_(1)
#SBATCH -o /work/ab/cd/.command.log
#SBATCH --no-requeue
#SBATCH --signal B:USR2@30
#SBATCH -c 2
#SBATCH -t 01:30:00
#SBATCH --mem 2048M
#SBATCH -p vgrads
#SBATCH --array 0-3
NXF_CHDIR=/work/ab/cd
#SBATCH -c 9
"""
    request = submission(".command.run", script=script)
    assert (request.cpus_per_task, request.limit_s, request.memory_mib) == (2, 5400.0, 2048)
    assert (request.requeue, request.partition) == (False, "vgrads")
    assert request.stdout == "/work/ab/cd/.command.log"
    assert request.array.indices == (0, 1, 2, 3)
    assert (request.signal.number, request.signal.before_s, request.signal.batch_shell) == (
        12,
        30,
        True,
    )


def test_the_options_of_aiida():
    script = """\
#!/bin/bash
#SBATCH --no-requeue
#SBATCH --mail-user=a@b
#SBATCH --job-name="aiida-5"
#SBATCH --get-user-env
#SBATCH --output=_scheduler-stdout.txt
#SBATCH --error=_scheduler-stderr.txt
#SBATCH --nice=100
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=2
#SBATCH --time=00:30:00
#SBATCH --mem=97
"""
    request = submission("_aiidasubmit.sh", script=script)
    assert (request.name, request.tasks, request.cpus_per_task) == ("aiida-5", 4, 2)
    assert (request.memory_mib, request.limit_s) == (97, 1800.0)


def test_memory_of_processors_is_that_of_the_job():
    assert submission("-n2", "-c3", "--mem-per-cpu=10", "--wrap=x").memory_mib == 60
    assert submission("--mem=0", "--wrap=x").memory_mib == 0


UNAVAILABLE = [
    ["--gres=gpu:1000000"],
    ["--gres=gpu:0,lustre:1"],
    ["--gpus=2"],
    ["-G", "a100:3"],
    ["--gpus-per-node=1"],
    ["--gpus-per-task=2", "-n2"],
    ["--cpus-per-gpu=2"],
    ["--mem-per-gpu=1G"],
    ["-C", "nonexistent"],
]


@pytest.mark.parametrize("words", UNAVAILABLE, ids=" ".join)
@pytest.mark.parametrize("place", ["argument", "script", "step"])
def test_what_no_node_has_is_refused_as_by_slurm(words, place):
    with pytest.raises(SlurmError) as refused:
        if place == "argument":
            submission(*words, "--wrap=x")
        elif place == "script":
            submission("job.sh", script=f"#!/bin/sh\n#SBATCH {' '.join(words)}\n")
        else:
            parse_srun([*words, "true"], {"SLURM_JOB_ID": "7"})
    first, second = refused.value.what.splitlines()
    name = re.match(r"\w+: error: --([\w-]+)=", first)[1]
    assert f"VGRADS_SLURM_IGNORE={name}" in first
    program, failed = ("sbatch", "Batch job submission failed")
    if place == "step":
        program, failed = ("srun", "Unable to create step for job 7")
    why = "Invalid generic resource (gres) specification"
    if name == "constraint":
        why = f"{failed}: Invalid feature specification"
    assert second == f"{program}: error: {why}"
    ignored = {"VGRADS_SLURM_IGNORE": name}
    assert submission(*words, "--wrap=x", environment=ignored).name == "wrap"


@pytest.mark.parametrize("words", [["--gres=none"], ["--gpus=0"], ["--gres=gpu:a100:0,x=0"]])
def test_nothing_of_what_no_node_has_is_available(words):
    assert submission(*words, "--wrap=x").name == "wrap"


def test_limits_and_instants():
    request = submission("-t", "UNLIMITED", "--deadline=now+2hours", "--begin=now+60", "--wrap=x")
    assert (request.unlimited, request.limit_s) == (True, None)
    assert (request.deadline_s, request.begin_s) == (NOW_S + 7200, NOW_S + 60)
    assert not submission("--wrap=x").unlimited


def test_the_folder_is_relative_to_that_of_the_submission():
    assert submission("-D", "a/../b", "--wrap=x").folder == "/home/ann/b"
    assert submission("--chdir=/data", "--wrap=x").folder == "/data"


def test_shortened_and_joined_options():
    request = submission("--job=a", "-HQ", "-n4", "--ntasks-per-n", "2", "--wrap", "x")
    assert (request.name, request.hold, request.quiet, request.tasks) == ("a", True, True, 4)


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_options_without_a_meaning_are_ignored(name):
    option = next(option for option in OPTIONS if option.long == name)
    words = [f"--{name}=1"] if option.argument in (REQUIRED, OPTIONAL) else [f"--{name}"]
    assert submission(*words, "--wrap=x") == submission("--wrap=x")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_options_that_change_what_a_job_gets_are_refused(name):
    reply = refused(f"--{name}=1", "--wrap=x")
    assert reply.code == 1 and reply.out == ""
    assert f"sbatch: error: --{name}: {REFUSED[name]}." in reply.err
    assert f"VGRADS_SLURM_IGNORE={name} " in reply.err
    ignored = {"VGRADS_SLURM_IGNORE": f"other,{name}"}
    assert submission(f"--{name}=1", "--wrap=x", environment=ignored).name == "wrap"


def test_several_nodes_are_refused():
    assert "MPI over several nodes is not supported" in refused("-N", "2", "--wrap=x").err
    assert submission("-N", "1-4", "--wrap=x").nodes == 1
    ignored = {"VGRADS_SLURM_IGNORE": "nodes"}
    assert submission("-N", "2", "--wrap=x", environment=ignored).nodes == 1


def test_unknown_options_are_named_and_can_be_ignored():
    reply = refused("--foo=3", "--wrap=x")
    assert reply.err == (
        "sbatch: unrecognized option '--foo=3'\nTry \"sbatch --help\" for more information\n"
    )
    assert reply.code == 1
    for words, names in ((["--foo=3"], "foo"), (["--foo", "3"], "foo="), (["-Z", "3"], "Z=")):
        environment = {"VGRADS_SLURM_IGNORE": names}
        assert submission(*words, "-n2", "--wrap=x", environment=environment).tasks == 2


def test_known_options_can_be_ignored_wherever_they_stand():
    environment = {"VGRADS_SLURM_IGNORE": "time,mem", "SBATCH_TIMELIMIT": "bad"}
    script = "#!/bin/sh\n#SBATCH --mem=bad -n 2\n"
    request = submission("-t", "bad", "x.sh", script=script, environment=environment)
    assert (request.limit_s, request.memory_mib, request.tasks) == (None, None, 2)


def test_heterogeneous_jobs_are_refused():
    words = "sbatch: error: heterogeneous jobs are not supported\n"
    assert refused(":", "x.sh").err == words
    assert refused("x.sh", script="#!/bin/sh\n#SBATCH hetjob\n").err == words


def test_the_table_of_options_is_consistent():
    names = {option.long for option in OPTIONS}
    assert IGNORED | REFUSED.keys() | set(ALIASES.values()) | set(VARIABLES.values()) <= names
    assert not IGNORED & REFUSED.keys()
    letters = [option.short for option in OPTIONS if option.short]
    assert len(letters) == len(set(letters))


def test_replies_to_a_submission():
    plain, parsable = submission("--wrap=x"), submission("--parsable", "--wrap=x")
    assert submitted(plain, 12).out == "Submitted batch job 12\n"
    assert submitted(parsable, 12).out == "12\n"
    assert submitted(parsable, 12, "toy").out == "12;toy\n"
    assert submitted(submission("-Q", "--wrap=x"), 12).out == ""


def test_the_reply_to_test_only():
    request = submission("--test-only", "-n4", "-p", "vgrads", "--wrap=x")
    start = format_instant(NOW_S)
    words = (
        f"sbatch: Job 7 to start at {start} using 4 processors on nodes n1 in partition vgrads\n"
    )
    assert expected_start(request, 7, NOW_S, "n1") == Reply("", words)
    later = expected_start(request, 7, NOW_S, "n1", NOW_S + 60).err
    assert (
        later == f"{words}sbatch: in 95 of 100 cases not later than {format_instant(NOW_S + 60)}\n"
    )


def test_a_submission_that_the_service_refuses():
    error = submission_error(
        "Invalid partition name specified", "invalid partition specified: nope"
    )
    assert error.reply.err == (
        "sbatch: error: invalid partition specified: nope\n"
        "sbatch: error: Batch job submission failed: Invalid partition name specified\n"
    )


def test_version_and_help_submit_nothing():
    assert parse_arguments(["--version"]).reply.out == "slurm-wlm 22.05.8\n"
    assert "--dependency" in parse_arguments(["--help"]).reply.out


SUBMITTED = {
    "PATH": "/bin",
    "HOME": "/home/ann",
    "A": "1",
    "B": "2",
    "SLURM_JOB_ID": "7",
    "SBATCH_PARTITION": "x",
    "SLURMD_NODENAME": "outer",
    "PMI_RANK": "3",
}


def test_what_is_exported():
    every = {"PATH": "/bin", "HOME": "/home/ann", "A": "1", "B": "2"}
    assert exported(SUBMITTED, Export()) == every
    assert exported(SUBMITTED, parse_export("ALL,A=5,C=x=y")) == every | {"A": "5", "C": "x=y"}
    base = {"PATH": "/bin", "HOME": "/home/ann"}
    assert exported(SUBMITTED, parse_export("NONE")) == base
    assert exported(SUBMITTED, parse_export("NIL")) == base
    assert exported(SUBMITTED, parse_export("B,C=3,GONE")) == base | {"B": "2", "C": "3"}
    quoted = parse_export("A='1,2',B=\"x y\"")
    assert quoted.values == (("A", "1,2"), ("B", "x y"))


def test_the_environment_of_a_task():
    started = job(41, JobState.RUNNING, array_id=40, array_index=3, tasks=2, cpus_per_task=4)
    place = TaskPlace(
        submit_host="login",
        submit_folder="/home/ann",
        tmpdir="/scratch/41",
        process=1,
        array=ArrayShape(5, 1, 9, 2),
    )
    result = task_environment(started, SUBMITTED, Export(), place)
    expected = {
        "A": "1",
        "SLURM_JOB_ID": "41",
        "SLURM_JOBID": "41",
        "SLURM_JOB_NAME": "work",
        "SLURM_SUBMIT_DIR": "/home/ann",
        "SLURM_SUBMIT_HOST": "login",
        "SLURM_CPUS_PER_TASK": "4",
        "SLURM_NTASKS": "2",
        "SLURM_NPROCS": "2",
        "SLURM_CPUS_ON_NODE": "8",
        "SLURM_JOB_CPUS_PER_NODE": "8",
        "SLURM_MEM_PER_NODE": "100",
        "SLURM_JOB_NODELIST": "n1",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NNODES": "1",
        "SLURM_JOB_USER": "ann",
        "SLURM_JOB_UID": "1000",
        "SLURM_JOB_PARTITION": "vgrads",
        "SLURM_ARRAY_JOB_ID": "40",
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_ARRAY_TASK_COUNT": "5",
        "SLURM_ARRAY_TASK_MIN": "1",
        "SLURM_ARRAY_TASK_MAX": "9",
        "SLURM_ARRAY_TASK_STEP": "2",
        "SLURM_PROCID": "1",
        "SLURM_LOCALID": "1",
        "SLURM_NODEID": "0",
        "SLURM_TASKS_PER_NODE": "2",
        "SLURM_JOB_START_TIME": str(int(NOW_S - 60)),
        "SLURM_JOB_END_TIME": str(int(NOW_S + 540)),
        "SLURM_TMPDIR": "/scratch/41",
        "TMPDIR": "/scratch/41",
    }
    assert expected.items() <= result.items()
    assert "PMI_RANK" not in result and "SBATCH_PARTITION" not in result
    assert result["SLURMD_NODENAME"] == "n1"
    assert "SLURM_RESTART_COUNT" not in result


def test_a_restarted_job_has_its_count():
    started = job(41, JobState.RUNNING, restarts=2)
    assert task_environment(started, {}, Export(), TaskPlace())["SLURM_RESTART_COUNT"] == "2"


INSIDE = {"SLURM_JOB_ID": "41", "SLURM_NTASKS": "2"}


def test_srun_inside_a_job():
    request = parse_srun(["-n1", "--cpu-bind=q", "python", "-n", "3"], INSIDE)
    assert (request.job, request.tasks, request.command) == (41, 1, ("python", "-n", "3"))
    request = parse_srun(["-l", "-o", "out.%t", "-K", "-u", "--mpi=pmi2", "a"], INSIDE)
    assert (request.tasks, request.label, request.stdout) == (2, True, "out.%t")
    assert (request.kill_on_bad_exit, request.unbuffered, request.mpi) == (True, True, "pmi2")
    assert parse_srun(["-N1", "--ntasks", "4", "--exclusive", "a"], INSIDE).tasks == 4


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        (["-n1", "true"], {}, "srun: error: vgrads runs srun only inside a job"),
        ([], INSIDE, "srun: fatal: No command given to execute."),
        (["-N2", "a"], INSIDE, "srun: error: --nodes=2: each job runs on one node"),
        (["-n", "x", "a"], INSIDE, 'srun: error: Invalid numeric value "x" for --ntasks.'),
        (["--multi-prog", "a"], INSIDE, "srun: error: --multi-prog: several programs"),
        (["--foo", "a"], INSIDE, "srun: unrecognized option '--foo'"),
    ],
)
def test_what_srun_refuses(words, environment, message):
    with pytest.raises(SlurmError) as caught:
        parse_srun(words, environment)
    assert caught.value.reply.err.startswith(message)
    assert caught.value.exit_code == 1
