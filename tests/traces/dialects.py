"""Writers of one log in every dialect of accounting that is read: what a site would have."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from vgrads.traces.gwf import write_gwf
from vgrads.traces.records import JobLog
from vgrads.traces.swf import write_swf

COLUMN_SETS = {
    "as asked for": (
        "|",
        "JobID|User|Partition|Submit|Eligible|Start|End|State|Timelimit|AllocCPUS|ReqCPUS",
    ),
    "any order": ("|", "ReqCPUS|End|Start|Submit|State|Partition|User|Timelimit|JobIDRaw"),
    "minutes": ("|", "JobIDRaw|User|Partition|Submit|Start|End|State|TimelimitRaw|NCPUS"),
    "no request": ("|", "JobID|User|Partition|Submit|Start|End|State|NCPUS"),
    "resources": (
        "|",
        "JobID|User|Partition|Submit|Start|End|State|Timelimit|ReqTRES|AllocTRES",
    ),
    "names with bars": (
        "|",
        "JobID|JobName|User|Partition|Submit|Start|End|State|NCPUS|Timelimit",
    ),
    "script last": (
        "|",
        "JobID|User|Partition|Submit|Start|End|State|NCPUS|Timelimit|SubmitLine",
    ),
    "carets": ("^|^", "JobID|JobName|User|Partition|Submit|Start|End|State|NCPUS|Timelimit"),
    "tabs": ("\t", "JobID|User|Partition|Submit|Start|End|State|NCPUS|Timelimit"),
    "semicolons": (";", "JobID|User|Partition|Submit|Start|End|State|NCPUS|Timelimit"),
    "commas": (",", "JobID|JobName|User|Partition|Submit|Start|End|State|NCPUS|Timelimit"),
    "bar at the end": ("|", "JobID|User|Partition|Submit|Start|End|State|NCPUS|Timelimit|"),
}
NAMES = ("a", "crazy|name", 'say "hi"', "two\nlines", "comma, too", "")


class Row(NamedTuple):
    """A job: instants in seconds since 1970; ``start`` None: it never started."""

    number: int
    submit: int
    start: int | None
    end: int
    procs: int
    request: int
    user: str
    queue: str


def rows_of(log: JobLog) -> list[Row]:
    """The jobs of a log of whole seconds."""
    zero = int(log.unix_start_s)
    left = (log.submit_s + log.wait_s).astype(int) + zero
    return [
        Row(
            number=n + 1,
            submit=int(log.submit_s[n]) + zero,
            start=int(left[n]) if log.started[n] else None,
            end=int(left[n] + max(log.run_s[n], 0)),
            procs=int(log.procs[n]),
            request=int(log.request_s[n]),
            user=f"u{log.user[n]}",
            queue=f"q{log.queue[n]}",
        )
        for n in range(len(log))
    ]


def in_minutes(log: JobLog) -> JobLog:
    """The log with requested times of whole minutes."""
    return replace(log, request_s=np.maximum(60.0, np.ceil(log.request_s / 60.0) * 60.0))


def iso(unix_s: int | None) -> str:
    """The instant as sacct writes it, in UTC."""
    if unix_s is None:
        return "None"
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def clock(seconds: int) -> str:
    """A duration as sacct writes it."""
    days, rest = divmod(seconds, 86400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def write_sacct(log: JobLog, kind: str) -> str:
    """A dump with steps below each tenth job."""
    mark, header = COLUMN_SETS[kind]
    names = header.split("|")
    lines = [mark.join(names)]
    for row in rows_of(log):
        lines.append(mark.join(_sacct_cell(name, row, mark) for name in names))
        if row.number % 10 == 0 and "JobID" in names:
            step = {"JobID": f"{row.number}.batch", "State": "COMPLETED"}
            times = {"Submit": iso(row.submit), "Start": iso(row.start), "End": iso(row.end)}
            lines.append(mark.join({**step, **times}.get(name, "") for name in names))
    return "\n".join(lines) + "\n"


def _sacct_cell(name: str, row: Row, mark: str) -> str:
    allocated = row.procs if row.start is not None else 0
    text = NAMES[row.number % len(NAMES)]
    if mark == ",":
        text = '"' + text.replace('"', '""') + '"'
    return {
        "JobID": str(row.number),
        "JobIDRaw": str(row.number),
        "JobName": text,
        "SubmitLine": f"sbatch --wrap {text}",
        "User": row.user,
        "Partition": row.queue,
        "Submit": iso(row.submit),
        "Eligible": iso(row.submit),
        "Start": iso(row.start),
        "End": iso(row.end),
        "State": "COMPLETED" if row.start is not None else "CANCELLED by 7",
        "Timelimit": clock(row.request),
        "TimelimitRaw": str(row.request // 60),
        "AllocCPUS": str(allocated),
        "NCPUS": str(row.procs),
        "ReqCPUS": str(row.procs),
        "AllocTRES": f"billing=1,cpu={row.procs},node=1" if allocated else "",
        "ReqTRES": f"cpu={row.procs},mem=4G,node=1",
        "": "",
    }[name]


def write_sacct_json(log: JobLog) -> str:
    """``sacct --json`` of Slurm 23."""
    jobs = [
        {
            "job_id": row.number,
            "association": {"cluster": "c", "user": row.user},
            "partition": row.queue,
            "state": {"current": ["COMPLETED" if row.start is not None else "CANCELLED"]},
            "time": {
                "submission": row.submit,
                "eligible": row.submit,
                "start": row.start or 0,
                "end": row.end,
                "limit": {"set": True, "infinite": False, "number": row.request // 60},
            },
            "required": {"CPUs": row.procs},
            "tres": {"allocated": [{"type": "cpu", "count": row.procs}] if row.start else []},
            "steps": [{"step": {"id": f"{row.number}.batch"}}],
        }
        for row in rows_of(log)
    ]
    return json.dumps({"meta": {}, "jobs": jobs})


def _stamp(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%m/%d/%Y %H:%M:%S")


def write_torque(log: JobLog) -> str:
    """Torque: ``ncpus=1`` beside nodes, one entry of ``exec_host`` for each processor."""
    lines = []
    for row in rows_of(log):
        requested = f"Resource_List.ncpus=1 Resource_List.nodes=1:ppn={row.procs}"
        hosts = "+".join(f"n1/{core}" for core in range(row.procs))
        lines += _pbs_lines(row, requested, f"exec_host={hosts}")
    return _sorted_by_stamp(lines)


def write_pbspro(log: JobLog) -> str:
    """PBS Professional: chunks, and hosts with a number of processors."""
    lines = []
    for row in rows_of(log):
        requested = f"Resource_List.ncpus={row.procs} Resource_List.select=1:ncpus={row.procs}"
        lines += _pbs_lines(row, requested, f"exec_host=n1/0*{row.procs}")
    return _sorted_by_stamp(lines)


def _sorted_by_stamp(lines: list[tuple[int, str]]) -> str:
    return "".join(line for _, line in sorted(lines, key=lambda pair: pair[0]))


def _pbs_lines(row: Row, requested: str, hosts: str) -> list[tuple[int, str]]:
    who = f"user={row.user} group=g jobname=a queue={row.queue}"
    requested += f" Resource_List.walltime={clock_of_pbs(row.request)}"
    job = f"{row.number}.srv"
    lines = [(row.submit, f"{_stamp(row.submit)};Q;{job};{who} {requested}\n")]
    if row.start is None:
        return [*lines, (row.end, f"{_stamp(row.end)};D;{job};requestor={row.user}@h\n")]
    times = f"ctime={row.submit} qtime={row.submit} etime={row.submit} start={row.start}"
    head = f"{job};{who} {times} {hosts} {requested}"
    lines.append((row.start, f"{_stamp(row.start)};S;{head}\n"))
    lines.append((row.start, f"{_stamp(row.start)};L;license;floating license hour:1\n"))
    return [*lines, (row.end, f"{_stamp(row.end)};E;{head} end={row.end} Exit_status=0\n")]


def clock_of_pbs(seconds: int) -> str:
    """A duration as PBS writes it."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def write_gridengine(log: JobLog, kind: str) -> str:
    """``accounting`` of SGE 6.2, of Univa with milliseconds and more fields, or with colons in the
    request."""
    scale = 1000 if kind == "milliseconds" else 1
    lines = ["# Version: 8.1.9\n"]
    for row in rows_of(log):
        limit = clock_of_pbs(row.request) if kind == "colons" else str(row.request)
        request = f"-l h_rt={limit},h_vmem=1G -pe smp {row.procs}"
        if kind == "request last":
            request = f"-pe smp {row.procs} -l h_rt={limit}"
        start = row.start or 0
        slots = row.procs if start else 1
        head = [row.queue, "n1", "g", row.user, "name", row.number, "sge", 0]
        times = [row.submit * scale, start * scale, row.end * scale, 0, 0, 300]
        use = ["0.1"] * 17
        tail = ["p", "d", "smp", slots, 0, "0.1", "0.1", "0.1", request, "0.0", "NONE", "1.5e6"]
        more = [0, 0] if scale == 1 else [0, 0, "NONE", "NONE", "1", "host", "/home", "qsub a:b"]
        lines.append(":".join(map(str, [*head, *times, *use, *tail, *more])) + "\n")
    return "".join(lines)


def write_lsf(log: JobLog) -> str:
    """``lsb.acct`` of LSF 10."""
    lines = ['"EVENT_ADRSV_FINISH" "10.108" 1644826549 1644826549 1 0 "u" "ad1" 0 "" 0\n']
    for row in rows_of(log):
        hosts = f'1 "{row.procs}*n1"' if row.start is not None else "0"
        command = '"say ""hi"" {x}"'
        text = '"" "" "" "submit" "/home" "" "" "" "file" 0'
        lines.append(
            f'"JOB_FINISH" "10.108" {row.end} {row.number} 1 2 {row.procs} {row.submit} 0 0 '
            f'{row.start or 0} "{row.user}" "{row.queue}" {text} {hosts} 64 100.0 "name" '
            f"{command} {' '.join(['0.5'] * 19)} "
            '"" "default" 0 1 "" "" 0 2048 0 "" "" "" "" 0 "" 0 "" -1 "" "" "" "" -1 "" "" 5136 '
            f'"" {row.submit} "" "" 2 1032 "0" 1033 "0" 0 4194304 {row.request} 1024 '
            '"select[type == any] " "" -1 "" -1 0 "" 0 0 "" 3 "/root" 0 "" 0.0 0.0 0.0 0.0 0.0 1 '
            f'"n1" 0 0 0 0 0 0\n'
        )
    return "".join(lines)


def _condor_ad(row: Row) -> dict[str, object]:
    ad: dict[str, object] = {
        "ClusterId": row.number,
        "ProcId": 0,
        "Cmd": "/bin/true",
        "Owner": row.user,
        "QDate": row.submit,
        "RequestCpus": row.procs,
        "AllowedJobDuration": row.request,
        "JobUniverse": 5,
        "JobStatus": 4 if row.start is not None else 3,
        "CompletionDate": row.end if row.start is not None else 0,
        "EnteredCurrentStatus": row.end,
    }
    return ad | ({"JobStartDate": row.start} if row.start is not None else {})


def write_condor(log: JobLog) -> str:
    """``condor_history -long``."""
    ads = map(_condor_ad, rows_of(log))
    return "\n\n".join(
        "\n".join(f"{name} = {json.dumps(value)}" for name, value in ad.items()) for ad in ads
    )


def write_condor_json(log: JobLog) -> str:
    """``condor_history -json``."""
    return json.dumps([_condor_ad(row) for row in rows_of(log)], indent=1)


DIALECTS = {
    **{f"sacct, {kind}": lambda log, kind=kind: write_sacct(log, kind) for kind in COLUMN_SETS},
    "sacct --json": write_sacct_json,
    "Torque": write_torque,
    "PBS Pro": write_pbspro,
    **{
        f"Grid Engine, {kind}": lambda log, kind=kind: write_gridengine(log, kind)
        for kind in ("request last", "colons", "milliseconds")
    },
    "LSF": write_lsf,
    "HTCondor": write_condor,
    "HTCondor, JSON": write_condor_json,
    "GWF": write_gwf,
    "SWF": write_swf,
}
WITHOUT_REQUEST = {"sacct, no request"}
NUMBERS_ALONE = {"GWF", "SWF"}
SINGLE_QUEUE = {"HTCondor", "HTCondor, JSON"}
