"""Recorded run times: every format gives its records, what is none is counted, and bad files name
themselves."""

import base64
import gzip
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgrads.kernel.errors import InputError
from vgrads.traces.task_files import FORMATS, read_task_records

TRACE = """\
task_id\thash\tnative_id\tname\tstatus\texit\tsubmit\tduration\trealtime\t%cpu\tpeak_rss\trchar\tcpus\tmemory
1\t61/07b59f\t101\tNF:QC:FASTQC (s1)\tCOMPLETED\t0\t2025-05-25 12:13:14.094\t2m 1s\t1m 3s\t80%\t1.5 GB\t9 GB\t4\t2 GB
2\t61/07b59e\t102\tNF:QC:FASTQC (s2)\tCACHED\t0\t2025-05-25 12:13:14.094\t2m 1s\t1m 3s\t80%\t1 GB\t9 GB\t4\t2 GB
3\t61/07b59d\t103\tNF:ALIGN (s1)\tFAILED\t137\t2025-05-25 12:13:14.094\t2h 1s\t1h 2m 3s\t80%\t1.9 GB\t9 GB\t4\t2 GB
4\t61/07b59c\t104\tNF:ALIGN (s2)\tFAILED\t1\t2025-05-25 12:13:14.094\t2s\t1s\t80%\t1 GB\t9 GB\t4\t2 GB
5\t61/07b59b\t105\tNF:ALIGN (s3)\tABORTED\t-\t2025-05-25 12:13:14.094\t-\t-\t-\t-\t-\t4\t2 GB
6\t61/07b59a\t106\tMERGE\tCOMPLETED\t0\t2025-05-25 12:13:14.094\t2s\t-\t-\t-\t-\t1\t-
7\t61/07b599\t107\tMERGE\tCOMPLETED\t0\t2025-05-25 12:13:14.094\t2s\t-5ms\t-\t0\t-\t1\t-
"""
RAW = (
    "name\tprocess\tstatus\trealtime\tpeak_rss\thostname\tstart\tcomplete\nA "
    "(x)\tA\tCOMPLETED\t62500\t1048576\tn7\t1700000000000\t1700000062500\n"
)
MEASURES = """\
label,machine,workflow,task,realtime,cpus,peak_rss,taskinputsize,workflowinputsize
train-1,local,atac,fastqc,127811,6,1114558464,931822514,11
test,n1,atac,fastqc,20,2,1,0,12
"""
EXTENDED = (
    "s\th:m:s\tmax_rss\trule_name\tthreads\tinput_size_mb\n"
    "2050.5\t0:34:10\t46.5\tPRIME\t3\t{'a.fas': 0.5, 'b.nh': 1.5}\n"
)
BENCHMARK = "s\th:m:s\tmax_rss\tmax_vms\n12.5\t0:00:12\t100\t-\n13.5\t0:00:13\tNA\t-\n"
SACCT = """\
JobID|JobName|State|Elapsed|Start|End|AllocCPUS|NNodes|NodeList|MaxRSS
7|align|COMPLETED|01:00:00|2024-01-01T00:00:00|2024-01-01T01:00:00|4|1|n1|
7.batch|batch|COMPLETED|01:00:00|2024-01-01T00:00:00|2024-01-01T01:00:00|4|1|n1|2048K
7.0|prog|COMPLETED|00:59:00|2024-01-01T00:00:00|2024-01-01T01:00:00|4|1|n1|1.5M
8|snakejob.sort.12.sh|TIMEOUT|1-00:00:00|2024-01-01T00:00:00|2024-01-02T00:00:00|8|2|n[1-2]|
9_1|nf-FASTQC_(s1)|OUT_OF_MEMORY|00:10:00|2024-01-01T00:00:00|2024-01-01T00:10:00|1|1|n2|
9_1.batch|batch|OUT_OF_MEMORY|00:10:00|2024-01-01T00:00:00|2024-01-01T00:10:00|1|1|n2|4G
10|x|FAILED|00:10:00|2024-01-01T00:00:00|2024-01-01T00:10:00|1|1|n2|
11|x|CANCELLED by 5|00:00:00|Unknown|2024-01-01T00:10:00|0|1|None assigned|
12|x|RUNNING|00:10:00|2024-01-01T00:00:00|Unknown|1|1|n2|
13|x|CANCELLED by 5|00:00:07|2024-01-01T00:00:00|2024-01-01T00:00:07|1|1|n2|
14|x|COMPLETED|00:00:07|2024-01-01T00:00:07|2024-01-01T00:00:00|1|1|n2|
"""
WF15 = {
    "name": "genome-20200402T023420Z-0",
    "schemaVersion": "1.5",
    "createdAt": "2020-04-03T12:05:15Z",
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "map_x_ID0000021", "id": "map_x_ID0000021", "inputFiles": ["a", "b"]},
                {"name": "NF.QC.FASTQC", "id": "NF.QC.FASTQC_6", "inputFiles": ["a", "lost"]},
                {"name": "stage_in_1", "id": "s", "type": "transfer"},
                {"name": "map_y_ID2", "id": "never ran"},
                {"name": "map_z_ID3", "id": "back"},
            ],
            "files": [{"id": "a", "sizeInBytes": 10}, {"id": "b", "sizeInBytes": 5}],
        },
        "execution": {
            "tasks": [
                {
                    "id": "map_x_ID0000021",
                    "runtimeInSeconds": 3.5,
                    "command": {"program": "map"},
                    "coreCount": 2,
                    "memoryInBytes": 99,
                    "machines": ["m1"],
                },
                {
                    "id": "NF.QC.FASTQC_6",
                    "runtimeInSeconds": 4,
                    "command": {"program": "\n fastqc \\\n -t 1"},
                },
                {"id": "back", "runtimeInSeconds": -4},
            ],
            "machines": [{"nodeName": "only"}],
        },
    },
}
WF14 = {
    "name": "w",
    "schemaVersion": "1.4",
    "workflow": {
        "tasks": [
            {
                "name": "sum_00000003",
                "type": "compute",
                "runtimeInSeconds": 2,
                "cores": 3,
                "machine": "m",
                "files": [
                    {"name": "i", "link": "input", "sizeInBytes": 7},
                    {"name": "o", "link": "output", "sizeInBytes": 9},
                ],
            }
        ]
    },
}
KICKSTART = """\
printed by the task: - nothing
- invocation: True
  version: 3.0
  transformation: "ns::preprocess:4.0"
  derivation: "ID0000001"
  wf-label: "diamond"
  wf-stamp: "2025-03-07T15:01:09-08:00"
  mainjob:
    start: 2025-03-12T12:39:36.754-07:00
    duration: 30.308
    usage:
      maxrss: 7208
    status:
      raw: RAW
      regular_exitcode: 0
    executable:
      file_name: /opt/x/preprocess
  machine:
    uname_nodename: corbusier
  files:
    f.a:
      lfn: "f.a"
      size: 61
    f.b1:
      lfn: "f.b1"
      size: 77
      output: True
---------------pegasus-multipart
- invocation: True
  transformation: "pegasus::transfer"
  mainjob:
    duration: 1.0
"""
INVOCATION = """\
noise before
<?xml version="1.0" encoding="ISO-8859-1"?>
<invocation xmlns="http://pegasus.isi.edu/schema/invocation" start="2007-09-11T11:19:23.202-07:00" duration="0.923" transformation="mImgtbl:3.0" derivation="mImgtbl1:1.0" wf-label="m" wf-stamp="s" hostname="viz-1">
  <mainjob start="2007-09-11T11:19:23.206-07:00" duration="0.919"><usage maxrss="10"/><status raw="0"><regular exitcode="0"/></status>
    <statcall error="0"><file name="/nfs/bin/mImgtbl">7F45</file></statcall></mainjob>
  <statcall error="0" id="initial" lfn="in.fits"><statinfo size="500"/></statcall>
  <statcall error="0" id="final" lfn="out.fits"><statinfo size="900"/></statcall>
</invocation>
"""
DAX = """\
<adag xmlns="http://pegasus.isi.edu/schema/DAX" name="test">
  <job id="ID1" namespace="Genome" name="map" runtime="103.52">
    <uses file="a" link="input" size="10"/><uses file="b" link="input" size="5"/><uses file="c" link="output" size="99"/></job>
  <job id="ID2" name="merge"/>
</adag>
"""
CONDOR = """\
000 (74.000.000) 2022-02-03 16:13:22 Job submitted from host: <130.209.45.81:9618?addrs=1&alias=login>
    DAG Node: align_ID0000007
...
000 (75.000.000) 2022-02-03 16:13:22 Job submitted from host: <130.209.45.81:9618?addrs=1&alias=login>
    DAG Node: sort_1
...
001 (74.000.000) 2022-02-03 16:14:00 Job executing on host: <130.209.45.82:9618?addrs=1&alias=node2&noUDP>
...
001 (75.000.000) 2022-02-03 16:14:00 Job executing on host: <10.0.0.1:9618>
\tSlotName: slot1_2@node3
...
004 (75.000.000) 2022-02-03 16:15:00 Job was evicted.
...
040 (74.000.000) 2022-02-03 16:15:30 Started transferring output files
...
005 (74.000.000) 2022-02-03 16:16:00 Job terminated.
\t(1) Normal termination (return value 0)
\tPartitionable Resources :    Usage  Request Allocated
\t   Cpus                 :                 1         4
\t   Memory (MB)          :        3        1      1024
...
001 (75.000.000) 2022-02-03 17:00:00 Job executing on host: <10.0.0.1:9618>
...
005 (75.000.000) 2022-02-03 17:00:01 Job terminated.
\t(1) Normal termination (return value 3)
...
"""
VALID = {
    "condor": CONDOR,
    "nextflow": TRACE,
    "measures": MEASURES,
    "benchmark": BENCHMARK,
    "sacct": SACCT,
    "wfformat": json.dumps(WF15, indent=1),
    "kickstart-yaml": KICKSTART.replace("RAW", "0"),
    "kickstart-xml": INVOCATION,
    "dax": DAX,
    "metadata": json.dumps(
        {"rule": "a", "input": [], "starttime": 1.7e9, "endtime": 1.7e9 + 5, "shellcmd": "bwa mem"}
    ),
}


def test_nextflow(write):
    read = read_task_records(write("odd.name", TRACE))
    qc, align = read.records
    assert read.format == "nextflow"
    assert dict(read.skipped) == {
        "cached": 1,
        "failed": 1,
        "aborted": 1,
        "no time": 1,
        "clock ran backwards": 1,
    }
    assert (qc.kind, qc.workflow, qc.task, qc.procs) == ("FASTQC", "NF:QC", "s1", 4)
    assert (qc.seconds, qc.finished, qc.memory_bytes) == (63.0, True, 1.5 * 2**30)
    assert qc.input_bytes is None  # rchar is what was read, not how large it is
    assert (align.kind, align.seconds, align.finished, align.memory_full) == (
        "ALIGN",
        3723.0,
        False,
        True,
    )


def test_nextflow_in_a_locale_with_decimal_commas(write):
    text = TRACE.replace("1.5 GB", "1,5 GB").replace("1m 3s", "63,5s").replace("80%", "80,5%")
    qc = read_task_records(write("t", text)).records[0]
    assert (qc.memory_bytes, qc.seconds) == (1.5 * 2**30, 63.5)
    assert qc.cpu_seconds == pytest.approx(63.5 * 0.805)


def test_a_killed_task_that_used_little_was_not_killed_for_memory(write):
    read = read_task_records(write("t", TRACE.replace("1.9 GB", "100 MB")))
    assert not read.records[1].finished and not read.records[1].memory_full


def test_raw_traces_count_milliseconds_and_commas_separate_as_well(write):
    for text in (RAW, RAW.replace("\t", ",")):
        (record,) = read_task_records(write("trace.txt", text)).records
        assert (record.seconds, record.memory_bytes, record.machine) == (62.5, 2.0**20, "n7")
        assert (record.kind, record.task, record.ended_at_s) == ("A", "x", 1700000062.5)


def test_measures(write):
    first, second = read_task_records(write("m.csv.gz", gzip.compress(MEASURES.encode()))).records
    assert (first.kind, first.seconds, first.workflow, first.machine) == (
        "fastqc",
        127.811,
        "atac",
        "local",
    )
    assert (first.input_bytes, first.memory_bytes, first.procs) == (931822514.0, 1114558464.0, 6)
    assert (first.run, second.run, second.input_bytes) == ("local/train-1/11", "n1/test/12", 0.0)


def test_what_the_caller_states_holds_for_all(write):
    read = read_task_records(
        write("m.csv", MEASURES), machine="here", workflow="mine", kinds={"fast*": "qc"}
    )
    assert {(r.machine, r.workflow, r.kind) for r in read.records} == {("here", "mine", "qc")}


def test_an_extended_benchmark_names_its_rule(write):
    (record,) = read_task_records(write("x.tsv", EXTENDED)).records
    assert (record.kind, record.procs, record.seconds) == ("PRIME", 3, 2050.5)
    assert (record.input_bytes, record.memory_bytes) == (2 * 2.0**20, 46.5 * 2**20)


def test_a_benchmark_as_lines_of_json(write):
    line = json.dumps(
        {
            "s": 1.5,
            "h:m:s": "0:00:01",
            "max_rss": "NA",
            "rule_name": "r",
            "threads": 2,
            "input_size_mb": {"a": 2},
        }
    )
    (record,) = read_task_records(write("benchmarks/x.jsonl", line + "\n")).records
    assert (record.kind, record.seconds, record.procs, record.input_bytes) == (
        "r",
        1.5,
        2,
        2 * 2.0**20,
    )


@pytest.mark.parametrize(
    ("places", "kinds"),
    [
        (
            ["benchmarks/align/s1.tsv", "benchmarks/align/s2.tsv", "benchmarks/sort/s1.tsv"],
            {"align": 4, "sort": 2},
        ),
        (["benchmarks/align.tsv", "benchmarks/sort.benchmark.txt"], {"align": 2, "sort": 2}),
        (
            ["benchmarks/s1.align.txt", "benchmarks/s2.align.txt", "benchmarks/s3.sort.txt"],
            {"align": 4, "sort": 2},
        ),
        (
            ["benchmarks/align.s1.txt", "benchmarks/align.s2.txt", "benchmarks/sort.s3.txt"],
            {"align": 4, "sort": 2},
        ),
        (["out/bench/deep/s/a.tsv.gz"], {"deep": 2}),
    ],
)
def test_places_of_benchmarks_name_rules(tmp_path, write, places, kinds):
    for place in places:
        write(place, gzip.compress(BENCHMARK.encode()) if place.endswith("gz") else BENCHMARK)
    write("benchmarks/notes.md", "nothing here\n")
    read = read_task_records(tmp_path)
    assert {
        k: sum(r.kind == k for r in read.records) for k in {r.kind for r in read.records}
    } == kinds
    assert dict(read.skipped) == {"file not understood": 1}
    assert {r.seconds for r in read.records} == {12.5, 13.5}  # a repeat is a run
    assert {r.memory_bytes for r in read.records} == {100 * 2.0**20, None}


def test_a_wrong_guess_of_a_rule_is_mended(tmp_path, write):
    write("benchmarks/s1/align.tsv", BENCHMARK)
    (kind,) = {r.kind for r in read_task_records(tmp_path, kinds={"*/align": "align"}).records}
    assert kind == "align"


def _metadata(write, output, **fields):
    name = base64.b64encode(output.encode()).decode()
    whole = {
        "rule": "sort",
        "input": ["in.txt"],
        "starttime": 1.7e9,
        "endtime": 1.7e9 + 5,
        "job_hash": 1,
        "incomplete": False,
    }
    return write(f".snakemake/metadata/{name}", json.dumps(whole | fields))


def test_outputs_of_a_single_job_are_a_single_run(tmp_path, write):
    os.utime(write("in.txt", "12345"), (1.6e9, 1.6e9))
    _metadata(write, "a", shellcmd="set -e; samtools sort in.txt")
    _metadata(write, "b", endtime=1.7e9 + 7, starttime=1.7e9 + 0.01)
    _metadata(write, "c", job_hash=2, incomplete=True)
    _metadata(write, "d", job_hash=3, endtime=1.7e9 - 7)
    _metadata(write, "e", job_hash=4, starttime=None)
    write(".snakemake/log/2024.log", "is ignored")
    read = read_task_records(tmp_path)
    (record,) = read.records
    assert (record.kind, record.seconds, record.input_bytes) == ("sort", 7.0, 5.0)
    assert (record.tool, record.ended_at_s) == ("samtools", 1.7e9 + 7)
    assert {k: n for k, n in read.skipped.items() if k != "file not understood"} == {
        "incomplete": 1,
        "clock ran backwards": 1,
        "no time": 1,
    }


def test_jobs_without_a_hash_are_distinguished_by_when_they_began(tmp_path, write):
    for number in range(3):
        _metadata(
            write, f"o{number}", job_hash=None, starttime=1.7e9 + number, endtime=1.7e9 + number + 2
        )
    assert [r.seconds for r in read_task_records(tmp_path).records] == [2.0] * 3


def test_sizes_of_inputs_are_reported_only_as_the_job_saw_them(tmp_path, write):
    os.utime(write("in.txt", "12345"), (1.8e9, 1.8e9))  # written after the job
    outside = write("secret", "1")
    os.utime(outside, (1.6e9, 1.6e9))
    for number, name in enumerate(["in.txt", "../secret", str(outside), "gone"]):
        place = base64.b64encode(str(number).encode()).decode()
        entry = {
            "rule": "r",
            "input": [name],
            "starttime": 1.7e9,
            "endtime": 1.7e9 + 1,
            "job_hash": number,
        }
        write(f"project/.snakemake/metadata/{place}", json.dumps(entry))
    os.utime(write("project/in.txt", "12345"), (1.8e9, 1.8e9))
    records = read_task_records(tmp_path / "project").records
    assert [r.input_bytes for r in records] == [None] * 4


def test_a_rule_with_benchmarks_is_not_read_twice(tmp_path, write):
    _metadata(write, "a")
    _metadata(write, "b", rule="other", job_hash=2)
    write(
        "benchmarks/s1/sort.tsv", BENCHMARK
    )  # the rule is known, so its folder is not taken for it
    read = read_task_records(tmp_path)
    assert sorted((r.kind, r.seconds) for r in read.records) == [
        ("other", 5.0),
        ("sort", 12.5),
        ("sort", 13.5),
    ]
    assert read.skipped == {"has a benchmark": 1} and read.format == "benchmark+metadata"


def test_sacct(write):
    read = read_task_records(write("dump", SACCT))
    align, sort, fastqc, cancelled = read.records
    assert read.skipped == {
        "failed": 1,
        "never started": 1,
        "not ended": 1,
        "clock ran backwards": 1,
    }
    assert (align.kind, align.seconds, align.finished, align.machine) == (
        "align",
        3600.0,
        True,
        "n1",
    )
    assert (align.memory_bytes, align.memory_full, align.procs) == (2 * 2.0**20, False, 4)
    assert align.ended_at_s == 1704070800.0
    assert (sort.kind, sort.seconds, sort.finished, sort.machine) == ("sort", 86400.0, False, "")
    assert (fastqc.kind, fastqc.finished, fastqc.memory_full, fastqc.memory_bytes) == (
        "FASTQC",
        False,
        True,
        4 * 2.0**30,
    )
    assert (cancelled.seconds, cancelled.finished) == (7.0, False)


def test_wfformat(write):
    read = read_task_records(write("w", json.dumps(WF15)))
    mapped, fastqc = read.records
    assert read.skipped == {"staging": 1, "no time": 1, "clock ran backwards": 1}
    assert (mapped.kind, mapped.workflow, mapped.seconds, mapped.input_bytes) == (
        "map",
        "genome",
        3.5,
        15.0,
    )
    assert (mapped.procs, mapped.memory_bytes, mapped.machine, mapped.tool) == (
        2,
        99.0,
        "m1",
        "map",
    )
    assert mapped.run == fastqc.run != ""
    assert (fastqc.kind, fastqc.input_bytes, fastqc.tool, fastqc.machine) == (
        "FASTQC",
        None,
        "fastqc",
        "only",
    )
    (old,) = read_task_records(write("w4", json.dumps(WF14))).records
    assert (old.kind, old.seconds, old.procs, old.machine, old.input_bytes) == (
        "sum",
        2.0,
        3,
        "m",
        7.0,
    )


@pytest.mark.parametrize(
    ("raw", "result"),
    [
        ("0", [True]),
        ("9", [False]),
        ("35072", [False]),
        ("256", []),
        ("11", []),
        ("15", [False]),
    ],  # 35072: exit 137
)
def test_kickstart_as_yaml(write, raw, result):
    read = read_task_records(write("job.out.000", KICKSTART.replace("RAW", raw)))
    assert [r.finished for r in read.records] == result
    assert read.skipped == ({"staging": 1} if result else {"staging": 1, "failed": 1})
    for record in read.records:
        assert (record.kind, record.task, record.workflow, record.tool) == (
            "preprocess",
            "ID0000001",
            "diamond",
            "preprocess",
        )
        assert (record.seconds, record.memory_bytes, record.input_bytes, record.machine) == (
            30.308,
            7208 * 1024,
            61.0,
            "corbusier",
        )


def test_kickstart_as_xml_and_dax(write):
    task_record, two = read_task_records(write("k.out", INVOCATION + INVOCATION)).records
    assert task_record == two
    assert (
        task_record.kind,
        task_record.seconds,
        task_record.memory_bytes,
        task_record.input_bytes,
    ) == (
        "mImgtbl",
        0.919,
        10240.0,
        500.0,
    )
    assert (task_record.machine, task_record.tool, task_record.workflow, task_record.run) == (
        "viz-1",
        "mImgtbl",
        "m",
        "s",
    )
    read = read_task_records(write("d.xml", DAX))
    assert [(r.kind, r.seconds, r.workflow, r.input_bytes) for r in read.records] == [
        ("map", 103.52, "Genome", 15.0)
    ]
    assert read.skipped == {"no time": 1}


def test_condor(write):
    read = read_task_records(write("w.nodes.log", CONDOR))
    sort, align = read.records
    assert read.skipped == {"failed": 1}
    assert (align.kind, align.seconds, align.finished, align.machine) == (
        "align",
        90.0,
        True,
        "node2",
    )
    assert (align.procs, align.memory_bytes, align.task) == (4, 3 * 2.0**20, "align_ID0000007")
    assert (sort.kind, sort.seconds, sort.finished, sort.machine) == ("sort", 60.0, False, "node3")
    over_new_year = (
        CONDOR.replace("2022-02-03 16:14", "12/31 23:59")
        .replace("2022-02-03", "01/01")
        .replace("16:1", "00:1")
    )
    assert [r.seconds for r in read_task_records(write("old.log", over_new_year)).records] == [
        16 * 60.0,
        16 * 60.0 + 30,
    ]


def test_broken_lines_are_counted_and_a_file_of_most_is_refused(write, tmp_path):
    item = SACCT + "15|cut off\n"
    unused = read_task_records(write("one", item)).report.not_used
    assert [(bad.records, bad.first_line) for bad in unused.values()] == [(1, 13)]
    with pytest.raises(InputError, match=r"two: line 13: .*40 of"):
        read_task_records(write("two", item + "16|again\n" * 39))
    assert read_task_records(tmp_path / "two", force=True).records
    with pytest.raises(InputError, match="line 2: realtime: 'soon' is not a time"):
        read_task_records(write("three", "name\tstatus\trealtime\nA\tCOMPLETED\tsoon\n"))
    whole, quoted = MEASURES, MEASURES.replace("train-1", '"train-1')
    assert len(read_task_records(write("quote", quoted)).records) == len(
        read_task_records(write("whole", whole)).records
    )


@pytest.mark.parametrize(
    ("body", "output"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"\x00\x01\x02" * 99, "is not a text file"),
        (b"\xff\xfe s\n", "not UTF-8"),
        (TRACE.splitlines()[0].encode(), "contains no records"),
        (b"s,h:m:s\n1,0:00:01\n", "not a record of run times"),
        (b"s h:m:s max_rss\n1 0:00:01 4\n", "not a record of run times"),
        (b"\x1f\x8b\x08cut", "cut off or damaged"),
        (b"{", "not valid JSON"),
        (b"[1]", "not a record"),
        (b'{"workflow": 3}', "no field 'workflow'"),
        (b"{}", "not a record"),
        (b'<!DOCTYPE x [<!ENTITY a "b">]><adag name="&a;"/>', "document type"),
        (b"<adag>", "not valid XML"),
        (b"<adag/>", "no jobs"),
    ],
)
def test_bad_files_name_themselves(write, body, output):
    with pytest.raises(InputError, match=output) as caught:
        read_task_records(write("bad.file", body))
    assert "bad.file" in caught.value.where


def test_nothing_at_a_place(tmp_path):
    for place in (tmp_path / "gone", tmp_path):
        with pytest.raises(InputError) as caught:
            read_task_records(place)
        assert str(place) in caught.value.where


def test_a_pipe_is_refused_and_passed_over(tmp_path, write):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="read twice"):
        read_task_records(tmp_path / "pipe")
    write("trace.txt", TRACE)
    assert len(read_task_records(tmp_path).records) == 2


def test_json_in_a_single_long_line(write):
    padded = json.dumps(WF15 | {"description": "x" * (5 << 20)})
    assert len(read_task_records(write("w.json", padded)).records) == 2


def test_each_format_is_shown_here():
    assert set(VALID) == set(FORMATS)


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_mangled_files_are_read_or_refused_by_name(write, data):
    """A byte put in, taken out or doubled anywhere: an InputError that names the file, or sound
    records."""
    body = bytearray(VALID[data.draw(st.sampled_from(sorted(VALID)))].encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        length = data.draw(st.integers(0, 40))
        put = data.draw(
            st.one_of(
                st.binary(max_size=3),
                st.sampled_from(
                    [
                        b"\t",
                        b"|",
                        b",",
                        b"\n",
                        b'"',
                        b"-",
                        b"9" * 400,
                        b"1e999",
                        b"nan",
                        b"[",
                        b"{}",
                        b"null",
                    ]
                ),
            )
        )
        body[at : at + length] = put
        if not body:
            return
    path = write("mangled", bytes(body))
    try:
        read = read_task_records(path)
    except InputError as error:
        assert str(path) in error.where
        return
    assert read.records or read.skipped
    for record in read.records:
        assert record.kind and 0 <= record.seconds < float("inf") and record.procs >= 1
        assert record.input_bytes is None or 0 <= record.input_bytes < float("inf")
        assert record.memory_bytes is None or 0 < record.memory_bytes < float("inf")


@pytest.mark.shared
def test_real_records(shared):
    for place, count in (
        ("nextflow/atacseq-local.csv.gz", 308),
        ("sacct/NREL-eagle-sample.csv.gz", 1000),
        ("workflows/dax/Epigenomics_24.xml", 24),
        ("workflows/wfformat/rnaseq-dirt02-001.json", 197),
    ):
        read = read_task_records(shared / place)
        assert len(read.records) == count and not read.skipped
    kinds = {r.kind for r in read.records}
    assert "SALMON_QUANT" in kinds and not any(k[-1:].isdigit() and "_" in k[-3:] for k in kinds)


def test_a_dump_that_is_cut_off_is_read_up_to_there(tmp_path):
    head = SACCT.splitlines()[0]
    body = next(line for line in SACCT.splitlines()[1:] if "COMPLETED" in line)
    rest = body.partition("|")[2]
    lines = [head, *(f"{n}|{rest}" for n in range(1, 5001))]
    whole = gzip.compress("\n".join(lines).encode())
    path = tmp_path / "dump.gz"
    path.write_bytes(whole[: len(whole) // 2])
    read = read_task_records(path)
    assert 0 < len(read.records) < 5000
    assert read.skipped["rest, since the file is cut off"] == 1
