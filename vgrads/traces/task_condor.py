"""HTCondor's job event log (also DAGMan's ``.nodes.log``) as task records.

A job runs from *executing* (001) to *terminated* (005), or, if logged, to the start of its output
transfer. An eviction (004) or removal (009) while it ran stopped it: it would have taken longer.
The same applies to signals that are sent from outside; other exits than 0 are failures. Its kind is
the name of its DAG node without the number; without a node a job has no name here. Event numbers:
https://htcondor.readthedocs.io/en/latest/codes-other-values/job-event-log-codes.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from vgrads.kernel.kinds import without_number
from vgrads.traces.lines import open_lines
from vgrads.traces.task_lines import (
    BACKWARDS,
    KILLED,
    NO_TIME,
    Broken,
    Item,
    parse_number,
    parse_procs,
)
from vgrads.traces.task_record import TaskRecord

EVENT = re.compile(r"(\d{3}) \((\d+\.\d+)\.\d+\) (\d{4}-\d\d-\d\d|\d\d/\d\d)[ T](\d\d:\d\d:\d\d)")
_NODE = re.compile(r"DAG Node: (\S+)")
_HOSTS = tuple(
    map(re.compile, (r"SlotName: \S*@(\S+)", r"[?&]alias=([^&>\s]+)", r"host: <([^:>\s]+)"))
)
_EXIT = re.compile(r"return value (-?\d+)\)|\(signal (\d+)\)")
_TABLE = re.compile(r"(Cpus|Memory \(MB\)) +: +([\d.]+)?[ \t]+[\d.]+[ \t]+([\d.]+)")
_YEAR_S = 366 * 86400.0


@dataclass(slots=True)
class _CondorJob:
    """State of a job in the log so far; times in seconds, None: does not apply now."""

    node: str = ""
    machine: str = ""
    begun_s: float | None = None
    output_s: float | None = None


def read_condor(path: Path) -> Iterator[Item]:
    """Read the attempts of all jobs of a log; items as in :mod:`vgrads.traces.task_lines`."""
    jobs: dict[str, _CondorJob] = {}
    for line, text in _read_events(path):
        head = EVENT.match(text)
        when = _parse_seconds(head[3], head[4]) if head else None
        if head is None or when is None:
            yield Broken(line, "time", "is not a time of day")
            continue
        job = jobs.setdefault(head[2], _CondorJob())
        item = _parse_event(job, head, when, text)
        if item is not None:
            yield item
            job.begun_s = job.output_s = None


def _read_events(path: Path) -> Iterator[tuple[int, str]]:
    """Return each event with the lines below it, up to the three dots that end it or to the next
    event."""
    text, began = "", 0
    for number, line in enumerate(open_lines(path), 1):
        starts = EVENT.match(line) is not None
        if text and (starts or line.startswith("...")):
            yield began, text
            text = ""
        if starts:
            text, began = line, number
        elif text:
            text += line
    if text:
        yield began, text


def _parse_seconds(day: str, clock: str) -> float | None:
    """Parse seconds since 1970; old logs have no year, and then only differences are meaningful."""
    day = f"2000-{day.replace('/', '-')}" if "/" in day else day
    try:
        return datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _parse_event(job: _CondorJob, head: re.Match[str], when: float, text: str) -> Item | None:
    """Return the item for an attempt that ends with an event; None for other events."""
    node = _NODE.search(text)
    if head[1] == "000" and node:
        job.node = node[1]
    # 001: the job executes
    elif head[1] == "001":
        job.begun_s, job.output_s = when, None
        job.machine = next((match[1] for host in _HOSTS if (match := host.search(text))), "")
    # 040: a transfer of files; it does not count as run time
    elif head[1] == "040" and "transferring output" in text and "tarted" in text:
        job.output_s = when
    # 007: exception of the shadow, 012: held, 024: reconnection failed
    elif head[1] in ("007", "012", "024") and job.begun_s is not None:
        return "interrupted"
    # 004: evicted, 005: terminated, 009: aborted
    elif head[1] in ("004", "005", "009") and (job.begun_s is not None or head[1] == "005"):
        return _make_ended(job, head, when, text)
    return None


def _make_ended(job: _CondorJob, head: re.Match[str], when: float, text: str) -> Item:
    match = _EXIT.search(text) if head[1] == "005" else None
    status = 0 if match is None else int(match[1]) if match[1] is not None else 128 + int(match[2])
    stopped = head[1] != "005" or status in KILLED
    if status and not stopped:
        return "failed"
    if job.begun_s is None or (head[1] == "005" and match is None):
        return NO_TIME
    took = (when if job.output_s is None else job.output_s) - job.begun_s
    if took < -_YEAR_S / 2 and "/" in head[3]:
        took += _YEAR_S  # across the end of a year
    if took < 0:
        return BACKWARDS
    kind = without_number(job.node)
    if not kind:
        return "no name"
    table = {name: (used, value) for name, used, value in _TABLE.findall(text)}
    peak = parse_number(table.get("Memory (MB)", ("", ""))[0]) or 0.0
    return TaskRecord(
        kind=kind,
        seconds=took,
        finished=not stopped,
        task=job.node,
        machine=job.machine,
        procs=parse_procs(table.get("Cpus", ("", ""))[1]),
        memory_bytes=peak * 2**20 or None,
        ended_at_s=None if "/" in head[3] else job.begun_s + took,
    )
