"""Nextflow's ``-with-trace``, and tables of the same measures as comma separated values (Lotaru's
columns).

``realtime`` is execution; ``duration`` includes waiting and staging and is never used. A cached
task is not a run. A task that was stopped from outside (by its exit status: killed for memory or
time) would have taken longer and is recorded as such; other failures are omitted. The bytes that a
task reads (``rchar``) are not the size of its input: a file that is read twice counts twice, and
the number is not known at prediction time. So sizes are taken only from columns with that meaning
(``taskinputsize``, ``input_bytes``). Columns:
https://www.nextflow.io/docs/latest/reports.html#trace-file
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from vgrads.traces.task_lines import (
    BACKWARDS,
    KILL,
    KILLED,
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

_SIZES = ("taskinputsize", "input_bytes", "input_size")
_MEASURES = (
    *("realtime", "duration", "time", "%cpu", "%mem", "memory", "disk", *_SIZES),
    *("rss", "vmem", "peak_rss", "peak_vmem", "rchar", "wchar", "read_bytes", "write_bytes"),
)
_DECIMAL_COMMA = re.compile(r"(?<=\d),(?=\d)")
_TAG = re.compile(r"\s*\((.*)\)$", re.DOTALL)
_RAN = {"", "COMPLETED"}
_STOPPED = {"FAILED", "ABORTED"}
_FULL = 0.8  # share of requested memory that suggests a memory kill


def read_nextflow(path: Path, run: str) -> Iterator[Item]:
    """Read a trace; items as in :mod:`vgrads.traces.task_lines`."""
    for line, row in rows(path):
        yield row if isinstance(row, Broken) else _make_record(with_points(row), line, run)


def read_measures(path: Path) -> Iterator[Item]:
    """Read comma separated values: ``task`` and ``realtime`` (milliseconds), and further measures.

    One run is one ``label`` with one ``workflowinputsize`` on one machine.
    """
    for line, row in rows(path):
        if isinstance(row, Broken):
            yield row
            continue
        message = ("machine", "label", "workflowinputsize")
        yield _make_record(
            with_points(row), line, "/".join(row[name] for name in message if row.get(name))
        )


def _make_record(row: Row, line: int, run: str) -> Item:
    status = cell(row, "status").upper()
    exit_status = parse_number(cell(row, "exit"))
    if status == "CACHED":
        return "cached"
    if status not in _RAN | _STOPPED:
        return "not ended"
    # a trace without a status: the exit code decides
    finished = not exit_status if not status else status not in _STOPPED
    # a task that was killed took at least so long; one that failed says nothing
    if not finished and exit_status not in KILLED:
        return "aborted" if status == "ABORTED" else "failed"
    path, tag = named(row)
    workflow, _, kind = path.rpartition(":")
    took = realtime(row)
    if not kind:
        return Broken(line, "name", "is empty")
    if isinstance(took, str):
        if took == "unreadable":
            return Broken(line, "realtime", f"'{cell(row, 'realtime')[:40]}' is not a time")
        return took
    if not finished and took == 0:
        return NO_TIME
    peak, requested = parse_bytes(cell(row, "peak_rss", "rss")), parse_bytes(cell(row, "memory"))
    return TaskRecord(
        kind=kind,
        seconds=took,
        finished=finished,
        workflow=cell(row, "workflow") or workflow,
        run=run,
        task=tag or cell(row, "hash", "native_id", "task_id"),
        machine=cell(row, "machine", "hostname"),
        procs=parse_procs(cell(row, "cpus")),
        input_bytes=_size(row),
        cpu_seconds=_compute_cpu_seconds(row, took),
        memory_bytes=peak,
        memory_full=exit_status == KILL
        and not finished
        and peak is not None
        and peak >= _FULL * (requested or 0.0),
        ended_at_s=parse_task_instant(cell(row, "complete")),
    )


def with_points(row: Row) -> Row:
    """Return a row whose measures have decimal points: Nextflow writes them by the locale in which
    it runs, without separators of thousands, as ``1,5 GB``."""
    return {
        name: _DECIMAL_COMMA.sub(".", text) if name in _MEASURES else text
        for name, text in row.items()
    }


def named(row: Row) -> tuple[str, str]:
    """Return the process with its prefix, and the tag that distinguishes its tasks."""
    name = cell(row, "name", "task")
    tag = _TAG.search(name)
    bare = name[: tag.start()] if tag else name
    return cell(row, "process") or bare, cell(row, "tag") or (tag[1] if tag else "")


def _compute_cpu_seconds(row: Row, took: float) -> float | None:
    """Return CPU seconds of all processors; ``%cpu`` is 100 for one that was always busy."""
    share = parse_number(cell(row, "%cpu").removesuffix("%"))
    return None if share is None or share < 0 else share / 100 * took


def realtime(row: Row) -> float | str:
    """Parse seconds of execution; a plain number is milliseconds, as in ``trace.raw`` and
    Lotaru."""
    took = seconds(row.get("realtime", ""), 0.001)
    if took != NO_TIME:
        return took
    start, end = parse_task_instant(cell(row, "start")), parse_task_instant(cell(row, "complete"))
    if start is None or end is None:
        return NO_TIME
    return end - start if end >= start else BACKWARDS


def _size(row: Row) -> float | None:
    """Return bytes of input if a column states them; 0 is also a size."""
    text = cell(row, *_SIZES)
    return 0.0 if parse_number(text) == 0 else parse_bytes(text)
