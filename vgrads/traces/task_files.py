"""Recorded run times: detect the format of a file or folder, and read it as task records.

The format is detected from the content, not the name; gzip and xz are decompressed. No part of a
file is lost silently: items that are no observations are counted by reason.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.files import read_text
from vgrads.traces.build import BROKEN_SHARE
from vgrads.traces.task_condor import EVENT, read_condor
from vgrads.traces.task_lines import CUT_OFF, Broken, Item, open_lines
from vgrads.traces.task_nextflow import read_measures, read_nextflow
from vgrads.traces.task_pegasus import read_dax_tasks, read_kickstart_xml, read_kickstart_yaml
from vgrads.traces.task_record import TaskRecord
from vgrads.traces.task_sacct import read_sacct_tasks
from vgrads.traces.task_snakemake import Named, name_benchmarks, read_benchmark, read_metadata
from vgrads.traces.task_wfformat import read_wfformat_tasks

FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "nextflow": "Nextflow's trace (-with-trace)",
        "measures": "comma separated with task and realtime (Lotaru)",
        "benchmark": "Snakemake's benchmark files",
        "metadata": "Snakemake's .snakemake/metadata",
        "wfformat": "WfFormat (WfCommons)",
        "kickstart-xml": "Pegasus kickstart (XML)",
        "kickstart-yaml": "Pegasus kickstart (YAML)",
        "dax": "Pegasus DAX with run times",
        "sacct": "Slurm's sacct -P",
        "condor": "HTCondor's job event log",
    }
)
UNDERSTOOD = "understood: " + "; ".join(FORMATS.values())
_HEAD = 400  # lines; the first informative one decides


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRecords:
    """Records of a file or folder: ``format`` (a key of FORMATS; several, joined by ``+``, for a
    folder), ``skipped``: reason → number."""

    records: tuple[TaskRecord, ...]
    format: str
    skipped: Mapping[str, int]


def read_task_records(
    path: Path | str, machine: str = "", workflow: str = "", kinds: Mapping[str, str] | None = None
) -> ParsedRecords:
    """Read task records of a file, or of all files of a folder that have any.

    ``machine`` and ``workflow``, if given, replace those of all records. ``kinds`` corrects kinds:
    a pattern (``*``, ``?``) of a kind or a task as read → the kind; the first match counts. A
    benchmark's task is its file's path below the folder of benchmarks, without extensions. In a
    folder, files of no known format are counted as such; a rule with benchmarks is not read from
    metadata again. InputError names file, line and field: unknown format, empty, or more broken
    lines than one and 1 %.
    """
    path = Path(path)
    formats, result = _read_folder(path) if _is_folder(path) else _read_file(path)
    skipped: Counter[str] = Counter()
    records = []
    for item in result:
        if isinstance(item, TaskRecord):
            records.append(_repaired(item, machine, workflow, kinds or {}))
        else:
            why = item if isinstance(item, str) else "broken line"
            cut = isinstance(item, Broken) and item.why == CUT_OFF
            skipped["rest, since the file is cut off" if cut else why] += 1
    if not records and not skipped:
        raise InputError("contains no records", where=str(path), fix=UNDERSTOOD)
    return ParsedRecords(
        records=tuple(records), format="+".join(formats), skipped=MappingProxyType(dict(skipped))
    )


def _is_folder(path: Path) -> bool:
    try:
        if path.exists() and not path.is_dir() and not path.is_file():
            raise InputError(
                "is not a file that can be read twice", where=str(path), fix="write it to a file"
            )
        return path.is_dir()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _repaired(
    record: TaskRecord, machine: str, workflow: str, kinds: Mapping[str, str]
) -> TaskRecord:
    kind = next(
        (
            new
            for old, new in kinds.items()
            if fnmatchcase(record.kind, old) or fnmatchcase(record.task, old)
        ),
        record.kind,
    )
    return replace(
        record, kind=kind, machine=machine or record.machine, workflow=workflow or record.workflow
    )


def _read_file(path: Path) -> tuple[list[str], list[Item]]:
    name = format_of(path)
    if name == "metadata":
        result = list(read_metadata([(path, _json_of(path))], None))
    else:
        result = list(_reader(name, path, None))
    return [name], _refuse_broken(result, path)


def _refuse_broken(results: list[Item], path: Path) -> list[Item]:
    """Return the items; InputError names the first broken line if there are more than one and more
    than 1 %, or nothing else."""
    broken = [item for item in results if isinstance(item, Broken)]
    if broken and (
        len(broken) == len(results) or len(broken) > max(1.0, BROKEN_SHARE * len(results))
    ):
        first = broken[0]
        place = [str(path), f"line {first.line}" if first.line else "", first.field]
        raise InputError(
            f"{first.why} ({len(broken)} of {len(results)} are broken)",
            where=": ".join(part for part in place if part),
            fix=UNDERSTOOD,
        )
    return results


def _reader(name: str, path: Path, named: Named | None) -> Iterator[Item]:
    readers: dict[str, Callable[[], Iterator[Item]]] = {
        "nextflow": lambda: read_nextflow(path, path.name.split(".")[0], _delimiter(path)),
        "measures": lambda: read_measures(path),
        "benchmark": lambda: read_benchmark(path, named or name_benchmarks([path])[path]),
        "wfformat": lambda: read_wfformat_tasks(_json_of(path), str(path)),
        "kickstart-xml": lambda: read_kickstart_xml(path),
        "kickstart-yaml": lambda: read_kickstart_yaml(path),
        "dax": lambda: read_dax_tasks(read_text(path), str(path)),
        "condor": lambda: read_condor(path),
        "sacct": lambda: read_sacct_tasks(path, _delimiter(path)),
    }
    return readers[name]()


def _delimiter(path: Path) -> str:
    """Return the delimiter of the header."""
    header = next((line for line in open_lines(path) if line.strip() and line[0] != "#"), "")
    return next((mark for mark in "|\t" if mark in header), ",")


def _json_of(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(
            f"is not valid JSON: {error.msg}", where=f"{path}: line {error.lineno}", fix=UNDERSTOOD
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not valid JSON: {error}", where=str(path), fix=UNDERSTOOD) from error
    if not isinstance(document, dict):
        raise InputError("is not a JSON object", where=str(path), fix=UNDERSTOOD)
    return document


def format_of(path: Path) -> str:
    """Return the key of FORMATS for a file; InputError for an unknown format."""
    lines = [line for line in islice(open_lines(path), _HEAD) if line.strip()]
    if not lines:
        raise InputError("the file is empty", where=str(path), fix=UNDERSTOOD)
    text = _of_markup(lines, path) or _of_table(lines)
    if text is None:
        raise InputError(
            "is not a record of run times in a known format", where=str(path), fix=UNDERSTOOD
        )
    return text


def _of_markup(lines: list[str], path: Path) -> str | None:
    head = "".join(lines)
    if lines[0].lstrip().startswith("{"):
        return _of_json(lines, path)
    if "<invocation" in head:
        return "kickstart-xml"
    if "<adag" in head:
        return "dax"
    if EVENT.match(lines[0]):
        return "condor"
    return "kickstart-yaml" if re.search(r"(?m)^- invocation:", head) else None


def _of_json(lines: list[str], path: Path) -> str | None:
    if '"h:m:s"' in lines[0] and '"s"' in lines[0]:
        return "benchmark"
    document = _json_of(path)
    if "workflow" in document:
        return "wfformat"
    return "metadata" if "rule" in document and "starttime" in document else None


def _of_table(lines: list[str]) -> str | None:
    header = next((line for line in lines if line[0] != "#"), "").strip().lower()
    tabs, commas, pipes = (
        {name.strip().strip('"') for name in header.split(mark)} for mark in "\t,|"
    )
    if any("realtime" in names and names & {"name", "process"} for names in (tabs, commas)):
        return "nextflow"
    if {"s", "h:m:s"} <= tabs:
        return "benchmark"
    if {"task", "realtime"} <= commas:
        return "measures"
    for names in (pipes, commas):
        timed = names & {"elapsed", "elapsedraw", "run_time"} or {"start", "end"} <= names
        if (
            names & {"jobid", "job_id", "jobidraw"}
            and names & {"jobname", "name", "job_name"}
            and timed
        ):
            return "sacct"
    return None


def _read_folder(folder: Path) -> tuple[list[str], list[Item]]:
    """Read all files below a folder, in the order of their names."""
    formats: dict[Path, str] = {}
    results: list[Item] = []
    for path in _files(folder):
        try:
            formats[path] = format_of(path)
        except InputError:
            results.append("file not understood")
    if not formats:
        raise InputError(
            "contains no file with records of run times", where=str(folder), fix=UNDERSTOOD
        )
    metadata = [(path, _json_of(path)) for path, name in formats.items() if name == "metadata"]
    rules = {str(entry.get("rule")) for _, entry in metadata}
    named = name_benchmarks([path for path, name in formats.items() if name == "benchmark"], rules)
    for path, name in formats.items():
        if name != "metadata":
            results += _read_member(name, path, named.get(path))
    measured = {item.kind for item in results if isinstance(item, TaskRecord)} & rules
    results += _refuse_broken(
        list(_without(read_metadata(metadata, _project(metadata)), measured)), folder
    )
    return sorted(set(formats.values())), results


def _files(folder: Path) -> Iterator[Path]:
    """Return files below a folder by name, without following links to folders; of Snakemake's own
    files, only its metadata."""
    for place, below, names in os.walk(folder):
        if Path(place).name == ".snakemake":
            below[:] = [name for name in below if name == "metadata"]
            continue
        below[:] = sorted(name for name in below if name not in (".git", "conda"))
        paths = (Path(place) / name for name in sorted(names))
        yield from (path for path in paths if path.is_file())


def _read_member(name: str, path: Path, named: Named | None) -> Iterable[Item]:
    try:
        return _refuse_broken(list(_reader(name, path, named)), path)
    except InputError:
        return ["file not understood"]


def _project(metadata: Iterable[tuple[Path, object]]) -> Path | None:
    """Return the folder in which the workflow ran: the one that contains ``.snakemake``."""
    for path, _ in metadata:
        for parent in path.absolute().parents:
            if parent.name == ".snakemake":
                return parent.parent
    return None


def _without(items: Iterable[Item], measured: set[str]) -> Iterator[Item]:
    for item in items:
        existing = isinstance(item, TaskRecord) and item.kind in measured
        yield "has a benchmark" if existing else item
