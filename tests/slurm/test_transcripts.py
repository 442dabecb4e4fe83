"""What real clients call, and the replies that they read, character by character.

The calls are those of Parsl 2026.10, PSI/J 0.9.11, Toil 9.6, Snakemake's Slurm plugin 2.8, Nextflow
and AiiDA 2.9.
"""

import os
import re
import time

import pytest

from tests.slurm.jobs import NOW_S, job
from vgrads.slurm.errors import Reply, SlurmError
from vgrads.slurm.job import JobState, Partition
from vgrads.slurm.sacct import parse_sacct, render_sacct
from vgrads.slurm.sacctmgr import AccountsView, Association, parse_sacctmgr, render_sacctmgr
from vgrads.slurm.scancel import parse_scancel, render_scancel
from vgrads.slurm.scontrol import (
    ClusterView,
    JobChanges,
    LimitChange,
    parse_scontrol,
    render_scontrol,
)
from vgrads.slurm.sinfo import parse_sinfo, render_sinfo
from vgrads.slurm.squeue import parse_squeue, render_squeue
from vgrads.slurm.text.selection import pending_indices, task_rows

JOBS = [
    job(11, JobState.RUNNING, name="align", cpu_s=30.5, max_rss_kib=20480),
    job(12, JobState.COMPLETED, name="sort", cpu_s=61.0, max_rss_kib=1024, comment="rule sort"),
    job(13, JobState.FAILED, name="sort", exit_code=3, reason="NonZeroExitCode"),
    job(14, reason="Dependency", dependency="afterok:11(unfulfilled)", eligible_s=None),
    job(15, JobState.CANCELLED, cancelled_by=1000),
    job(16, JobState.TIMEOUT, reason="TimeLimit"),
    job(17, JobState.OUT_OF_MEMORY, exit_signal=125, reason="OutOfMemory"),
    job(20, array_id=20, pending_indices="3-5,9%2", array_limit=2, reason="JobArrayTaskLimit"),
    job(21, JobState.RUNNING, array_id=20, array_index=1, array_limit=2),
    job(30, user="bob", uid=1001, reason="Priority"),
]
PARTITIONS = (
    Partition("vgrads", True, "up", None, None, ("n1", "n2"), 8, 4000, busy_cores=(("n1", 3),)),
    Partition("gpu", False, "up", 90000.0, 600.0, ("g1",), 4, 8000),
)


@pytest.fixture(autouse=True)
def _in_utc():
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


def squeue(*arguments, user="ann", jobs=JOBS, **environment):
    return render_squeue(parse_squeue(arguments, environment, user), jobs, NOW_S)


def sacct(*arguments, jobs=JOBS, **environment):
    return render_sacct(parse_sacct(arguments, NOW_S, environment), jobs, NOW_S)


def scontrol(*arguments, jobs=JOBS, **environment):
    query = parse_scontrol(arguments, NOW_S, environment)
    return render_scontrol(query, jobs, ClusterView(PARTITIONS, {"MaxArraySize": "5"}), NOW_S)


def test_parsl():
    assert sacct("-X").code == 0
    words = ["-X", "--noheader", "--format=jobid,state%20", "--job", "11,12,13,15"]
    lines = [line.split() for line in sacct(*words).out.splitlines()]
    assert lines == [
        ["11", "RUNNING"],
        ["12", "COMPLETED"],
        ["13", "FAILED"],
        ["15", "CANCELLED", "by", "1000"],
    ]
    assert squeue("--noheader", "--format=%i %t", "--job", "11,14").out == "14 PD\n11 R\n"
    assert scontrol("show", "hostnames", SLURM_NODELIST="n[1-2]").out == "n1\nn2\n"
    assert scontrol("show", "hostnames", SLURM_JOB_NODELIST="n7", SLURM_NODELIST="x").out == "n7\n"


def test_psij():
    reply = squeue("-O", "JobArrayID,StateCompact,Reason", "-t", "all", "--me")
    header, *lines = reply.out.splitlines()
    assert header.split() == ["JOBID", "ST", "REASON"]
    assert len(lines) == len(JOBS) - 1
    assert all(len(line.split()) == 3 for line in lines)
    assert ["17", "OOM", "OutOfMemory"] in [line.split() for line in lines]
    listing = squeue("--me", "-o", "%i", "-h", "-r", "-t", "all").out.split()
    assert {"11", "20_1", "20_3", "20_4", "20_5", "20_9"} <= set(listing)
    assert render_scancel(parse_scancel(["-Q", "11"]), JOBS) == Reply()


def test_toil():
    out = render_sinfo(parse_sinfo(["-a", "-o", "%P %G %l %p %c %m"]), PARTITIONS, NOW_S).out
    assert out == (
        "PARTITION GRES TIMELIMIT PRIO_TIER CPUS MEMORY\n"
        "vgrads* (null) infinite 1 8 4000\n"
        "gpu (null) 1-01:00:00 1 4 8000\n"
    )
    assert squeue("-h", "--format", "%i %t %M", "-n", "align").out == "11 R 1:00\n"
    records = scontrol("show", "job").out.split("\n\n")
    states = {}
    for record in filter(str.strip, records):
        pairs = dict(item.split("=", 1) for item in record.split() if "=" in item)
        states[pairs["JobId"]] = (pairs["JobState"], pairs["ExitCode"])
    assert states["13"] == ("FAILED", "3:0")
    assert states["16"] == ("TIMEOUT", "0:15")
    assert states["17"] == ("OUT_OF_MEMORY", "0:125")
    words = ["-n", "-j", "12,13", "--format", "JobIDRaw,State,ExitCode", "-P"]
    times = ["-S", "2026-11-25T00:00:00", "-E", "2026-11-28T00:00:00"]
    assert sacct(*words, *times).out == (
        "12|COMPLETED|0:0\n12.batch|COMPLETED|0:0\n13|FAILED|3:0\n13.batch|FAILED|3:0\n"
    )


def test_snakemake():
    line = re.search(r"^MinJobAge\s*=\s*(\d+) sec$", scontrol("show", "config").out, re.MULTILINE)
    assert line[1] == "300"
    assert "MaxArraySize            = 5\n" in scontrol("show", "config").out
    view = AccountsView((Association("lab"), Association("lab", "ann"), Association("b", "ann")))
    query = parse_sacctmgr(["-n", "-s", "list", "user", "ann", "format=account%256"])
    assert render_sacctmgr(query, view).out.split() == ["lab", "b"]
    words = ["--format=%i|%T", "--states=all", "--noheader", "--name", "sort"]
    assert squeue(*words).out == "12|COMPLETED\n13|FAILED\n"
    words = ["-X", "--parsable2", "--noheader", "--format=JobIdRaw,State", "--name", "sort"]
    assert sacct(*words, "--starttime", "2026-11-25T16:00").out == "12|COMPLETED\n13|FAILED\n"
    names = "JobID,JobName,Comment,Elapsed,TotalCPU,NNodes,NCPUS,MaxRSS,ReqMem"
    words = ["--name=sort", "--parsable2", "--noheader", f"--format={names}", "-j", "12"]
    assert sacct(*words).out == (
        "12|sort|rule sort|00:00:40|01:01.000|1|1||100M\n"
        "12.batch|batch||00:00:40|01:01.000|1|1|1024K|\n"
    )
    lines = scontrol("show", "partition").out.splitlines()
    assert lines[0] == "PartitionName=vgrads"
    assert "MaxTime=UNLIMITED" in lines[4]
    assert lines[-2].strip() == "TRES=cpu=4,mem=8000M,node=1,billing=4"


def test_nextflow():
    for extra in ([], ["-p", "vgrads"], ["--only-job-state"]):
        words = ["--noheader", "-o", "%i %t", "-t", "all", *extra, "-u", "ann"]
        lines = squeue(*words).out.splitlines()
        assert len(lines) == len(JOBS) - 1
        assert all(len(line.split()) == 2 for line in lines)
    request = parse_scancel(["11", "12", "20_3"])
    selected = [row.shown_id for row in request.select(JOBS)]
    assert selected == ["11", "20_3"]


def test_aiida():
    fields = ["%i", "%t", "%r", "%B", "%u", "%D", "%C", "%R", "%P", "%l", "%M", "%S", "%j", "%V"]
    words = ["--noheader", "-o", "^^^".join(fields), "--jobs=11,11"]
    assert squeue(*words, SLURM_TIME_FORMAT="standard").out == (
        "11^^^R^^^None^^^n1^^^ann^^^1^^^1^^^n1^^^vgrads^^^10:00^^^1:00^^^2026-11-26T15:59:00"
        "^^^align^^^2026-11-26T15:58:20\n"
    )
    assert squeue("--noheader", "-o", "%i", "--jobs=99,99") == Reply()
    names = ",".join(sacct("--helpformat").out.split()) + ","
    header, values, _ = sacct(f"--format={names}", "--parsable", "--jobs=16").out.splitlines()
    assert len(header.split("|")) == len(values.split("|"))
    assert dict(zip(header.split("|"), values.split("|"), strict=True))["State"] == "TIMEOUT"


DEFAULT = """\
             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
                14    vgrads     work      ann PD       0:00      1 (Dependency)
      20_[3-5,9%2]    vgrads     work      ann PD       0:00      1 (JobArrayTaskLimit)
                30    vgrads     work      bob PD       0:00      1 (Priority)
                11    vgrads    align      ann  R       1:00      1 n1
              20_1    vgrads     work      ann  R       1:00      1 n1
"""


def test_the_default_list():
    assert squeue().out == DEFAULT


def test_expected_starts():
    waiting = job(30, reason="Priority", expected_start_s=NOW_S + 60)
    assert squeue("--start", jobs=[waiting, JOBS[3], JOBS[0]]).out == (
        "             JOBID PARTITION     NAME     USER ST          START_TIME  NODES"
        " SCHEDNODES           NODELIST(REASON)\n"
        "                30    vgrads     work      ann PD 2026-11-26T16:01:00      1"
        " (null)               (Priority)\n"
        "                14    vgrads     work      ann PD                 N/A      1"
        " (null)               (Dependency)\n"
    )


def test_unknown_ids():
    error = Reply("", "slurm_load_jobs error: Invalid job id specified\n", 1)
    assert squeue("-j", "99") == error
    assert squeue("-h", "-j", "99,98") == Reply()
    assert squeue("-h", "-j", "12") == Reply()  # it exists, and has ended
    assert scontrol("show", "job", "99") == error
    assert scontrol("show", "job", "20_99") == Reply("Job 20_99 not found\n", "", 1)
    assert sacct("-n", "-j", "99") == Reply()
    assert scontrol("show", "job", jobs=[]).out == "No jobs in the system\n"


def test_tasks_of_an_array():
    assert squeue("-h", "-o", "%i %K %A", "-j", "20_4,20_1,20_77").out == "20_4 4 20\n20_1 1 21\n"
    assert sacct("-n", "-X", "-P", "-o", "jobid,jobidraw", "-j", "20_[3-4]").out == (
        "20_3|20\n20_4|20\n"
    )
    assert pending_indices(JOBS[7]) == (3, 4, 5, 9)
    assert [row.shown_id for row in task_rows(JOBS[7])] == ["20_3", "20_4", "20_5", "20_9"]
    head = scontrol("show", "job", "20").out.splitlines()[0]
    assert head == "JobId=20 ArrayJobId=20 ArrayTaskId=3-5,9%2 ArrayTaskThrottle=2 JobName=work"


def test_a_filter_of_thousands_of_names():
    names = [f"uuid-{n}" for n in range(5000)]
    jobs = [job(n, name=names[n]) for n in range(0, 5000, 10)]
    assert squeue("-h", "-o", "%i", "--name", ",".join(names), jobs=jobs).out.count("\n") == 500


def test_the_promise_of_a_job():
    shown = job(40, comment="vgrads:night", promise=0.934)
    out = scontrol("show", "job", "40", jobs=[shown]).out
    assert "   Comment=vgrads:night Promise=0.93\n" in out
    assert " Promise=0.93 " in scontrol("-o", "show", "job", "40", jobs=[shown]).out
    assert "   Promise=0.50\n" in scontrol("show", "job", jobs=[job(40, promise=0.5)]).out
    assert "Promise" not in scontrol("show", "job", jobs=[job(40, comment="x")]).out


def test_the_window_of_the_accounting():
    ended = NOW_S - 20
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ended))
    after = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ended + 1))
    words = ["-n", "-X", "-P", "-o", "jobid", "-s", "CD"]
    assert sacct(*words, "-S", at).out == "12\n"
    assert sacct(*words, "-S", after).out == ""
    assert sacct(*words, "-S", "2026-01-01", "-E", "2026-01-02").out == ""


def test_units_of_the_accounting():
    words = ["-n", "-P", "-o", "jobid,reqmem,maxrss,allocTRES", "-j", "11", "--units=M"]
    assert sacct(*words).out == (
        "11|100M||billing=1,cpu=1,mem=100M,node=1\n11.batch||20M|cpu=1,mem=100M,node=1\n"
    )


def test_nodes_and_their_states():
    query = parse_sinfo(["-h", "-o", "%P|%t|%N|%C|%F"])
    assert render_sinfo(query, PARTITIONS, NOW_S).out == (
        "vgrads*|mix|n1|3/5/0/8|1/0/0/1\nvgrads*|idle|n2|0/8/0/8|0/1/0/1\n"
        "gpu|idle|g1|0/4/0/4|0/1/0/1\n"
    )
    query = parse_sinfo(["-h", "-s"])
    assert render_sinfo(query, PARTITIONS, NOW_S).out == (
        "vgrads*      up   infinite          1/1/0/2 n[1-2]\n"
        "gpu          up 1-01:00:00          0/1/0/1 g1\n"
    )
    query = parse_sinfo(["-h", "-t", "idle", "-o", "%R %D %N"])
    assert render_sinfo(query, PARTITIONS, NOW_S).out == "vgrads 1 n2\ngpu 1 g1\n"
    shown = scontrol("show", "node", "n1").out
    assert "State=MIXED" in shown and "CPUAlloc=3 CPUEfctv=8 CPUTot=8" in shown


def test_changes_of_a_job():
    words = "JobId=14 TimeLimit=+90 JobName=x Comment=c Partition=p Requeue=0 Priority=7 Nice=3"
    query = parse_scontrol(["update", *words.split(), "Deadline=now+60"], NOW_S)
    assert query.ids.jobs == {14}
    assert query.changes == JobChanges(
        limit=LimitChange(5400.0, 1),
        name="x",
        comment="c",
        partition="p",
        requeue=False,
        priority=7,
        deadline_s=NOW_S + 60,
    )
    assert parse_scontrol(["update", "job", "3", "timelimit=UNLIMITED"], 0.0).changes == JobChanges(
        limit=LimitChange(None)
    )
    for action in ("hold", "release", "requeue"):
        query = parse_scontrol([action, "14,15", "20_[3-4]"], 0.0)
        assert (query.action, query.ids.jobs) == (action, {14, 15})
        assert query.ids.tasks == {(20, 3), (20, 4)}
    assert parse_scontrol(["hold", "name=sort"], 0.0).job_name == "sort"
    query = parse_scontrol(["write", "batch_script", "14", "-"], 0.0)
    assert (query.entity, query.show_names) == ("batch_script", ("-",))


def test_cancelling_by_what_jobs_are():
    def selected(*arguments):
        return [row.shown_id for row in parse_scancel(arguments, {}, "ann").select(JOBS)]

    assert selected("--me") == ["11", "14", "20_[3-5,9%2]", "20_1"]
    assert selected("-u", "bob") == selected("-u", "1001") == ["30"]
    assert selected("-t", "RUNNING", "-n", "align,sort") == ["11"]
    assert selected("20") == ["20_[3-5,9%2]", "20_1"]
    assert selected("--state=PENDING", "14", "11") == ["14"]
    request = parse_scancel(["-s", "USR1", "-b", "-f", "11.batch"])
    assert (request.signal, request.batch, request.full) == (10, True, True)
    with pytest.raises(SlurmError, match="No job identification provided"):
        parse_scancel(["-Q"])


def test_what_is_not_supported_is_named():
    for parse, words in (
        (parse_squeue, ["--json"]),
        (parse_squeue, ["-i", "5"]),
        (parse_sinfo, ["--json"]),
        (parse_scancel, ["-i", "3"]),
        (parse_sacctmgr, ["add", "user", "x"]),
    ):
        with pytest.raises(SlurmError, match="vgrads"):
            parse(words)


def test_the_listing_of_many_jobs_is_one_line_each():
    jobs = [job(n, JobState.RUNNING) for n in range(1, 3001)]
    assert squeue("-h", jobs=jobs).out.count("\n") == 3000
