"""Snakemake's ``benchmark:`` files and its ``.snakemake/metadata`` as task records.

**Benchmarks.** One row per repeat; ``s`` is measured inside the job, without waiting and
environment set-up. A benchmark file does not name its rule unless it is an extended one
(``rule_name``). Otherwise the rule is, in this order: a part of the path that is a rule of
``.snakemake/metadata`` in the same folder; the first folder below ``benchmarks``
(``benchmarks/RULE/SAMPLE.tsv``); of a name with dots the part that varies least over the folder,
the last in case of ties (``benchmarks/SAMPLE.RULE.tsv``); the name (``benchmarks/RULE.tsv``). If
that guess is wrong, a mapping of kinds corrects it
(:func:`vgrads.traces.task_files.read_task_records`).

**Metadata.** One JSON file for each output, its name in base64: outputs of one job are one run. The
time is from when Snakemake started or *submitted* the job to its last output, so on a cluster it
includes waiting.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgrads.traces.lines import open_lines
from vgrads.traces.task_lines import (
    BACKWARDS,
    NO_TIME,
    Broken,
    Item,
    Row,
    cell,
    find_tool,
    parse_bytes,
    parse_number,
    parse_procs,
    rows,
    seconds,
)
from vgrads.traces.task_record import TaskRecord

_MIB = 1024.0 * 1024.0
_ENDINGS = re.compile(r"(\.(gz|xz|tsv|txt|csv|jsonl|bmk|benchmarks?|bench))+$", re.IGNORECASE)
_ROOTS = re.compile(r"(?i)bench(mark)?s?$|bmk$|benchmarking$")
_EARLIEST, _SLACK_S = 1e8, 1.0  # earlier starts (before 1973) are invalid; times are rounded


@dataclass(frozen=True, slots=True)
class Named:
    """Kind, task and run derived from a benchmark file's path."""

    kind: str
    task: str
    run: str


def read_benchmark(path: Path, named: Named) -> Iterator[Item]:
    """Read rows of a benchmark file, a table or lines of JSON; ``named`` is used if the row does
    not name its rule."""
    first = next(open_lines(path), "")
    for line, row in _read_json_rows(path) if first.lstrip().startswith("{") else rows(path):
        yield row if isinstance(row, Broken) else _make_measured(row, line, named)


def _read_json_rows(path: Path) -> Iterator[tuple[int, Row | Broken]]:
    for number, line in enumerate(open_lines(path), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if isinstance(entry, dict):
            yield (
                number,
                {str(key): "" if value is None else str(value) for key, value in entry.items()},
            )
        else:
            yield number, Broken(number, "", "is not a JSON object")


def _make_measured(row: Row, line: int, named: Named) -> Item:
    took = seconds(cell(row, "s"))
    if took == NO_TIME:
        took = seconds(cell(row, "h:m:s"))
    if took == "unreadable":
        return Broken(line, "s", f"'{row.get('s', '')[:40]}' is not a time")
    if isinstance(took, str):
        return took
    return TaskRecord(
        kind=cell(row, "rule_name") or named.kind,
        seconds=took,
        run=named.run,
        task=named.task,
        procs=parse_procs(cell(row, "threads")),
        input_bytes=_sum_mib(cell(row, "input_size_mb")),
        memory_bytes=parse_bytes(cell(row, "max_rss"), _MIB),
    )


def _sum_mib(text: str) -> float | None:
    """Parse bytes of ``{'a.fa': 0.5, 'b.fa': 1.5}``, which counts in MiB, or of a number."""
    try:
        message = ast.literal_eval(text) if text else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    values = list(message.values()) if isinstance(message, dict) else [message]
    sizes = [
        number for value in values if (number := parse_number(value)) is not None and number >= 0
    ]
    # one unknown size makes the sum unknown
    return sum(sizes) * _MIB if sizes and len(sizes) == len(values) else None


def name_benchmarks(paths: Sequence[Path], rules: Iterable[str] = ()) -> dict[Path, Named]:
    """Derive names from the paths of the benchmark files of one folder; ``rules``: known rules."""
    rule_names = frozenset(rules)
    below = {path: _split_below_root(path, paths) for path in paths}
    flat = [
        parts[0].split(".") for parts, _ in below.values() if len(parts) == 1 and "." in parts[0]
    ]
    # names are rule.sample or sample.rule: rules are fewer than samples
    first, last = ({words[at] for words in flat} for at in (0, -1))
    at = 0 if len(first) < len(last) else -1
    return {
        path: Named(_find_rule(parts, rule_names, at), "/".join(parts), run)
        for path, (parts, run) in below.items()
    }


def _split_below_root(path: Path, paths: Sequence[Path]) -> tuple[list[str], str]:
    """Return parts of the path below the folder of benchmarks, the last without extensions; and the
    project's folder."""
    parts = [*path.absolute().parts[:-1], _ENDINGS.sub("", path.name) or path.name]
    roots = [n for n, part in enumerate(parts[:-1]) if _ROOTS.match(part)]
    shared = len(path.absolute().parent.parts)
    for other in paths:
        others = other.absolute().parent.parts
        shared = min(
            shared,
            next(
                (n for n, (a, b) in enumerate(zip(parts, others, strict=False)) if a != b),
                len(others),
            ),
        )
    at = roots[0] + 1 if roots else shared
    return parts[at:], "/".join(parts[max(1, at - 2) : at])


def _find_rule(parts: Sequence[str], rule_names: frozenset[str], at: int) -> str:
    words = [*parts, *parts[-1].split(".")]
    text = next((word for word in words if word in rule_names), None)
    if text:
        return text
    return parts[0] if len(parts) > 1 else parts[0].split(".")[at]


@dataclass(slots=True)
class _SnakemakeJob:
    """Combined metadata of the outputs of one job."""

    rule: str
    start_s: float
    end_s: float
    inputs: tuple[str, ...]
    tool: str


def read_metadata(
    documents: Iterable[tuple[Path, Mapping[str, Any]]], root: Path | None
) -> Iterator[Item]:
    """Read runs of jobs from the metadata of their outputs; with the project's folder, sizes of
    unchanged inputs.

    A size counts if the file is below ``root`` and has not been written since the job began.
    """
    jobs: dict[tuple[object, ...], _SnakemakeJob] = {}
    for path, entry in documents:
        result = _read_metadata(entry)
        if not isinstance(result, _SnakemakeJob):
            yield (
                result
                if isinstance(result, str)
                else Broken(0, f"{path.name}: {result.field}", result.why)
            )
            continue
        key = _make_job_key(result, entry)
        job = jobs.setdefault(key, result)
        job.start_s, job.end_s = min(job.start_s, result.start_s), max(job.end_s, result.end_s)
    for number, job in enumerate(jobs.values(), 1):
        yield _make_record(job, number, root)


def _make_job_key(job: _SnakemakeJob, entry: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the common key of the outputs of one job: the hash of the job, or if there is none,
    all known fields."""
    if entry.get("job_hash") is not None:
        return job.rule, str(entry["job_hash"])
    message = (str(entry.get(name)) for name in ("shellcmd", "params", "log"))
    return job.rule, job.inputs, round(job.start_s, 1), *message


def _read_metadata(entry: Mapping[str, Any]) -> _SnakemakeJob | Broken | str:
    if entry.get("incomplete"):
        return "incomplete"
    rule, start, end = (
        entry.get("rule"),
        parse_number(entry.get("starttime")),
        parse_number(entry.get("endtime")),
    )
    if not isinstance(rule, str) or not rule:
        return Broken(0, "rule", "is missing")
    if start is None or end is None or start < _EARLIEST:
        return NO_TIME
    if end < start:
        return BACKWARDS
    inputs = entry.get("input")
    names = tuple(map(str, inputs)) if isinstance(inputs, list) else ()
    return _SnakemakeJob(rule, start, end, names, find_tool(entry.get("shellcmd")))


def _make_record(job: _SnakemakeJob, number: int, root: Path | None) -> TaskRecord:
    return TaskRecord(
        kind=job.rule,
        seconds=job.end_s - job.start_s,
        run=root.absolute().name if root else "",
        task=f"{job.rule} {number}",
        input_bytes=_sum_input_bytes(job, root) if root else None,
        tool=job.tool,
        ended_at_s=job.end_s,
    )


def _sum_input_bytes(job: _SnakemakeJob, root: Path) -> float | None:
    """Return bytes of all inputs as they were; None if one is gone, newer than the job, or outside
    the project."""
    total = 0.0
    base = root.resolve()
    for name in job.inputs:
        try:
            folder = (root / name).resolve()
            about = folder.stat()
        except (OSError, ValueError, RuntimeError):
            return None
        if (
            not folder.is_relative_to(base)
            or not folder.is_file()
            or about.st_mtime > job.start_s + _SLACK_S
        ):
            return None
        total += about.st_size
    return total if job.inputs else None
