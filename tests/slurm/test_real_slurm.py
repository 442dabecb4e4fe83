"""A real Slurm and vgrads' replies, line by line, in the same situations."""

import os
import re
import subprocess
import time
from functools import partial

import pytest

from tests import waiting
from tests.services import slurm
from tests.services.fixtures import there
from tests.slurm.real_jobs import job_of
from vgrads.slurm.errors import Reply, SlurmError
from vgrads.slurm.job import Partition
from vgrads.slurm.sacct import parse_sacct, render_sacct
from vgrads.slurm.sacctmgr import AccountsView, Association, parse_sacctmgr, render_sacctmgr
from vgrads.slurm.sbatch import SubmissionContext, batch_submission, parse_arguments
from vgrads.slurm.scancel import parse_scancel, render_scancel
from vgrads.slurm.scontrol import (
    FINISHED,
    INVALID_ID,
    IS_PENDING,
    ClusterView,
    control_reply,
    parse_scontrol,
    render_scontrol,
)
from vgrads.slurm.sinfo import parse_sinfo, render_sinfo
from vgrads.slurm.squeue import parse_squeue, render_squeue
from vgrads.slurm.text.job_texts import JobTexts
from vgrads.slurm.text.sacct_fields import FIELDS
from vgrads.slurm.text.squeue_fields import squeue_fields

until = partial(waiting.until, seconds=60.0)

pytestmark = pytest.mark.services

PARTITIONS = (
    Partition("batch", True, "up", 86400.0, 600.0, ("n1", "n2", "n3", "n4"), 8, 4000),
    Partition("debug", False, "up", 1800.0, 300.0, ("n1",), 8, 4000),
)
CLUSTER = ClusterView(PARTITIONS, {}, "here", "toy")
MOST_TRIES = 5
"""Replies contain expected starts; a comparison is repeated, for these may have changed."""
VARYING = re.compile(
    r"AccrueTime=\S+|Priority=\d+|AllocNode:Sid=\S+|LastSchedEval=\S+|Scheduler=\S+"
    r"| SchedNodeList=\S+|Power=.*"
)


class RealSlurm:
    """A Slurm with jobs in many states, and those jobs as values."""

    def __init__(self, folder, environment):
        self.folder, self.environment = folder, os.environ | environment | {"TZ": "UTC"}

    def call(self, *words, **variables):
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=60,
        )
        return Reply(done.stdout, done.stderr, done.returncode)

    def submit(self, *words):
        done = self.call("sbatch", "--parsable", "--mem=100", *words)
        assert done.code == 0, done.err
        return int(done.out)

    def jobs(self):
        lines = self.call("scontrol", "-o", "show", "job").out.splitlines()
        return [job_of(line) for line in lines if line.startswith("JobId=")]

    def by_name(self, name):
        return next(job for job in self.jobs() if job.name == name)


def submit_all(site):
    bad = site.submit("-J", "bad", "--wrap=exit 3")
    site.submit("-J", "fine", "-n2", "-c2", "--wrap=true")
    site.submit("-J", "run", "-D", "/tmp", "-c", "2", "--comment=two words", "--wrap=sleep 600")
    running = site.submit("-J", "long", "-t", "1-00:00:00", "--no-requeue", "--wrap=sleep 600")
    array = site.submit("-J", "array", "--array=0-9%2", "--wrap=sleep 600")
    site.submit("-J", "held", "--hold", "--wrap=true")
    site.submit("-J", "after", "-d", f"afterok:{running}", "--wrap=true")
    site.submit("-J", "later", "--begin=now+1hour", "--deadline=now+3hours", "--wrap=true")
    begun = site.folder / "begun"
    # one process: a shell would sometimes see the end of its child first, and exit with 143
    stopped = site.submit("-J", "stopped", f"--wrap=touch {begun}; exec sleep 600")
    waiting = site.submit("-J", "dropped", "--hold", "--wrap=sleep 600")
    until(begun.exists, "the step of the job that is cancelled; before it there is none to show")
    site.call("scancel", str(stopped), str(waiting))
    until(lambda: site.by_name("bad").state.is_terminal, "the failed job")
    site.submit("-J", "never", "-d", f"afterok:{bad}", "--wrap=true")
    until(lambda: site.by_name("stopped").state.is_terminal, "the cancelled job")
    until(lambda: "NeverSatisfied" in site.by_name("never").reason, "the dependency")
    until(lambda: site.by_name("fine").state.is_terminal, "the job that ends well")
    until(lambda: sum(job.array_index is not None for job in site.jobs()) == 2, "the array's tasks")
    names = ("bad", "fine", "stopped")
    ids = ",".join(str(site.by_name(name).id) for name in names)
    # tasks of an array get numbers of jobs too, when they begin
    expected = {f"{array}_0", f"{array}_1", str(stopped)}
    until(
        lambda: expected <= set(site.call("sacct", "-nX", "-o", "jobid").out.split()),
        "the accounting of running jobs",
    )
    until(
        lambda: "Unknown" not in site.call("sacct", "-n", "-X", "-j", ids, "-o", "end").out,
        "the accounting",
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    there(slurm.missing())
    folder = tmp_path_factory.mktemp("slurm")
    work = tmp_path_factory.mktemp("work")
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    with slurm.slurm_service(folder, min_job_age=300) as service:
        result = RealSlurm(work, service.environment)
        submit_all(result)
        yield result
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


def seconds_of_call(call, *words):
    """Call, and return the reply and the seconds in which it may have been made."""
    begin_s = int(time.time())
    reply = call(*words)
    return reply, range(begin_s, int(time.time()) + 1)


def agrees(site, words, render, mask=lambda text: text):
    """Compare all three parts of the replies; the real one is of some second of its call."""

    def parts(reply):
        return mask(reply.out), mask(reply.err), reply.code

    def ours(now_s):
        try:
            return parts(render(float(now_s)))
        except SlurmError as error:
            return parts(error.reply)

    for _ in range(MOST_TRIES):
        real, seconds = seconds_of_call(site.call, *words)
        if any(ours(now_s) == parts(real) for now_s in seconds):
            return
    assert ours(seconds[-1]) == parts(real)


def sorted_lines(text):
    return sorted(text.splitlines())


COLUMNS = [letter for letter in squeue_fields(JobTexts(0.0))[0] if letter not in "QpYO"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-h"],
        ["-l", "-h"],
        ["-t", "all"],
        ["-t", "R,PD", "-h"],
        ["-t", "CA,F,CD"],
        ["-r"],
        ["--me"],
        ["-u", "nobody"],
        ["-n", "run,held"],
        ["-p", "debug"],
        ["-A", "nothing"],
        ["-w", "n1"],
        ["-S", "-i"],
        ["-S", "j,i", "-h"],
        ["--noheader", "-o", "%i %t", "-t", "all", "-u", "root"],
        ["--format=%i|%T", "--states=all", "--noheader", "--name", "run"],
        ["-h", "--format", "%i %t %M"],
        ["-O", "JobArrayID,StateCompact,Reason", "-t", "all", "--me"],
        ["--me", "-o", "%i", "-h", "-r", "-t", "all"],
        ["-O", "JobID:5,Name:.10,State:9|,UserName:|"],
        ["-o", "x%5iy%.5i%%"],
        ["-h", "-o", "%.3i|%.3l|%.3M|%.3L|%3l|%.5S|%.5V|%.1C|%.1D"],
        ["-j", "99999"],
        ["-j", "99999,99998"],
        ["-j", "abc"],
        ["-t", "foo"],
        ["--foo"],
        ["-i"],
        ["--json=x"],
        ["-o", "%i", "-l"],
        ["extra"],
        ["-V"],
        *[["-t", "all", "-h", "-o", f"%i|%{letter}"] for letter in COLUMNS],
    ],
    ids=" ".join,
)
def test_squeue(site, arguments):
    mask = sorted_lines if "-S" not in arguments else lambda text: text
    agrees(
        site,
        ["squeue", *arguments],
        lambda now_s: render_squeue(parse_squeue(arguments, {}, "root"), site.jobs(), now_s, "toy"),
        mask,
    )


def test_squeue_of_aiida(site):
    fields = ["%i", "%t", "%r", "%B", "%u", "%D", "%C", "%R", "%P", "%l", "%M", "%S", "%j", "%V"]
    arguments = ["--noheader", "-o", "^^^".join(fields)]
    agrees(
        site,
        ["squeue", *arguments],
        lambda now_s: render_squeue(parse_squeue(arguments), site.jobs(), now_s, "toy"),
        sorted_lines,
    )


def test_squeue_of_stated_ids(site):
    array, run = site.by_name("array"), site.by_name("run")
    bad = site.by_name("bad").id
    for text in (f"{array.array_id}", f"{array.array_id}_5", f"{run.id},{bad}", f"{bad}"):
        arguments = ["-j", text]
        agrees(
            site,
            ["squeue", *arguments],
            lambda now_s, words=arguments: render_squeue(
                parse_squeue(words), site.jobs(), now_s, "toy"
            ),
            sorted_lines,
        )


UNMEASURED = (
    "DBIndex",
    "AssocID",
    "Priority",
    "SubmitLine",
    "Comment",
    "Flags",
    "ReqNodes",
    "NNodes",
)
FIELD_NAMES = [field.name for field in FIELDS if field.name not in UNMEASURED]


@pytest.mark.parametrize(
    "arguments",
    [
        ["-X"],
        [],
        ["-n"],
        ["-b"],
        ["-P"],
        ["-p"],
        ["-p", "--delimiter=,"],
        ["-X", "-n", "-P", "-o", "JobIdRaw,State", "--name", "run,bad"],
        ["-X", "--parsable2", "--noheader", "--format=JobIdRaw,State", "--starttime", "now-1day"],
        ["-X", "--noheader", "--format=jobid,state%20"],
        ["-o", "JobID%-10,JobIDRaw%5,State%-20,ExitCode%3"],
        ["-u", "nobody"],
        ["-A", "nothing"],
        ["-r", "batch", "-X"],
        ["-N", "n1", "-X"],
        ["-s", "F,CA"],
        ["-s", "R", "-X", "-n"],
        ["-j", "99999"],
        ["-j", "abc"],
        ["-o", "foo"],
        ["-s", "foo"],
        ["-S", "xyz"],
        ["--foo"],
        ["--name"],
        ["extra"],
        ["-e"],
        ["-V"],
        ["-c"],
    ],
    ids=" ".join,
)
def test_sacct(site, arguments):
    agrees(
        site,
        ["sacct", *arguments],
        lambda now_s: render_sacct(parse_sacct(arguments, now_s), site.jobs(), now_s, "toy"),
        sorted_lines,
    )


@pytest.mark.parametrize("name", FIELD_NAMES)
def test_each_field_of_sacct(site, name):
    ids = ",".join(str(site.by_name(n).id) for n in ("bad", "fine", "run", "held", "array"))
    for style in (["-P"], []):
        arguments = ["-j", ids, *style, "-o", f"jobid,{name}"]
        agrees(
            site,
            ["sacct", *arguments],
            lambda now_s, words=arguments: render_sacct(
                parse_sacct(words, now_s), site.jobs(), now_s, "toy"
            ),
            sorted_lines,
        )


NAMES = ("bad", "fine", "run", "held", "after", "later", "stopped", "dropped", "array", "never")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("flag", [[], ["-o"]], ids=["block", "line"])
def test_scontrol_show_job(site, name, flag):
    job = site.by_name(name)
    arguments = [*flag, "show", "job", str(job.array_job_id)]

    def masked(text):
        return sorted(VARYING.sub("", line) for line in text.splitlines())

    agrees(
        site,
        ["scontrol", *arguments],
        lambda now_s: render_scontrol(
            parse_scontrol(arguments, now_s), site.jobs(), CLUSTER, now_s
        ),
        masked,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "job", "99999"],
        ["-Q", "show", "job", "99999"],
        ["show", "job", "abc"],
        ["show", "job", "1", "2"],
        ["show", "foo"],
        ["show"],
        ["foo"],
        ["--foo"],
        ["show", "hostnames", "n[1-3,05],m07"],
        ["show", "hostnames"],
        ["show", "hostlist", "n1,n2,n3,n5,m"],
        ["show", "hostlistsorted", "n3,n1,n2"],
        ["show", "partition"],
        ["show", "partition", "debug", "-o"],
        ["show", "partition", "nope"],
        ["show", "node", "zz"],
        ["show", "reservation"],
        ["version"],
        ["--version"],
        ["hold"],
        ["release"],
        ["requeue"],
        ["update"],
        ["update", "TimeLimit=3"],
        ["update", "JobId=1", "Foo=3"],
        ["update", "JobId=1", "TimeLimit=abc"],
    ],
    ids=" ".join,
)
def test_scontrol(site, arguments):
    agrees(
        site,
        ["scontrol", *arguments],
        lambda now_s: render_scontrol(
            parse_scontrol(arguments, now_s), site.jobs(), CLUSTER, now_s
        ),
    )


def test_scontrol_names_jobs_that_cannot_be_changed(site):
    bad, pending = site.by_name("bad").id, site.by_name("held").id
    for action, job, problem in (
        ("hold", 99999, INVALID_ID),
        ("release", 99999, INVALID_ID),
        ("hold", bad, FINISHED),
        ("requeue", 99999, INVALID_ID),
        ("requeue", pending, IS_PENDING),
    ):
        query = parse_scontrol([action, str(job)], 0.0)
        agrees(
            site,
            ["scontrol", action, str(job)],
            lambda _, query=query, job=job, problem=problem: control_reply(
                query, [(str(job), problem)]
            ),
        )


def test_the_lines_of_the_configuration_that_clients_read(site):
    real = site.call("scontrol", "show", "config").out
    query = parse_scontrol(["show", "config"], 0.0)
    ours = render_scontrol(query, [], CLUSTER, time.time()).out
    for name in ("MinJobAge", "SLURM_VERSION", "ClusterName"):
        (line,) = (line for line in real.splitlines() if line.startswith(f"{name} "))
        assert line in ours.splitlines()


@pytest.mark.parametrize(
    "arguments",
    [
        ["-a", "-o", "%P %G %l %p %c %m"],
        ["-o", "%P"],
        ["-h", "-o", "%R|%a|%L|%D|%N|%f|%h|%g|%d|%w|%X|%Y|%Z|%z"],
        ["-p", "nope"],
        ["-O", "partition,cpus,memory,nodelist:30,time"],
        ["--foo"],
        ["-V"],
        ["-R"],
    ],
    ids=" ".join,
)
def test_sinfo(site, arguments):
    agrees(
        site,
        ["sinfo", *arguments],
        lambda now_s: render_sinfo(parse_sinfo(arguments), PARTITIONS, now_s),
    )


@pytest.mark.parametrize("arguments", [[], ["-l", "-h"], ["-N"], ["-s"]], ids=" ".join)
def test_the_titles_and_widths_of_sinfo(site, arguments):
    """States of nodes differ; titles and the columns of names do not."""
    real = site.call("sinfo", *arguments).out
    ours = render_sinfo(parse_sinfo(arguments), PARTITIONS, 0.0).out
    if "-h" not in arguments:
        assert ours.splitlines()[0] == real.splitlines()[0]
    assert {len(line.rpartition(" ")[0]) for line in ours.splitlines()} == {
        len(line.rpartition(" ")[0]) for line in real.splitlines()
    }


ACCOUNTS = AccountsView(
    (Association("root"), Association("root", "root")), "toy", "127.0.0.1", frozenset({"root"})
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-n", "-s", "list", "user", "root", "format=account%256"],
        ["list", "user"],
        ["-s", "show", "user", "root"],
        ["-p", "list", "user", "root"],
        ["-P", "show", "assoc", "format=User,Account,Partition,QOS,DefaultQOS"],
        ["list", "assoc"],
        ["-n", "-P", "show", "assoc", "user=root", "format=account,partition"],
        ["show", "user", "nobody"],
        ["show", "qos", "format=name,priority,maxwall"],
        ["list", "user", "format=foo"],
        ["list", "foo"],
        ["foo"],
        ["--foo"],
        ["-V"],
    ],
    ids=" ".join,
)
def test_sacctmgr(site, arguments):
    agrees(
        site,
        ["sacctmgr", *arguments],
        lambda _: render_sacctmgr(parse_sacctmgr(arguments), ACCOUNTS),
    )


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["99999"],
        ["-Q", "99999"],
        ["abc"],
        ["--foo"],
        ["-t", "foo", "1"],
        ["-s", "XYZ", "1"],
        ["-n", "nothing"],
        ["-u", "nobody"],
        ["-p", "nope"],
        ["-V"],
        ["99999.0"],
    ],
    ids=" ".join,
)
def test_scancel(site, arguments):
    agrees(
        site,
        ["scancel", *arguments],
        lambda _: render_scancel(parse_scancel(arguments, {}, "root"), site.jobs()),
    )


def submission(arguments, script="", now_s=None):
    context = SubmissionContext("/w", time.time() if now_s is None else now_s, 1001)
    request = parse_arguments(arguments)
    return request.reply or batch_submission(request, script, {}, context)


UNKNOWN = [["--foo"], ["-Z"], ["--ti"], ["--n=1"], ["--no"], ["--wrap"], ["--hold=1"], ["-J"]]


@pytest.mark.parametrize("arguments", UNKNOWN, ids=" ".join)
def test_unknown_options_of_sbatch_have_its_words(site, arguments):
    """vgrads exits with 1 where Slurm 22.05 exits with 255."""
    with pytest.raises(SlurmError) as caught:
        submission([*arguments, "--wrap=true"] if arguments != ["--wrap"] else arguments)
    real = site.call("sbatch", *arguments, *([] if arguments in (["--wrap"], ["-J"]) else ["x"]))
    if arguments == ["-J"]:
        return
    assert caught.value.reply.err == real.err
    assert (caught.value.exit_code, real.code) == (1, 255)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--time=abc"],
        ["-t", "1:2:3:4"],
        ["-t", "1.5"],
        ["-t", ""],
        ["--mem=abc"],
        ["--mem=1.5G"],
        ["-n", "abc"],
        ["-n", "0"],
        ["-c", "0"],
        ["-N", "x"],
        ["-N", "4-1"],
        ["--array=abc"],
        ["--array=5-1"],
        ["--array=1-"],
        ["--array=0-100000"],
        ["-d", "foo"],
        ["-d", "afterok:abc"],
        ["-d", "afterok:"],
        ["-d", "afterok:1,"],
        ["--deadline=xyz"],
        ["--begin=now+3min"],
        ["--begin=25:00"],
        ["--signal=XYZ"],
        ["--signal=USR1@abc"],
        ["--signal=USR1@99999"],
        ["--signal=B:"],
        ["--open-mode=x"],
        ["--kill-on-invalid-dep=maybe"],
        ["--mem=1", "--mem-per-cpu=3"],
        ["--exclusive=foo"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_what_sbatch_cannot_read(site, arguments):
    agrees(
        site,
        ["sbatch", *arguments, "--wrap=true"],
        lambda _: submission([*arguments, "--wrap=true"]),
    )


@pytest.mark.parametrize(
    "script",
    [
        "",
        "  \n \n",
        "echo\n",
        "\n#!/bin/sh\n",
        "#!/bin/sh\r\ntrue\r\n",
        "#!/bin/sh\n#SBATCH foo\n",
        '#!/bin/sh\n#SBATCH -J "abc\n',
        "#!/bin/sh\n#SBATCH --time=abc\n",
    ],
)
def test_scripts_that_sbatch_refuses(site, script):
    (site.folder / "x.sh").write_text(script, newline="")
    agrees(site, ["sbatch", "x.sh"], lambda _: submission(["x.sh"], script))


SCRIPT = """\
#!/bin/sh

   # indented
#SBATCH -J "a b" --comment='it is' # c
#SBATCH --comment="q\\"x" -n 2
  #SBATCH -c 3
#SBATCH-n 3
#SBATCH --mem=50#5
#SBATCH\t-p\tdebug
#SBATCH
##SBATCH -t 3
true
#SBATCH -J late
"""


def test_the_options_of_a_script(site):
    (site.folder / "q.sh").write_text(SCRIPT)
    number = site.call("sbatch", "--parsable", "-H", "-t", "4", "q.sh", "one", "2").out.strip()
    line = site.call("scontrol", "-o", "show", "job", number).out
    site.call("scancel", number)
    real, ours = job_of(line), submission(["-H", "-t", "4", "q.sh", "one", "2"], SCRIPT)
    assert (real.name, real.comment, real.tasks, real.cpus_per_task, real.memory_mib) == (
        ours.name,
        ours.comment,
        ours.tasks,
        ours.cpus_per_task,
        ours.memory_mib,
    )
    assert (real.partition, real.limit_s) == (ours.partition, ours.limit_s)
    assert real.command == ours.command.replace("/w/", f"{site.folder}/")


@pytest.mark.parametrize(
    "words",
    [
        "2027-01-01",
        "2027-01-01T10:00",
        "2027-01-01T10:00:05",
        "10:00",
        "23:59:59",
        "now+1hour",
        "now+60",
        "now+1day",
        "now+2weeks",
        "tomorrow",
        "midnight",
        "noon",
        "teatime",
        "fika",
        "12/31",
        "12/31/27",
        "1231",
        "123127",
        "10:00AM",
        "10:00pm",
        "12/31-10:00",
        "12/31 10:00",
        "10:00 12/31",
        "uts1800000000",
        "01.02",
        "now + 1hour",
        "tomorrow 10:00",
        "tomorrowT10:00",
    ],
)
def test_instants(site, words):
    begin = [f"--begin={words}", "--wrap=true"]
    number, seconds = seconds_of_call(site.submit, "-H", "-t", "1", *begin)
    line = site.call("scontrol", "-o", "show", "job", str(number)).out
    site.call("scancel", str(number))
    ours = {int(submission(begin, now_s=float(now_s)).begin_s) for now_s in seconds}
    assert job_of(line).eligible_s in ours


@pytest.mark.parametrize(
    "text", ["1", "0:30", "1:30", "5:90", "2:70:00", "1-0", "0-1", "0-1:2", "0-1:2:3", "100:00"]
)
def test_time_limits(site, text):
    number = site.submit("-H", "-t", text, "--wrap=true")
    line = site.call("scontrol", "-o", "show", "job", str(number)).out
    site.call("scancel", str(number))
    assert job_of(line).limit_s == submission(["-t", text, "--wrap=true"]).limit_s


@pytest.mark.parametrize(
    "text",
    [
        "1",
        "1,3,5",
        "1-7:2",
        "5,1-3",
        "1-3,2",
        "0-4%2",
        "3%1",
        "1,",
        "[1-3]",
        "1-9:20",
        "0-3:2,10-20:5",
    ],
)
def test_arrays(site, text):
    number = site.submit("-H", f"--array={text}", "--wrap=true")
    line = site.call("scontrol", "-o", "show", "job", str(number)).out
    site.call("scancel", str(number))
    assert job_of(line).pending_indices == str(submission([f"--array={text}", "--wrap=x"]).array)
