"""PBS, OpenPBS and Torque accounting: ``date time;type;job;key=value …``.

``E`` (ended) and ``S`` (started) contain everything in seconds since 1970; ``Q`` (queued) with
``D`` (deleted) or ``A`` (aborted) and no start is a job that was cancelled while waiting, a
right-censored wait. Jobs that still wait or run when the file ends are included as far as they are
known.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from statistics import median

from vgrads.traces.build import AccountingJob, broken_warning, build_log, refuse_broken, requested_s
from vgrads.traces.records import JobLog

_PAIR = re.compile(r"(\S+?)=(\S*)")
_NODES = re.compile(r"(\d+)(?:\D.*?)?(?:ppn|ncpus)=(\d+)")
_QUARTER_S = 900.0

Fields = dict[str, str]


def read_pbs(text: str, name: str) -> JobLog:
    """Parse accounting text; malformed lines are skipped up to 1 %, then the file is rejected."""
    ended: dict[str, Fields] = {}
    queued: dict[str, tuple[float, str]] = {}
    gone: dict[str, float] = {}
    offsets: list[float] = []
    broken: list[int] = []
    good = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            stamp_s, kind, job, fields = _record(line)
        except ValueError:
            broken.append(number)
            continue
        good += 1
        if kind == "E" and "end" in fields:
            offsets.append(float(fields["end"]) - stamp_s)
        if kind in "SE" and "start" in fields:
            ended[job] = ended.get(job, {}) | fields
        elif kind == "Q":
            queued.setdefault(job, (stamp_s, fields.get("queue", "unknown")))
        elif kind in "DA":
            gone[job] = stamp_s
    refuse_broken(broken, good, name, "PBS records")
    zone_s = round(median(offsets) / _QUARTER_S) * _QUARTER_S if offsets else 0.0
    jobs = [job for job in map(_job, ended.values()) if job] + _withdrawn(
        ended, queued, gone, zone_s
    )
    return build_log(jobs, name, broken_warning(broken))


def _record(line: str) -> tuple[float, str, str, Fields]:
    """Parse the time of writing (as if UTC), type, job, attributes; ValueError for anything
    else."""
    stamp, kind, job, rest = line.split(";", 3)
    when = datetime.strptime(stamp, "%m/%d/%Y %H:%M:%S").replace(tzinfo=UTC)
    return when.timestamp(), kind, job, dict(_PAIR.findall(rest))


def _job(fields: Fields) -> AccountingJob | None:
    try:
        start = float(fields["start"])
        submit = float(fields.get("qtime") or fields["ctime"])
    except (KeyError, ValueError):
        return None
    return AccountingJob(
        submit_s=submit,
        start_s=start,
        end_s=float(fields.get("end", start)),
        procs=_procs(fields),
        request_s=requested_s(fields.get("Resource_List.walltime", "")),
        user=fields.get("user", "unknown"),
        queue=fields.get("queue", "unknown"),
    )


def _withdrawn(
    ended: dict[str, Fields],
    queued: dict[str, tuple[float, str]],
    gone: dict[str, float],
    zone_s: float,
) -> list[AccountingJob]:
    """Return jobs that were queued and removed and never started; their records have local times
    only."""
    return [
        AccountingJob(
            submit_s=at_s + zone_s,
            start_s=None,
            end_s=gone[job] + zone_s,
            procs=1,
            request_s=-1.0,
            user="unknown",
            queue=queue,
        )
        for job, (at_s, queue) in queued.items()
        if job in gone and job not in ended
    ]


def _procs(fields: Fields) -> int:
    """Return processors: ``ncpus``, otherwise the sum over ``nodes`` or ``select`` chunks,
    otherwise the node count."""
    if fields.get("Resource_List.ncpus", "").isdigit():
        return max(1, int(fields["Resource_List.ncpus"]))
    chunks = fields.get("Resource_List.nodes") or fields.get("Resource_List.select") or ""
    total = sum(int(m[1]) * int(m[2]) for m in map(_NODES.match, chunks.split("+")) if m)
    count = fields.get("Resource_List.nodect", "1")
    return total or (int(count) if count.isdigit() else 1)
