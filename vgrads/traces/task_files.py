"""Recorded run times: detect the format of a file or folder, and read it as task records.

The format is detected from the content, not the name; gzip and xz are decompressed. No part of a
file is lost silently: items that are no observations are counted by reason.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.files import read_text
from vgrads.traces.lines import CUT_OFF, open_lines
from vgrads.traces.report import MOST_UNUSED, ReadingReport, ReportBuilder
from vgrads.traces.table import JOB_IDS, find_delimiter, is_padded
from vgrads.traces.task_condor import EVENT, read_condor
from vgrads.traces.task_lines import Broken, Item
from vgrads.traces.task_nextflow import read_measures, read_nextflow
from vgrads.traces.task_pegasus import read_dax_tasks, read_kickstart_xml, read_kickstart_yaml
from vgrads.traces.task_record import TaskRecord
from vgrads.traces.task_sacct import JOB_NAMES, read_sacct_tasks
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
        "sacct": "tables of Slurm's sacct",
        "condor": "HTCondor's job event log",
    }
)
UNDERSTOOD = "understood: " + "; ".join(FORMATS.values())
_HEAD = 400  # lines; the first informative one decides


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRecords:
    """Records of a file or folder: ``format`` (a key of FORMATS; several, joined by ``+``, for a
    folder), and what became of the others: ``not_jobs`` of the report are attempts that are no
    observations, by reason."""

    records: tuple[TaskRecord, ...]
    format: str
    report: ReadingReport

    @property
    def skipped(self) -> Mapping[str, int]:
        """Number of records that are not used, by reason."""
        unused = {why: item.records for why, item in self.report.not_used.items()}
        return {**self.report.not_jobs, **unused}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The arguments of :func:`read_task_records`."""

    machine: str
    workflow: str
    kinds: Mapping[str, str]
    columns: Sequence[str] | None
    force: bool


def read_task_records(
    path: Path | str,
    machine: str = "",
    workflow: str = "",
    kinds: Mapping[str, str] | None = None,
    columns: Sequence[str] | None = None,
    force: bool = False,
) -> ParsedRecords:
    """Read task records of a file, or of all files of a folder that have any.

    ``machine`` and ``workflow``, if given, replace those of all records. ``kinds`` corrects kinds:
    a pattern (``*``, ``?``) of a kind or a task as read → the kind; the first match counts. A
    benchmark's task is its file's path below the folder of benchmarks, without extensions.
    ``columns``: of a table of ``sacct`` without a header. ``force``: use what can be read of a file
    that is mostly unusable. In a folder, files of no known format are counted as such; a rule with
    benchmarks is not read from metadata again. InputError names file, line and field: unknown
    format, empty, or mostly unusable.
    """
    options = _Options(
        machine=machine, workflow=workflow, kinds=kinds or {}, columns=columns, force=force
    )
    path = Path(path)
    formats, result = _read_folder(path, options) if _is_folder(path) else _read_file(path, options)
    counts = ReportBuilder("+".join(formats))
    records = []
    for item in result:
        if isinstance(item, TaskRecord):
            records.append(_repair_record(item, options))
        elif isinstance(item, str):
            counts.pass_over(item)
        elif item.why == CUT_OFF:
            counts.skip("rest, since the file is cut off", item.line)
        else:
            counts.skip(f"{item.field} {item.why}".lstrip(), item.line)
    if not records and not result:
        raise InputError("contains no records", where=str(path), fix=UNDERSTOOD)
    counts.lines = len(result)
    return ParsedRecords(
        records=tuple(records), format=counts.format, report=counts.report(len(records))
    )


def _is_folder(path: Path) -> bool:
    try:
        # its format is found from its first lines, which are read again with the rest
        if path.exists() and not path.is_dir() and not path.is_file():
            raise InputError(
                "is not a file that can be read twice", where=str(path), fix="write it to a file"
            )
        return path.is_dir()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _repair_record(record: TaskRecord, options: _Options) -> TaskRecord:
    kind = next(
        (
            new
            for old, new in options.kinds.items()
            if fnmatchcase(record.kind, old) or fnmatchcase(record.task, old)
        ),
        record.kind,
    )
    return replace(
        record,
        kind=kind,
        machine=options.machine or record.machine,
        workflow=options.workflow or record.workflow,
    )


def _read_file(path: Path, options: _Options) -> tuple[list[str], list[Item]]:
    name = "sacct" if options.columns else format_of(path)
    if name == "metadata":
        result = list(read_metadata([(path, _load_json(path))], None))
    else:
        result = list(_find_reader(name, path, None, options))
    return [name], _refuse_broken(result, path, options)


def _refuse_broken(results: list[Item], path: Path, options: _Options) -> list[Item]:
    """Return the items; InputError names the first broken line if most of those that should be
    records are broken, unless the reading is forced."""
    broken = [item for item in results if isinstance(item, Broken)]
    good = sum(isinstance(item, TaskRecord) for item in results)
    if not options.force and len(broken) > MOST_UNUSED * (len(broken) + good):
        first = broken[0]
        place = [str(path), f"line {first.line}" if first.line else "", first.field]
        raise InputError(
            f"{first.why} ({len(broken)} of {len(results)} are broken)",
            where=": ".join(part for part in place if part),
            fix=f"give --force to use the others; {UNDERSTOOD}",
        )
    return results


def _find_reader(name: str, path: Path, named: Named | None, options: _Options) -> Iterator[Item]:
    readers: dict[str, Callable[[], Iterator[Item]]] = {
        "nextflow": lambda: read_nextflow(path, path.name.split(".")[0]),
        "measures": lambda: read_measures(path),
        "benchmark": lambda: read_benchmark(path, named or name_benchmarks([path])[path]),
        "wfformat": lambda: read_wfformat_tasks(_load_json(path), str(path)),
        "kickstart-xml": lambda: read_kickstart_xml(path),
        "kickstart-yaml": lambda: read_kickstart_yaml(path),
        "dax": lambda: read_dax_tasks(read_text(path), str(path)),
        "condor": lambda: read_condor(path),
        "sacct": lambda: read_sacct_tasks(path, options.columns),
    }
    return readers[name]()


def _load_json(path: Path) -> Mapping[str, Any]:
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
    text = _detect_markup(lines, path) or _detect_table(lines)
    if text is None:
        raise InputError(
            "is not a record of run times in a known format", where=str(path), fix=UNDERSTOOD
        )
    return text


def _detect_markup(lines: list[str], path: Path) -> str | None:
    head = "".join(lines)
    if lines[0].lstrip().startswith("{"):
        return _detect_json(lines, path)
    if "<invocation" in head:
        return "kickstart-xml"
    if "<adag" in head:
        return "dax"
    if EVENT.match(lines[0]):
        return "condor"
    return "kickstart-yaml" if re.search(r"(?m)^- invocation:", head) else None


def _detect_json(lines: list[str], path: Path) -> str | None:
    # such a benchmark has one object per line, and is no document as a whole
    if '"h:m:s"' in lines[0] and '"s"' in lines[0]:
        return "benchmark"
    document = _load_json(path)
    if "workflow" in document:
        return "wfformat"
    return "metadata" if "rule" in document and "starttime" in document else None


def _detect_table(lines: list[str]) -> str | None:
    header = next((line for line in lines if line[0] != "#"), "").strip().lower()
    mark = find_delimiter(header)
    names = {name.strip().strip('"') for name in header.split(mark)}
    if len(lines) > 1 and is_padded(header, lines[1]):
        names = set(header.split())
    timed = names & {"elapsed", "elapsedraw", "run_time"} or {"start", "end"} <= names
    if "realtime" in names and names & {"name", "process"}:
        return "nextflow"
    if {"s", "h:m:s"} <= names and mark == "\t":
        return "benchmark"
    if {"task", "realtime"} <= names:
        return "measures"
    if timed and names & set(JOB_IDS) and names & set(JOB_NAMES):
        return "sacct"
    return None


def _read_folder(folder: Path, options: _Options) -> tuple[list[str], list[Item]]:
    """Read all files below a folder, in the order of their names."""
    formats: dict[Path, str] = {}
    results: list[Item] = []
    for path in _list_files(folder):
        try:
            formats[path] = format_of(path)
        except InputError:
            results.append("file not understood")
    if not formats:
        raise InputError(
            "contains no file with records of run times", where=str(folder), fix=UNDERSTOOD
        )
    metadata = [(path, _load_json(path)) for path, name in formats.items() if name == "metadata"]
    rules = {str(entry.get("rule")) for _, entry in metadata}
    named = name_benchmarks([path for path, name in formats.items() if name == "benchmark"], rules)
    for path, name in formats.items():
        if name != "metadata":
            results += _read_member(name, path, named.get(path), options)
    measured = {item.kind for item in results if isinstance(item, TaskRecord)} & rules
    results += _refuse_broken(
        list(_drop_measured(read_metadata(metadata, _find_project(metadata)), measured)),
        folder,
        options,
    )
    return sorted(set(formats.values())), results


def _list_files(folder: Path) -> Iterator[Path]:
    """Return files below a folder by name, without following links to folders; of Snakemake's own
    files, only its metadata."""
    for place, below, names in os.walk(folder):
        if Path(place).name == ".snakemake":
            below[:] = [name for name in below if name == "metadata"]
            continue
        below[:] = sorted(name for name in below if name not in (".git", "conda"))
        paths = (Path(place) / name for name in sorted(names))
        yield from (path for path in paths if path.is_file())


def _read_member(name: str, path: Path, named: Named | None, options: _Options) -> Iterable[Item]:
    try:
        return _refuse_broken(list(_find_reader(name, path, named, options)), path, options)
    except InputError:
        return ["file not understood"]


def _find_project(metadata: Iterable[tuple[Path, object]]) -> Path | None:
    """Return the folder in which the workflow ran: the one that contains ``.snakemake``."""
    for path, _ in metadata:
        for parent in path.absolute().parents:
            if parent.name == ".snakemake":
                return parent.parent
    return None


def _drop_measured(items: Iterable[Item], measured: set[str]) -> Iterator[Item]:
    for item in items:
        has_benchmark = isinstance(item, TaskRecord) and item.kind in measured
        yield "has a benchmark" if has_benchmark else item
