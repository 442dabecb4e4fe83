"""Histories as people have them: right values, or a reason for each record that is not used."""

import gzip

import pytest

from vgrads.kernel.errors import InputError
from vgrads.traces.history import read_history
from vgrads.traces.plausibility import count_peak_procs, find_more_than_stated
from vgrads.traces.reading_options import ReadingOptions
from vgrads.traces.report import Unused

HEADER = "JobID|User|Partition|Submit|Eligible|Start|End|State|NCPUS|Timelimit"
D = "2025-03-03T"


def slurm(*rows, header=HEADER):
    return "\n".join([header, *rows]) + "\n"


def waits(log):
    return list(zip(log.wait_s.tolist(), log.started.tolist(), log.procs.tolist(), strict=True))


def pbs(stamp, kind, job, **fields):
    names = {"user": "u", "queue": "q"} | {
        k.replace("List_", "List."): v for k, v in fields.items()
    }
    return f"{stamp};{kind};{job};" + " ".join(f"{k}={v}" for k, v in names.items()) + "\n"


def test_a_job_waits_from_when_it_could_start(write):
    log = read_history(
        write(
            "a",
            slurm(
                f"1|u|p|{D}10:00:00|{D}12:00:00|{D}12:00:10|{D}12:30:00|COMPLETED|4|1:00:00",
                f"2|u|p|{D}10:00:00|Unknown|Unknown|{D}11:00:00|CANCELLED by 7|4|1:00:00",
                f"3|u|p|{D}10:00:00|{D}10:30:00|Unknown|{D}11:00:00|CANCELLED by 7|4|1:00:00",
            ),
        )
    )
    assert waits(log) == [(1800.0, False, 4), (10.0, True, 4)]
    assert log.report.not_jobs == {
        "header": 1,
        "never eligible job": 1,
    }
    assert not log.report.notes


def test_records_of_slurm_that_are_no_jobs_are_counted_apart(write):
    row = f"{D}10:00:00|{D}10:00:00|{D}10:10:00|{D}11:00:00|COMPLETED|4|1:00:00"
    never = f"{D}10:00:00|{D}10:00:00|Unknown|{D}11:00:00|CANCELLED by 7|4|1:00:00"
    log = read_history(
        write(
            "a",
            slurm(
                f"1|u|p|{row}",
                f"1.batch|||{row}",
                f"2_[3-9%2]|u|p|{never}",
                f"2_1|u|p|{row}",
                f"4|u|p|{row.replace('COMPLETED', 'REVOKED')}",
                f"5+0|u|p|{row}",
                f"5+1|u|p|{row.replace('|4|', '|12|')}",
                f"6|u|p|{row.replace(f'{D}11:00:00', 'Unknown').replace('COMPLETED', 'RUNNING')}",
                f"7|u|p|{D}10:00:00|{D}10:00:00|Unknown|Unknown|PENDING|4|1:00:00",
                HEADER,
                f"6|u|p|{row}",
            ),
        )
    )
    assert waits(log) == [(600.0, True, n) for n in (4, 4, 16, 4)]
    assert sum(log.report.not_jobs.values()) == 8
    assert log.report.not_jobs["repeated record"] == 1
    assert (log.run_s == 3000.0).all()


def test_requeued_attempts_are_jobs_and_tasks_without_an_index_are_not_repeated(write):
    first = f"{D}10:00:00|{D}10:00:00|{D}10:10:00|{D}10:20:00|NODE_FAIL|4|1:00:00"
    again = f"{D}10:20:00|{D}10:22:00|{D}10:30:00|{D}11:20:00|COMPLETED|4|1:00:00"
    log = read_history(write("a", slurm(*(f"1|u|p|{row}" for row in (first, again, again)))))
    assert waits(log) == [(600.0, True, 4), (480.0, True, 4), (480.0, True, 4)]


def test_jobs_of_several_clusters_are_refused(write, tmp_path):
    row = f"{D}10:00:00|{D}10:00:00|{D}10:10:00|{D}11:00:00|COMPLETED|4|1:00:00"
    text = slurm(f"1|u|p|{row}|a", f"1|u|p|{row}|b", header=f"{HEADER}|Cluster")
    with pytest.raises(InputError, match=r"several clusters: a 1, b 1 .*--clusters"):
        read_history(write("a", text))
    assert len(read_history(tmp_path / "a", ReadingOptions(force=True))) == 2


def test_local_times_over_a_change_of_the_clock(write, tmp_path):
    spring = ["2025-03-30T01:30:00", "Unknown", "2025-03-30T04:30:00", "2025-03-30T05:30:00"]
    autumn = ["2025-10-26T02:50:00", "Unknown", "2025-10-26T02:10:00", "2025-10-26T05:10:00"]
    rows = ["|".join([*"1up", *times, "COMPLETED|4|1:00:00"]) for times in (spring, autumn)]
    write("a", slurm(*rows))
    log = read_history(tmp_path / "a", ReadingOptions(zone="Europe/Berlin"))
    assert log.wait_s.tolist() == [7200.0, 1200.0]
    assert log.run_s.tolist() == [3600.0, 3 * 3600.0]
    assert read_history(tmp_path / "a").report.not_used == {
        "with a start before the submission": Unused(1, 3)
    }
    with pytest.raises(InputError, match=r"--zone: unknown time zone 'Europe/Nowhere'"):
        read_history(tmp_path / "a", ReadingOptions(zone="Europe/Nowhere"))


@pytest.mark.parametrize("mark", ["|", "\t", ";", ",", "^|^", "^", "~"])
def test_a_table_without_a_header_needs_its_columns(write, tmp_path, mark):
    row = f"1|u|p|{D}10:00:00|{D}10:00:00|{D}10:10:00|{D}11:00:00|COMPLETED|4|1:00:00"
    write("a", (row + "\n").replace("|", mark))
    columns = ReadingOptions(columns=tuple(HEADER.split("|")))
    assert waits(read_history(tmp_path / "a", columns)) == [(600.0, True, 4)]
    if mark != "~":
        with pytest.raises(InputError, match=r"no header .*--columns"):
            read_history(tmp_path / "a")
    with pytest.raises(InputError, match="does not have 2 columns"):
        read_history(tmp_path / "a", ReadingOptions(columns=("JobID", "User")))


def test_files_of_windows_and_of_powershell(write):
    text = slurm(f"1|u|p|{D}10:00:00|{D}10:00:00|{D}10:10:00|{D}11:00:00|COMPLETED|4|1:00:00")
    for name, body in {
        "bom": text.encode("utf-8-sig") * 2,
        "crlf": text.replace("\n", "\r\n").encode(),
        "utf-16": text.encode("utf-16"),
        "packed utf-16": gzip.compress(text.encode("utf-16")),
        "latin": text.replace("|u|", "|jürgen|").encode("latin-1"),
    }.items():
        log = read_history(write(name, body))
        assert waits(log) == [(600.0, True, 4)], name
        assert log.report.notes == (
            ("1 line is not UTF-8: other bytes are written as \\x..",) if name == "latin" else ()
        )


def test_lines_below_a_row_continue_its_last_column_if_they_can(write):
    row = f"1|u|p|{D}10:00:00|{D}10:00:00|{D}10:10:00|{D}11:00:00|COMPLETED|4|1:00:00"
    below = f"{row}|a\nsecond line\na|bar\n{row}|b\n2|{D}10\n"
    for column, bad in (("SubmitLine", 1), ("JobName", 2)):
        log = read_history(write(column, f"{HEADER}|{column}\n{below}"))
        assert waits(log) == [(600.0, True, 4)] * 2
        assert log.report.not_jobs == {"header": 1, "continued line": 3 - bad}
        assert log.report.unused == bad


def test_a_header_with_an_open_quote_lacks_that_column(write):
    row = f"1;u;p;{D}10:00:00;{D}10:00:00;{D}10:10:00;{D}11:00:00;COMPLETED;4;1:00:00"
    header = HEADER.replace("|", ";").replace("Timelimit", '"Timelimit')
    assert waits(read_history(write("a", f"{header}\n{row}\n"))) == [(600.0, True, 4)]


def test_padded_tables_keep_their_columns(write):
    text = (
        "JobID    User Submit              Start               End                 NCPUS\n"
        "-------- ---- ------------------- ------------------- ------------------- -----\n"
        f"1        u    {D}10:00:00 {D}10:10:00 {D}11:00:00     4\n"
        f"1.batch       {D}10:00:00 {D}10:10:00 {D}11:00:00     4\n"
        f"2        u    {D}10:00:0\n"
    )
    log = read_history(write("a", text))
    assert waits(log) == [(600.0, True, 4)]
    assert log.report.unused == 1


def test_each_start_of_a_job_of_pbs_that_ran_again_is_an_attempt(write):
    base = 1776758400
    common = {"qtime": base, "ctime": base, "Resource_List_select": "2:ncpus=4"}
    text = (
        pbs("04/21/2026 08:00:00", "Q", "1.srv")
        + pbs("04/21/2026 08:00:10", "S", "1.srv", **common, etime=base, start=base + 10)
        + pbs("04/21/2026 09:00:00", "R", "1.srv")
        + pbs("04/21/2026 09:05:00", "S", "1.srv", **common, etime=base, start=base + 3900)
        + pbs("04/21/2026 10:00:00", "E", "1.srv", **common, start=base + 3900, end=base + 7200)
        + pbs("04/21/2026 10:00:00", "Q", "2[].srv")
        + "04/21/2026 10:00:01;L;license;floating\n"
        + pbs("04/21/2026 10:00:02", "?", "3.srv")
    )
    log = read_history(write("a", text))
    assert waits(log) == [(10.0, True, 8), (300.0, True, 8)]
    assert log.report.not_jobs == {
        "further record": 3,
        "array parent": 1,
        "licence record": 1,
    }
    assert log.report.not_used == {"of the unknown type '?'": Unused(1, 8)}


@pytest.mark.parametrize(
    ("fields", "procs"),
    [
        ({"exec_host": "n1/0+n1/1+n2/0"}, 3),
        ({"exec_host": "n1/0-3,6+n2/0-1"}, 7),
        ({"exec_host": "n1/0*16+n2/0*16"}, 32),
        ({"exec_vnode": "(n1:ncpus=8:mem=4kb)+(n2:ncpus=4)"}, 12),
        ({"Resource_List_ncpus": "1", "Resource_List_nodes": "2:sb:ppn=8"}, 16),
        ({"Resource_List_nodes": "n1:ppn=8+n2:super:ppn=4+3:small"}, 15),
        ({"Resource_List_select": "2:ncpus=8:mpiprocs=8+1:ncpus=4"}, 20),
        ({"Resource_List_procs": "24"}, 24),
        ({"Resource_List_nodect": "3"}, 3),
        ({}, 1),
    ],
)
def test_processors_of_pbs_are_the_largest_number(write, fields, procs):
    base = 1776758400
    times = {"qtime": base, "start": base + 10, "end": base + 20}
    log = read_history(write("a", pbs("04/21/2026 08:00:20", "E", "1.srv", **times, **fields)))
    assert log.procs.tolist() == [procs]
    assert bool(log.report.notes) == (not fields)


def sge(job, submit, start, end, request="-l h_rt=7200", name="name", task=0, slots=4):
    head = ["all.q", "host", "g", "ann", name, job, "sge", 0, submit, start, end, 0, 0, 60]
    tail = ["p", "d", "mpi", slots, task, 0, 1, 1, request, "0.0", "NONE", "0.0"]
    return ":".join(map(str, [*head, *["0"] * 17, *tail])) + "\n"


def test_colons_in_names_and_requests_of_grid_engine(write):
    text = (
        sge(1, 100, 160, 200, "-l h_rt=24:00:00")
        + sge(2, 100, 170, 200, "-q a@b:c -l h_rt=02:00:00,h_vmem=1G", name="a:b:c")
        + sge(3, 100, 0, 200, "-l mem=1G -pe smp 16", slots=0)
        + sge(4, 100, 150, 200)
        + sge(4, 100, 400, 500)  # it ran again
        + sge(5, 100, 150, 200, "-l h_rt=1").rstrip("\n")
        + ":0:0:qsub -hold_jid 4 x.sh\n"
    )
    log = read_history(write("a", text))
    assert waits(log) == [
        (60.0, True, 4),
        (70.0, True, 4),
        (100.0, False, 16),
        (50.0, True, 4),
        (200.0, True, 4),
    ]
    assert log.request_s.tolist() == [86400, 7200, -1, 7200, 7200]
    assert log.report.not_used == {"held for other jobs for an unknown time": Unused(1, 6)}


def many(count, row):
    """A history of so many jobs in SWF; ``row``: submit, wait, run, processors, request, user."""
    lines = []
    for n in range(count):
        submit, wait, run, procs, request, user = row(n)
        lines.append(
            f"{n} {submit} {wait} {run} {procs} -1 -1 {procs} {request} -1 1 {user} "
            "-1 -1 1 -1 -1 -1"
        )
    return "; UnixStartTime: 1700000000\n; MaxProcs: 64\n" + "\n".join(lines) + "\n"


def plain(n):
    return 600 * n, 10 + n, 60, 2 + n % 3, 3600, n % 7


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        (plain, None),
        (lambda n: (*plain(n)[:3], 1, *plain(n)[4:]), "every job has 1 processor"),
        (lambda n: (*plain(n)[:2], 5000, *plain(n)[3:]), "are minutes read as seconds"),
        (lambda n: (*plain(n)[:5], 3), "all jobs are of one user"),
        (lambda n: (600 * n, 0 if n % 2 else n, *plain(n)[2:]), "of the waits are 0"),
        (lambda n: (plain(n)[0] + 2_000_000 * (n > 90), *plain(n)[1:]), "no job was submitted for"),
        (lambda n: (plain(n)[0] + 10**10, *plain(n)[1:]), "ends in the future"),
        (lambda n: (0, 1, 500, 60, 3600, n % 7), "processors ran jobs at once, 64 are stated"),
    ],
)
def test_unlikely_values_are_named_with_their_cause(write, row, cause):
    warnings = read_history(write("a.swf", many(200, row))).warnings
    assert len(warnings) == (cause is not None), warnings
    assert cause is None or cause in warnings[0]


def test_a_site_that_is_smaller_than_its_history(write):
    log = read_history(write("a.swf", many(200, lambda n: (n, 0, 500, 4, 3600, n % 7))))
    assert count_peak_procs(log) == 4 * 200
    assert list(find_more_than_stated(log, 800)) == []
    (text,) = find_more_than_stated(log, 64)
    assert "800 processors ran jobs at once, 64 are stated" in text


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("JobId=1 UserId=ann(1) Name=a JobState=COMPLETED\n", "job completion file.*sacct"),
        ("JobId=1 JobName=a\n   UserId=ann(1)\n", "scontrol show job.*sacct"),
        ("  JOBID PARTITION     NAME     USER ST TIME\n 1 p a u R 1\n", "squeue.*sacct"),
        ("=" * 62 + "\nqname        all.q\n", "qacct -j.*accounting"),
        ("job-ID  prior   name       user\n-----\n", "qstat.*accounting"),
        ("Job Id: 1.srv\n    Job_Name = a\n", "qstat -f.*accounting"),
        ("<Data><Job><Job_Id>1</Job_Id></Job></Data>\n", "qstat -x.*accounting"),
        ('{\n "timestamp": 1,\n "pbs_version": "20"\n}\n', "qstat -F json.*accounting"),
        ("JOBID   USER    STAT  QUEUE\n1 u RUN q\n", "bjobs.*lsb.acct"),
        ("Job <1>, User <u>\n", "bhist.*lsb.acct"),
        ('"JOB_NEW" "10.1" 1700000000 1\n', "lsb.events.*lsb.acct"),
        ('<?xml version="1.0"?>\n<classads>\n', "condor_history -xml.*-long"),
        (" ID     OWNER   SUBMITTED   RUN_TIME\n 1.0 u\n", "condor_history.*-long"),
        ("001 (1.0.0) 2024-01-01 10:00:00 Job\n", "log of events.*-long"),
        ("hello\n", "unknown history format.*understood: SWF"),
    ],
)
def test_other_files_are_named_with_the_command_that_helps(write, text, what):
    with pytest.raises(InputError, match=what) as caught:
        read_history(write("a", text))
    assert "\n" not in str(caught.value)


def test_a_folder_and_a_cut_off_archive(write, tmp_path):
    with pytest.raises(InputError, match=r"is a folder, not a file|cannot be read"):
        read_history(tmp_path)
    text = slurm(
        *(
            f"{n}|u|p|{D}10:00:00|{D}10:00:00|{D}10:10:00|{D}11:00:{n % 60:02}|COMPLETED|4|1:00:00"
            for n in range(5000)
        )
    )
    cut = write("cut.gz", gzip.compress(text.encode())[:-2000])
    with pytest.raises(InputError, match="cut off"):
        read_history(cut)
    part = read_history(cut, ReadingOptions(force=True))
    assert 100 < len(part) < 5000
    growing = read_history(write("growing", text[:-30]))
    assert len(growing) == 4999
    assert growing.report.unused == 1


def test_the_named_cases(shared):
    """Each case of the shared folder has a README with what is right."""
    right = {
        "sacct-alloccpus-zero": ("procs", [256, 256]),
        "sacct-bom-steps": ("wait_s", [600, 900]),
        "sacct-concatenated": ("wait_s", [600, 900, 600, 900]),
        "sacct-delimiter": ("wait_s", [600, 900]),
        "sacct-eligible": ("wait_s", [10, 20, 10]),
        "sacct-newline-in-submitline": ("wait_s", [10, 1810, 20]),
        "sacct-pipe-in-name": ("wait_s", [10, 1810, 20, 80]),
        "sacct-timelimitraw": ("request_s", [86400, 3600, -1, -1]),
        "pbs-etime-dependency": ("wait_s", [10, 10]),
        "pbs-exec-host-only": ("procs", [26, 28]),
        "pbs-named-nodes": ("procs", [16, 15]),
        "pbs-torque-ncpus": ("procs", [16, 4]),
        "sge-colon-in-request": ("request_s", [86400, 7200, 7200]),
        "sge-request-last": ("request_s", [7200, 7200, 7200]),
    }
    cases = shared.parent / "cases"
    for name, (column, values) in right.items():
        files = [path for path in (cases / name).iterdir() if path.name != "README"]
        assert files
        for path in files:
            log = read_history(path)
            assert getattr(log, column).tolist() == values, path
            assert log.report.complete


def test_jobs_that_wait_when_a_dump_is_taken_are_the_queue(write, tmp_path):
    log = read_history(
        write(
            "a",
            slurm(
                f"1|u|p|{D}10:00:00|{D}10:00:00|{D}10:10:00|{D}11:00:00|COMPLETED|4|1:00:00",
                f"2|u|p|{D}10:00:00|{D}10:00:00|{D}10:40:00|Unknown|RUNNING|4|1:00:00",
                f"3_[2-100%1]|u|p|{D}10:20:00|{D}10:20:00|Unknown|Unknown|PENDING|2|0:10:00",
                f"4|v|p|{D}10:20:00|Unknown|Unknown|Unknown|PENDING|8|1:00:00",
                f"5|v|p|{D}10:30:00|{D}10:30:00|Unknown|Unknown|PENDING|8|1:00:00",
                HEADER,
                f"5|v|p|{D}10:30:00|{D}10:30:00|{D}10:50:00|Unknown|RUNNING|8|1:00:00",
            ),
        )
    )
    assert waits(log) == [(600.0, True, 4), (2400.0, True, 4), (1200.0, True, 8)]
    assert len(log.waiting) == 99
    assert set(log.waiting.procs) == {2} and set(log.waiting.request_s) == {600.0}
    assert log.waiting.taken_s == log.end_s == 3600.0
    assert log.report.not_jobs["not yet eligible job"] == 1
    later = ReadingOptions(taken_at_s=log.unix_start_s + 7200.0)
    assert read_history(tmp_path / "a", later).end_s == 7200.0
    earlier = ReadingOptions(taken_at_s=log.unix_start_s + 600.0)
    assert len(read_history(tmp_path / "a", earlier).waiting) == 0
