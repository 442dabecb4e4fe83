"""Tables of Slurm's ``sacct`` as task records: a job's name is its kind, ``Elapsed`` its run time.

TIMEOUT, OUT_OF_MEMORY, PREEMPTED, NODE_FAIL, REQUEUED, DEADLINE and CANCELLED after its start:
stopped, so it would have taken longer. FAILED is no observation. Steps (``123.batch``) provide
their job's largest MaxRSS, and are not jobs. The job names of Snakemake and Nextflow are converted
back to the rule or the process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from vgrads.traces.table import JOB_IDS
from vgrads.traces.task_lines import (
    BACKWARDS,
    NO_TIME,
    Broken,
    Item,
    Row,
    cell,
    parse_bytes,
    parse_number,
    parse_procs,
    parse_task_instant,
    rows,
    seconds,
)
from vgrads.traces.task_record import TaskRecord

_STOPPED = {
    "TIMEOUT",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "CANCELLED",
    "NODE_FAIL",
    "REQUEUED",
    "DEADLINE",
}
_FAILED = {"FAILED", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL"}
JOB_NAMES = ("jobname", "name", "job_name")
_SNAKEJOB = re.compile(r"(?:snakejob|smk)[.-](.+?)\.\d+(?:\.sh)?$")
_NEXTFLOW = re.compile(r"nf-(.+?)(?:_\(.*\)?|_\d+)?$")


def read_sacct_tasks(path: Path, columns: Sequence[str] | None = None) -> Iterator[Item]:
    """Read the jobs of a table of ``sacct``; items as in :mod:`vgrads.traces.task_lines`.
    ``columns``: of a table without a header."""
    waiting: Item | None = None
    job = ""
    for line, row in rows(path, columns):
        if isinstance(row, Broken):
            yield row
            continue
        name, _, step = cell(row, *JOB_IDS).partition(".")
        if step:
            if name == job and isinstance(waiting, TaskRecord):
                waiting = _add_memory(waiting, row)
            continue
        if waiting is not None:
            yield waiting
        waiting, job = _make_job(row, line, name), name
    if waiting is not None:
        yield waiting


def _add_memory(record: TaskRecord, row: Row) -> TaskRecord:
    """Return a job with the memory of a step: the largest counts."""
    peak = parse_bytes(cell(row, "maxrss"))
    return replace(record, memory_bytes=max(record.memory_bytes or 0.0, peak)) if peak else record


def _make_job(row: Row, line: int, name: str) -> Item:
    # also `CANCELLED by 1000`, and truncated ones such as `OUT_OF_ME+`
    state = (cell(row, "state").upper().split() or [""])[0].rstrip("+")
    if not state:
        state = "COMPLETED" if cell(row, "exitcode") in ("", "0:0", "0") else "FAILED"
    if state in _FAILED:
        return "failed"
    if state != "COMPLETED" and not any(_is_state(state, stopped) for stopped in _STOPPED):
        return "not ended"
    took = _parse_elapsed(row)
    if took == "unreadable":
        return Broken(line, "Elapsed", "is not a time")
    if isinstance(took, str):
        return took
    if state != "COMPLETED" and took == 0:
        return "never started"
    if not cell(row, *JOB_NAMES):
        return "no name"
    return TaskRecord(
        kind=derive_job_kind(cell(row, *JOB_NAMES)),
        seconds=took,
        finished=state == "COMPLETED",
        task=name,
        machine=_find_machine(row),
        procs=parse_procs(cell(row, "alloccpus", "ncpus", "reqcpus", "processors_req")),
        memory_bytes=parse_bytes(cell(row, "maxrss")),
        memory_full=_is_state(state, "OUT_OF_MEMORY"),
        ended_at_s=parse_task_instant(cell(row, "end", "end_time")),
    )


def _is_state(state: str, whole: str) -> bool:
    """Return whether a state is this one; ``sacct`` without ``-P`` truncates it to ten letters."""
    return whole == state or (len(state) >= 7 and whole.startswith(state))


def derive_job_kind(name: str) -> str:
    """Return the rule or process of a job's name; the name itself if no workflow system created it.

    >>> [derive_job_kind(name) for name in ("snakejob.align.12.sh", "nf-FASTQC_(s1)", "simulate")]
    ['align', 'FASTQC', 'simulate']
    """
    match = _SNAKEJOB.match(name) or _NEXTFLOW.match(name)
    return match[1] if match else name


def _parse_elapsed(row: Row) -> float | str:
    start, end = (
        parse_task_instant(cell(row, "start", "start_time")),
        parse_task_instant(cell(row, "end", "end_time")),
    )
    if start is not None and end is not None and end < start:
        return BACKWARDS
    took = seconds(cell(row, "elapsed", "elapsedraw", "run_time"))
    if took == NO_TIME and start is not None and end is not None:
        return end - start
    return took


def _find_machine(row: Row) -> str:
    """Return the node, if there was only one."""
    nodes = cell(row, "nodelist", "node_list")
    several = (parse_number(cell(row, "nnodes", "nodes_req", "allocnodes")) or 1) > 1
    return "" if several or re.search(r"[\[,\s]", nodes) else nodes
