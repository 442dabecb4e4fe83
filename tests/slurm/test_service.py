"""Jobs that Slurm's commands submit, from the submission to the end, on this machine."""

import itertools
import json
import os
import sys
import time

import pytest

from tests.waiting import until
from vgrads.api.slurm.records import FIRST_ID
from vgrads.api.slurm.service import SlurmService
from vgrads.portal.charts.gantt import render_html
from vgrads.vgrid.catalog import describe_this_machine

REQUESTS = map(str, itertools.count())


class Slurm:
    """Slurm's commands, as their program sends them."""

    def __init__(self, home):
        self.home, self.folder = home, home / "work"
        self.folder.mkdir(parents=True)
        self.later_s = 0.0
        self.begin()

    def begin(self):
        self.service = SlurmService(self.home / "slurm", describe_this_machine(2), self.now_s)
        self.service.start()

    def now_s(self):
        return time.time() + self.later_s

    def end(self):
        self("scancel", "-t", "PD,R", "--me")
        until(lambda: not self.left(), self.left, 60)
        self.service.stop()

    def left(self):
        return self("squeue", "-h", "-o", "%A %t")

    def ask(
        self, command, *arguments, script=None, request="", umask=0o022, pads=False, **environment
    ):
        body = {
            "arguments": [str(word) for word in arguments],
            "folder": str(self.folder),
            "umask": umask,
            "environment": {"PATH": os.environ["PATH"], **environment},
            "script": None,
            "request": request or next(REQUESTS),
            "host": "front",
            "pads": pads,
        }
        answer = self.service.answer(command, body)
        if "need" in answer:
            answer = self.service.answer(command, {**body, "script": script})
        return answer

    def __call__(self, command, *arguments, **more):
        answer = self.ask(command, *arguments, **more)
        assert (answer["code"], answer["err"]) == (0, "")
        return answer["out"]

    def submit(self, *arguments, **more):
        return int(self("sbatch", "--parsable", *arguments, **more))

    def states(self, *numbers):
        fields = ("sacct", "-X", "-n", "-P", "-o", "JobID,State,ExitCode")
        lines = self(*fields, "-j", ",".join(map(str, numbers))).splitlines()
        rows = [line.split("|") for line in lines]
        return {name: (state.split()[0], code) for name, state, code in rows}

    def wait(self, *numbers):
        def over():
            return not ({"PENDING", "RUNNING"} & {s for s, _ in self.states(*numbers).values()})

        until(over, lambda: str(self.states(*numbers)), 60)
        return [state for state, _ in self.states(*numbers).values()]

    def text(self, name):
        return (self.folder / name).read_text()


def start_slurm(folders):
    """Yield Slurm's commands after their first job; then end what is left."""
    started = Slurm(folders.mktemp("slurm"))
    started.wait(started.submit("--wrap=true"))
    yield started
    started.end()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    yield from start_slurm(tmp_path_factory)


def test_a_job_has_the_folder_the_umask_and_the_environment_of_its_submission(slurm):
    script = '#!/bin/bash\n#SBATCH -J "a b"\npwd; umask; echo "$SECRET_TOKEN $1"; env >env\n'
    more = {"SECRET_TOKEN": "mine", "SLURM_OUTER": "x", "SBATCH_QOS": "q"}
    job = slurm.submit("-o", "%x-%j.out", "job.sh", "word", script=script, umask=0o077, **more)
    assert job >= FIRST_ID
    assert slurm.wait(job) == ["COMPLETED"]
    assert slurm.text(f"a b-{job}.out") == f"{slurm.folder}\n0077\nmine word\n"
    lines = slurm.text("env").splitlines()
    variables = dict(line.partition("=")[::2] for line in lines)
    assert variables["SLURM_JOB_ID"] == str(job)
    assert variables["SLURM_SUBMIT_HOST"] == "front"
    assert not {"SLURM_OUTER", "SBATCH_QOS", "HOME", "VGRADS_TASK"} & set(variables)
    assert oct((slurm.folder / "env").stat().st_mode)[-3:] == "600"


def test_only_the_file_of_a_submission_has_its_environment(slurm):
    job = slurm.submit("-H", "--wrap=true", MY_VALUE="never stored elsewhere")
    with_value = [
        path
        for path in slurm.home.rglob("*")
        if path.is_file() and b"never stored elsewhere" in path.read_bytes()
    ]
    assert [path.name for path in with_value] == ["job.json"]
    assert with_value[0].stat().st_mode & 0o777 == 0o600
    slurm("scancel", job)


def test_jobs_wait_for_those_that_they_depend_on(slurm):
    bad = slurm.submit("--wrap=sleep .3; exit 3")
    never = slurm.submit("-d", f"afterok:{bad}", "--wrap=true")
    killed = slurm.submit("-d", f"afterok:{bad}", "--kill-on-invalid-dep=yes", "--wrap=true")
    others = [
        slurm.submit("-d", f"{kind}:{bad}", f"--wrap=echo {kind}")
        for kind in ("afterany", "afternotok")
    ]
    last = slurm.submit("-d", f"afterok:{others[0]}:{others[1]}", "--wrap=true")
    assert "Dependency" in slurm("squeue", "-h", "-j", last, "-o", "%r")
    assert slurm.wait(bad, killed, *others, last) == [
        *("FAILED", "CANCELLED", "COMPLETED", "COMPLETED", "COMPLETED")
    ]
    assert slurm("squeue", "-h", "-j", never, "-o", "%t %r") == "PD DependencyNeverSatisfied\n"
    assert slurm.states(bad)[str(bad)] == ("FAILED", "3:0")
    slurm("scancel", never)
    assert slurm.wait(never) == ["CANCELLED"]


def test_an_array_runs_no_more_tasks_at_once_than_it_says(slurm):
    script = (
        "#!/bin/bash\nmkdir run-$SLURM_ARRAY_TASK_ID; ls -d run-* | wc -l; sleep .2; rmdir run-*\n"
    )
    array = slurm.submit("--array=3,5-7%1", "-o", "array-%a.out", "a.sh", script=script)
    pairs = slurm.submit("--array=3,5-7", "-d", f"aftercorr:{array}", "--wrap=true")
    assert set(slurm.wait(array, pairs)) == {"COMPLETED"}
    assert [slurm.text(f"array-{n}.out").strip() for n in (3, 5, 6, 7)] == ["1"] * 4
    assert set(slurm.states(f"{array}_5")) == {f"{array}_5"}


def test_singletons_run_one_after_another(slurm):
    script = "#!/bin/bash\nmkdir only && sleep .2 && rmdir only\n"
    jobs = [slurm.submit("-J", "only", "-d", "singleton", "s.sh", script=script) for _ in range(3)]
    assert slurm.wait(*jobs) == ["COMPLETED"] * 3


def test_jobs_on_hold_wait_until_they_are_released(slurm):
    on_hold = slurm.submit("-H", "--wrap=true")
    later = slurm.submit("--begin=now+1hour", "--wrap=true")
    show = ("squeue", "-h", "-o", "%r", "-j")
    assert [slurm(*show, on_hold), slurm(*show, later)] == ["JobHeldUser\n", "BeginTime\n"]
    slurm("scontrol", "release", on_hold)
    assert slurm.wait(on_hold) == ["COMPLETED"]
    slurm("scancel", "--me", "-t", "PD")
    assert slurm.wait(later) == ["CANCELLED"]


def begun(slurm, *numbers):
    def run():
        return all(state == "RUNNING" for state, _ in slurm.states(*numbers).values())

    until(run, lambda: str(slurm.states(*numbers)), 60)


def test_running_jobs_are_cancelled_and_signalled(slurm):
    script = "#!/bin/bash\ntrap 'echo signal; exit 7' USR1\nwhile :; do sleep .1; done\n"
    signalled = slurm.submit("-o", "signal.out", "t.sh", script=script)
    cancelled = slurm.submit("-J", "to cancel", "--wrap=sleep 100 & wait")
    begun(slurm, signalled, cancelled)
    slurm("scancel", "-b", "-s", "USR1", signalled)
    slurm("scancel", "-n", "to cancel")
    assert slurm.wait(signalled, cancelled) == ["FAILED", "CANCELLED"]
    assert slurm.text("signal.out") == "signal\n"
    assert slurm.states(signalled) == {str(signalled): ("FAILED", "7:0")}


def test_a_job_is_run_again_on_request(slurm):
    script = "#!/bin/bash\necho ${SLURM_RESTART_COUNT:-0}; [ $SLURM_RESTART_COUNT ] || sleep 60\n"
    job = slurm.submit("-o", "again.out", "r.sh", script=script)
    begun(slurm, job)
    slurm("scontrol", "requeue", job)
    assert slurm.wait(job) == ["COMPLETED"]
    assert slurm.text("again.out") == "0\n1\n"


def test_a_request_that_is_repeated_submits_once(slurm):
    first = slurm.submit("--wrap=true", request="the same")
    assert slurm.submit("--wrap=true", request="the same") == first


def test_wait_returns_the_exit_code(slurm):
    request = {"request": "waits"}
    assert "wait_s" in slurm.ask("sbatch", "-W", "--wrap=exit 5", **request)
    job = int(slurm("squeue", "-h", "-o", "%A", "-t", "all").split()[-1])
    slurm.wait(job)
    assert slurm.ask("sbatch", "-W", "--wrap=exit 5", **request)["code"] == 5


def test_a_job_that_uses_more_memory_than_it_says_is_ended(slurm):
    job = slurm.submit(
        "--mem=50M",
        f"--wrap={sys.executable} -c 'x = b\"x\" * (200 << 20); import time; time.sleep(60)'",
    )
    assert slurm.wait(job) == ["OUT_OF_MEMORY"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("-c", "64"),
            "the job needs 64 cores of one node, the largest node of partition vgrads has 2",
        ),
        (("--mem=9999G",), "the job needs 10238976 MiB, the largest node of partition vgrads has"),
        (("-p", "other"), "invalid partition specified: other"),
        (("-t", "soon"), "Invalid --time specification"),
        (("--frob",), "unrecognized option '--frob'"),
        (("-D", "a", "-d", "afterok"), "Job dependency problem"),
    ],
)
def test_what_cannot_be_submitted_is_refused_with_the_reason(slurm, arguments, message):
    answer = slurm.ask("sbatch", *arguments, "--wrap=true")
    assert answer["code"] in (1, 255)
    assert message in answer["err"]


def test_an_output_that_cannot_be_opened_fails_its_job_alone(slurm):
    job = slurm.submit("-o", "no/such/folder/x.out", "--wrap=true")
    other = slurm.submit("--wrap=true")
    assert slurm.wait(job, other) == ["FAILED", "COMPLETED"]
    assert slurm.states(job) == {str(job): ("FAILED", "0:53")}


def test_a_waiting_job_is_changed_and_its_changes_outlive_the_service(tmp_path):
    slurm = Slurm(tmp_path)
    job = slurm.submit("-H", "-t", "10", "--wrap=true")
    first = slurm.submit("-H", "--wrap=true")
    words = ("TimeLimit=+5", "Name=new", "Comment=vgrads:g", "Requeue=0", "Nice=5", "Priority=7")
    more = (f"Dependency=afterok:{first}", "Deadline=now+2hours", "Partition=vgrads-local")
    slurm("scontrol", "update", f"JobId={job}", *words, *more)
    slurm("scontrol", "release", job)
    form = ("squeue", "-h", "-j", job, "-o", "%j|%l|%k|%P|%r|%E")
    shown = f"new|15:00|vgrads:g|vgrads-local|Dependency|afterok:{first}(unfulfilled)\n"
    assert slurm(*form) == shown
    assert "Requeue=0" in slurm("scontrol", "show", "job", job)
    spec = next((tmp_path / "slurm" / "jobs").glob(f"*/{job}/job.json"))
    assert spec.stat().st_mode & 0o777 == 0o600
    assert [group["name"] for group in slurm.ask("status")["groups"]] == ["g"]
    slurm.service.stop()
    slurm.begin()
    assert slurm(*form) == shown
    slurm("scontrol", "release", first)
    assert slurm.wait(first, job) == ["COMPLETED"] * 2
    late = slurm.submit("-H", "--wrap=true")
    slurm("scontrol", "update", "job", late, "StartTime=now+1hour", "Deadline=now+2hours")
    slurm("scontrol", "release", late)
    assert slurm("squeue", "-h", "-j", late, "-o", "%r") == "BeginTime\n"
    slurm("scontrol", "update", "job", late, "TimeMin=5:00:00")
    assert slurm.wait(late) == ["DEADLINE"]
    slurm.end()


def test_the_time_limit_of_a_running_job_becomes_shorter_never_longer(slurm):
    job = slurm.submit("-t", "10", "--wrap=sleep 100")
    begun(slurm, job)
    answer = slurm.ask("scontrol", "update", f"jobid={job}", "timelimit=11")
    assert answer["code"] == 1
    assert answer["err"] == f"Access/permission denied for job {job}\n"
    refused = slurm.ask("scontrol", "update", f"jobid={job}", "partition=vgrads-local")
    assert "Job is no longer pending execution for job" in refused["err"]
    record = slurm.service._scheduler.table.records[job]
    folder = slurm.home / "slurm" / "jobs" / f"{job // 1000}" / str(job)
    slurm("scontrol", "update", f"jobid={job}", "timelimit=1")
    assert record.submission.limit_s == 60.0
    with (folder / "signals-0").open("a") as file:
        file.write("limit 0 0.1\n")  # a minute is long for a test
    assert slurm.wait(job) == ["TIMEOUT"]
    gone = slurm.ask("scontrol", "update", f"jobid={job}", "timelimit=1")
    assert "Job has already finished for job" in gone["err"]


def test_an_array_runs_more_tasks_at_once_after_a_change_of_its_limit(slurm):
    script = "#!/bin/bash\nwhile [ ! -e go ]; do sleep .05; done\n"
    array = slurm.submit("--array=1-2%1", "g.sh", script=script)
    until(lambda: slurm("squeue", "-h", "-t", "R", "-j", array), "a task runs")
    assert "JobArrayTaskLimit" in slurm("squeue", "-h", "-j", array, "-o", "%r")
    slurm("scontrol", "update", f"JobId={array}", "ArrayTaskThrottle=2")
    assert "JobArrayTaskLimit" not in slurm("squeue", "-h", "-j", array, "-o", "%r")
    (slurm.folder / "go").touch()
    assert slurm.wait(array) == ["COMPLETED"] * 2
    (slurm.folder / "go").unlink()


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("NumCPUs=2", "NumCPUs of a job cannot be changed by vgrads"),
        ("MinMemoryNode=5", "MinMemoryNode of a job cannot be changed by vgrads"),
        ("Partition=debug", "Invalid partition name specified for job"),
        ("Dependency=afterok", "Job dependency problem for job"),
        ("ArrayTaskThrottle=-2", "Invalid ArrayTaskThrottle value for job"),
        ("TimeLimit=-20", "TimeLimit decrement larger than current time limit (20 > 10) for job"),
        ("Foo=3", "Update of this parameter is not supported: Foo=3"),
        ("", "No changes specified"),
    ],
)
def test_a_change_that_is_not_possible_is_refused_and_changes_nothing(slurm, pair, message):
    job = slurm.submit("-H", "-t", "10", "--wrap=true")
    before = slurm("scontrol", "show", "job", job)
    answer = slurm.ask("scontrol", "update", f"JobId={job}", *[pair][: len(pair)])
    assert answer["code"] == 1
    assert message in answer["err"]
    assert slurm("scontrol", "show", "job", job) == before
    slurm("scancel", job)


def test_a_priority_of_zero_holds_a_job(slurm):
    job = slurm.submit("--begin=now+1hour", "--wrap=true")
    slurm("scontrol", "update", f"JobId={job}", "Priority=0")
    assert slurm("squeue", "-h", "-j", job, "-o", "%r") == "JobHeldUser\n"
    slurm("scancel", job)


def test_a_group_with_a_deadline_has_a_promise_from_its_second_run_on(slurm):
    options = ("--comment", "vgrads:study", "--deadline=now+1hour")
    first = slurm.submit(*options, "--array=1-3", "--wrap=sleep .2")
    assert set(slurm.wait(first)) == {"COMPLETED"}

    def answer():
        return slurm.service.answer("gantt", {"group": "study"})

    until(lambda: [share for _, share in answer()["promises"]] == [None], lambda: str(answer()))
    chart = answer()["gantt"]
    assert [bar["state"] for bar in chart["placements"]] == ["done"] * 3
    assert f"{first}_1" in render_html({**chart, "facts": "a group"})
    assert "Promise=" not in slurm("scontrol", "show", "job", first)
    slurm.later_s += 3600.0
    second = slurm.submit(*options, "-H", "--wrap=sleep .2")
    assert "Promise=1.00" in slurm("scontrol", "show", "job", second)
    status = slurm.ask("status")["groups"]
    assert [(group["name"], group["expected"]) for group in status] == [("study", 3.0)]
    assert slurm.service.answer("gantt", {"group": "other"}) == {"groups": ["study"]}
    slurm("scancel", second)


def test_a_job_that_cannot_end_before_its_deadline_is_removed(slurm):
    late = slurm.submit("-t", "5", "--deadline=now+1minute", "--wrap=true")
    after = slurm.submit("-d", f"afternotok:{late}", "--wrap=true")
    assert slurm.wait(late, after) == ["DEADLINE", "COMPLETED"]
    assert slurm.states(late) == {str(late): ("DEADLINE", "0:1")}
    assert slurm("squeue", "-h", "-j", late, "-t", "all", "-o", "%t %T %r") == (
        "DL DEADLINE DeadLine\n"
    )
    assert "JobState=DEADLINE Reason=DeadLine" in slurm("scontrol", "show", "job", late)
    shorter = slurm.submit("-t", "5", "--time-min=1", "--deadline=now+3minutes", "--wrap=true")
    assert slurm.wait(shorter) == ["COMPLETED"]


def test_the_deadline_of_a_group_removes_no_job_and_that_of_others_outlives_the_service(tmp_path):
    slurm = Slurm(tmp_path)
    options = ("-H", "--deadline=now+1hour", "--wrap=true")
    array = slurm.submit("--array=1-2", *options)
    limited = slurm.submit("-t", "2:00:00", "--time-min=59", *options)
    grouped = slurm.submit("--comment=vgrads:study", "-t", "30", *options)
    assert {state for state, _ in slurm.states(array, limited, grouped).values()} == {"PENDING"}
    slurm.later_s += 100.0
    assert slurm.wait(limited) == ["DEADLINE"]
    slurm.service.stop()
    slurm.later_s += 3600.0
    slurm.begin()
    assert slurm.wait(array) == ["DEADLINE"] * 2
    slurm("scontrol", "release", grouped)
    assert slurm.wait(grouped) == ["COMPLETED"]
    slurm.end()


def test_test_only_prints_an_interval_and_submits_nothing(slurm):
    slurm.wait(*[slurm.submit("--wrap=true") for _ in range(19)])  # fewer waits support no .95
    before = slurm.submit("--wrap=true")
    answer = slurm.ask("sbatch", "--test-only", "-n", "2", "--wrap=true")
    assert answer["code"] == 0
    assert f"Job {before + 1} to start at " in answer["err"]
    assert "using 2 processors" in answer["err"]
    assert "in 95 of 100 cases not later than" in answer["err"]
    assert slurm.submit("--wrap=true") == before + 1


def test_test_only_states_no_share_of_cases_that_was_never_seen(tmp_path):
    """Before any job of a partition has started."""
    slurm = Slurm(tmp_path)
    answer = slurm.ask("sbatch", "--test-only", "--wrap=true")
    assert " to start at " in answer["err"]
    assert "95 of 100" not in answer["err"]
    slurm.end()


def test_services_of_one_machine_have_agents_of_their_own(slurm, tmp_path):
    other = Slurm(tmp_path)
    assert other.wait(other.submit("--wrap=true")) == slurm.wait(slurm.submit("--wrap=true"))
    other.end()


def test_bags_are_of_learned_run_times_not_of_stated_limits(slurm):
    for _ in range(3):
        slurm.wait(slurm.submit("-J", "short", "-t", "4:00:00", "--wrap=true"))
    slurm.wait(slurm.submit("-J", "short", "-t", "4:00:00", "--wrap=true"))
    bags = slurm.home / "slurm" / "dispatcher" / "bags"
    documents = [json.loads(p.read_text())["document"] for p in bags.glob("*/document.json")]
    of_limit = [document for document in documents if document["limit"] == 14520.0]
    hosts = {document["runtime_s"]: document["hosts"]["longest"] for document in of_limit}
    assert hosts == {None: 14400.0, 60.0: 3600.0}


def test_ended_jobs_are_listed_for_as_long_as_stated_and_ids_never_come_again(tmp_path):
    slurm = Slurm(tmp_path)
    first = slurm.submit("-H", "--wrap=true")
    slurm("scancel", first)
    folder = next((tmp_path / "slurm" / "jobs").glob(f"*/{first}"))
    slurm.later_s += 400.0
    until(lambda: not folder.exists(), "script and environment are removed")
    assert slurm.states(first)
    slurm.later_s += 100 * 86_400.0
    until(lambda: not slurm.states(first), "the job is removed")
    slurm.service.stop()
    slurm.begin()
    assert slurm.submit("-H", "--wrap=true") == first + 1
    slurm.end()


def test_all_attempts_of_a_job_are_listed_on_request(slurm):
    script = '#!/bin/bash\n[ "$SLURM_RESTART_COUNT" ] && exit 4\ntouch begun-$SLURM_JOB_ID\n'
    job = slurm.submit("r.sh", script=f"{script}sleep 60")
    until((slurm.folder / f"begun-{job}").exists, "the job")
    begun(slurm, job)
    slurm("scontrol", "requeue", job)
    assert slurm.wait(job) == ["FAILED"]
    words = ("sacct", "-X", "-n", "-P", "-j", job, "-o", "JobID,State,ExitCode,Start,End")
    (last,) = slurm(*words).splitlines()
    first, second = slurm(*words, "--duplicates").splitlines()
    assert second == last and last.startswith(f"{job}|FAILED|4:0|")
    assert first.startswith(f"{job}|REQUEUED|0:15|2")
    assert first.split("|")[4] <= last.split("|")[3]
    assert "Restarts=1" in slurm("scontrol", "show", "job", job)


def test_a_job_whose_output_cannot_be_opened_says_so(slurm):
    job = slurm.submit("-o", "no/such/x.out", "--wrap=true")
    assert slurm.wait(job) == ["FAILED"]
    why = f"{slurm.folder}/no/such/x.out: No such file or directory"
    assert slurm("sacct", "-X", "-n", "-P", "-j", job, "-o", "SystemComment") == f"{why}\n"
    assert f"   SystemComment={why} \n" in slurm("scontrol", "show", "job", job)


def test_a_name_of_several_lines_is_listed_in_one(slurm):
    job = slurm.submit("-H", "-J", "two\nlines", "--comment=a\r\nb", "--wrap=true")
    assert slurm("squeue", "-h", "-j", job, "-o", "%i|%j|%k") == f"{job}|two lines|a b\n"
    slurm("scontrol", "update", f"jobid={job}", "jobname=new\nname")
    assert slurm("sacct", "-X", "-n", "-P", "-j", job, "-o", "JobName,Comment") == "new name|a b\n"
    slurm("scancel", job)


@pytest.mark.parametrize(
    "words", [("-t", "9" * 15), ("--time-min", "9" * 15), ("--begin", f"now+{'9' * 20}weeks")]
)
def test_times_beyond_all_calendars_are_refused(slurm, words):
    answer = slurm.ask("sbatch", *words, "--wrap=true")
    assert answer["code"] in (1, 255)
    assert "time limit is invalid" in answer["err"] or "Invalid --begin" in answer["err"]
