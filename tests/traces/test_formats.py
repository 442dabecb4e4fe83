"""Accounting formats beside SWF: found out by their looks, read into the same columns."""

import pytest

from vgrads.kernel.errors import InputError
from vgrads.traces.history import detect_format, read_history
from vgrads.traces.reading_options import ReadingOptions

DAY = "2016-12-22T"
SACCT = f"""JobID|User|Partition|Submit|Start|End|State|AllocCPUS|Timelimit
1|ann|fast|{DAY}07:00:00|{DAY}07:10:00|{DAY}08:00:00|COMPLETED|12|1-00:00:00
1.batch|||{DAY}07:10:00|{DAY}07:10:00|{DAY}08:00:00|COMPLETED|12|
2_3|bob|slow|{DAY}07:30:00|{DAY}07:30:00|{DAY}07:40:00|TIMEOUT|4|00:10:00
3|ann|fast|{DAY}07:40:00|Unknown|{DAY}09:40:00|CANCELLED by 7|4|UNLIMITED
4|ann|fast|{DAY}07:50:00|{DAY}08:50:00|{DAY}08:50:00|CANCELLED by 7|4|01:00:00
5|ann|fast|{DAY}08:00:00|Unknown|Unknown|PENDING|4|01:00:00
"""


def columns(log):
    return list(zip(log.wait_s, log.started, log.procs, log.request_s, log.run_s, strict=True))


def test_sacct_steps_arrays_cancelled_and_pending(write):
    log = read_history(write("jobs.sacct", SACCT))
    log.check()
    assert columns(log) == [
        (600, True, 12, 86400, 3000),
        (0, True, 4, 600, 600),
        (7200, False, 4, -1, -1),
        (3600, False, 4, 3600, -1),
    ]
    assert set(log.queue_names.values()) == {"fast", "slow"}
    assert len(set(log.user)) == 2
    assert log.unix_start_s == 1482390000


def test_sacct_columns_may_stand_in_any_order_and_times_have_any_form(write):
    rows = [line.split("|") for line in SACCT.strip().splitlines()]
    turned = "\n".join("|".join(reversed(row)) for row in rows) + "\n"
    assert columns(read_history(write("a.txt", turned))) == columns(
        read_history(write("b.txt", SACCT))
    )
    zoned = SACCT.replace("00:00|2016", "00:00+0000|2016").replace(
        f"{DAY}07:10:00", f"{DAY}08:10:00+0100"
    )
    assert (
        columns(read_history(write("c.txt", zoned)))[0]
        == columns(read_history(write("d.txt", SACCT)))[0]
    )
    epoch = "Submit|Start|End|NNodes\n100|160|200|2\n"
    assert columns(read_history(write("e.txt", epoch))) == [(60, True, 2, -1, 40)]


def test_sacct_needs_its_columns_and_whole_lines(write, tmp_path):
    with pytest.raises(InputError, match=r"no column start or start_time"):
        read_history(
            write("a.txt", "JobID|Submit|End|NCPUS\n1|2016-12-22T07:00:00|2016-12-22T07:00:00|1\n")
        )
    log = read_history(write("b.txt", SACCT + "cut off\n" * 3))
    assert len(log) == 4
    assert log.warnings == (
        "4 jobs in 10 lines; no jobs: 1 header, 1 step, 1 waiting job; "
        "not used: 3 with 1 cell instead of 9 (first in line 8)",
    )
    with pytest.raises(InputError, match=r"5 of 9 records cannot be used as sacct jobs: 5 with 1"):
        read_history(write("c.txt", SACCT + "cut off\n" * 5))
    assert len(read_history(tmp_path / "c.txt", ReadingOptions(force=True))) == 4


def test_csv_tables(write):
    text = (
        "job_id,user,partition,wallclock_req,processors_req,submit_time,start_time,end_time,state,submit_line\n"
        "1,u,p,7200.0,36,2019-01-01 08:00:00,2019-01-01 08:01:00,2019-01-01 "
        '09:01:00,COMPLETED,"sbatch a, b"\n'
    )
    assert columns(read_history(write("a.csv", text))) == [(60, True, 36, 7200, 3600)]


GWF = """# a comment
1 1000 30 100 4 -1 -1 4 600 -1 1 U7 G1 E1 Q1 P1 S1 S1 BoT 1 -1 -1 -1 -1 -1 -1 -1 V1 P1
2 1010 50 -1 0 -1 -1 8 600 -1 5 U8 G1 E1 Q2 P1 S1 S1 UNITARY -1 -1 -1 -1 -1 -1 -1 -1 V1 P1
3 1020 -1 100 4 -1 -1 4 600 -1 1 U7 G1 E1 Q1 P1 S1 S1 BoT 1 -1 -1 -1 -1 -1 -1 -1 V1 P1
"""


def test_gwf(write):
    log = read_history(write("a.gwf", GWF))
    log.check()
    assert columns(log) == [(30, True, 4, 600, 100), (50, False, 8, 600, -1)]
    assert log.only_queue("Q2").procs.tolist() == [8]


PBS = """04/21/2026 10:00:00;Q;1.srv;queue=batch
04/21/2026 10:00:10;S;1.srv;user=ann group=g queue=batch ctime=1776758400 qtime=1776758400 start=1776758410 Resource_List.nodes=2:ppn=8 Resource_List.walltime=01:00:00
04/21/2026 10:30:00;E;1.srv;user=ann group=g queue=batch ctime=1776758400 qtime=1776758400 etime=1776758400 start=1776758410 end=1776760200 Resource_List.nodes=2:ppn=8 Resource_List.walltime=01:00:00 Exit_status=0
04/21/2026 10:31:00;Q;2.srv;queue=long
04/21/2026 10:41:00;D;2.srv;requestor=ann@host
04/21/2026 10:50:00;S;3.srv;user=bob queue=batch qtime=1776761100 start=1776761400 Resource_List.select=4:ncpus=6:mpiprocs=6
04/21/2026 10:55:00;Q;4.srv;queue=batch
"""


def test_pbs_ended_withdrawn_and_running_jobs(write):
    log = read_history(write("20260421", PBS))
    log.check()
    assert columns(log) == [
        (10, True, 16, 3600, 1790),
        (600, False, 1, -1, -1),
        (300, True, 24, -1, -1),  # it still runs
    ]
    assert log.only_queue("long").submit_s.tolist() == [
        1860
    ]  # its local times were set right by those of the others


def sge(submit, start, end, slots=4, pe_task="NONE"):
    fields = [
        "all.q",
        "host",
        "g",
        "ann",
        "name",
        "7",
        "sge",
        "0",
        submit,
        start,
        end,
        "0",
        "0",
        "60",
    ]
    fields += ["0"] * 19 + [
        "mpi",
        slots,
        "0",
        "1",
        "1",
        "0",
        "-l h_rt=7200,mem=1G -pe mpi 4",
        "0",
        pe_task,
        "0",
    ]
    return ":".join(map(str, fields)) + "\n"


def test_grid_engine(write):
    log = read_history(
        write(
            "accounting",
            "# Version: 8.1.9\n"
            + sge(1000, 1060, 1200)
            + sge(1010, 0, 1100)
            + sge(1, 2, 3, pe_task="1.host"),
        )
    )
    log.check()
    assert columns(log) == [(60, True, 4, 7200, 140), (90, False, 4, 7200, -1)]
    newer = read_history(
        write("newer", sge(1_500_000_000_000, 1_500_000_060_000, 1_500_000_200_000))
    )
    assert columns(newer) == [(60, True, 4, 7200, 140)]


def test_a_wrong_format_set_by_hand_is_refused(write):
    for name in ("swf", "gwf", "pbs", "gridengine", "sacct"):
        with pytest.raises(InputError):
            read_history(write("a.txt", "nothing of the kind\n" * 10), name)


def test_formats_are_distinguished():
    samples = {"sacct": SACCT, "gwf": GWF, "pbs": PBS, "gridengine": sge(1, 2, 3)}
    assert {name: detect_format(text, "x") for name, text in samples.items()} == {
        name: name for name in samples
    }


def test_real_dumps(shared):
    sizes = {}
    for path in sorted((shared / "sacct").iterdir()):
        log = read_history(path)
        log.check()
        sizes[path.name.split(".")[0]] = (len(log), bool((log.request_s > 0).mean() > 0.9))
    assert sizes["NREL-eagle-sample"] == (1000, True)
    assert all(count >= 1000 and limits for count, limits in sizes.values())
