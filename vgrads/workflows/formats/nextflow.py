"""A finished Nextflow run as a workflow: its trace provides tasks and run times, its work folders
the graph.

Nextflow determines its tasks only as it runs, and its trace has no dependencies. These are in the
script that staged a task's inputs into its work folder (``.command.run``, ``.command.stage``):
paths below other tasks' work folders, each named by a hash whose beginning is in the trace. Without
those folders there is no graph, and none is guessed: tasks in the order of their processes would
promise too much or too little.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from vgrads.kernel.errors import InputError
from vgrads.kernel.user_files import read_user_file
from vgrads.traces.task_lines import Broken, Row, cell, parse_bytes, parse_procs, rows
from vgrads.traces.task_nextflow import named, realtime, with_points
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.formats.reading import Reading
from vgrads.workflows.runtimes import Runtimes, timed
from vgrads.workflows.task import Task

_MIB = 1024 * 1024
_SCRIPTS = (".command.run", ".command.stage")
_STAGED = re.compile(r"^nxf_stage\(\)\s*\{.*?^\}", re.MULTILINE | re.DOTALL)
_FOLDER = re.compile(r"/([0-9a-f]{2}/[0-9a-f]{30})(?=[/\s'\"])")
_SHORT = 9  # of a hash, as in traces and logs: 0a/1b2c3d
_ODD = re.compile(r"[^A-Za-z0-9_+=.-]+")
_LONGEST = 150
_ENDED = ("COMPLETED", "CACHED")


def is_trace(text: str) -> bool:
    """True for a trace with hashes of its tasks' work folders."""
    header = {name.strip().lower() for name in text.lstrip().partition("\n")[0].split("\t")}
    return (
        "hash" in header
        and bool(header & {"name", "process"})
        and bool(header & {"realtime", "duration", "status"})
    )


def read_trace(
    path: Path, runtimes: Runtimes, reading: Reading, work: Path | None = None
) -> Workflow:
    """Read the tasks of a run that succeeded, or were taken from an earlier one; of several
    attempts the successful one.

    ``work``: Nextflow's work folder; otherwise the trace's own ``workdir`` column, otherwise
    ``work`` next to the trace.
    """
    rows, left = _select_rows(path)
    folders = {cell(row, "hash"): _find_folder(row, work or path.parent / "work") for row in rows}
    missing = [name for name, folder in folders.items() if folder is None]
    if missing:
        raise InputError(
            (
                f"does not record the dependencies of tasks, and {len(missing)} of {len(folders)} "
                f"work folders are missing, e.g. {missing[0]}"
            ),
            where=str(path),
            fix=(
                "give the work folder of that run with --inputs WORK; for run times alone use "
                "vgrads runtimes learn"
            ),
        )
    ids = dict(zip(folders, _make_ids(rows), strict=True))
    tasks = [_make_task(row, ids, folders, runtimes) for row in rows]
    if left:
        reading.count("attempt", "are", "left out, without success", left)
    return make_workflow(path.stem, tasks, where=str(path))


def _select_rows(path: Path) -> tuple[list[Row], int]:
    """Return rows of successful tasks, one for each work folder; and the number of the others."""
    stored: dict[str, Row] = {}
    left = 0
    for line, row in rows(path):
        if isinstance(row, Broken):
            raise InputError(row.why, where=f"{path}: line {line}")
        if not cell(row, "hash"):
            raise InputError("has no hash", where=f"{path}: line {line}")
        if cell(row, "status").upper() in _ENDED:
            if named(stored.setdefault(cell(row, "hash"), with_points(row))) != named(row):
                raise InputError("has the hash of another task", where=f"{path}: line {line}")
        else:
            left += 1
    if not stored:
        raise InputError("contains no task that succeeded", where=str(path))
    return list(stored.values()), left


def _find_folder(row: Row, work: Path) -> Path | None:
    """Return a task's work folder, if it exists with the script that staged its inputs."""
    workdir = cell(row, "workdir")
    group, _, begin = cell(row, "hash").partition("/")
    near = [Path(workdir)] if workdir else []
    if re.fullmatch("[0-9a-f]{2}", group) and re.fullmatch("[0-9a-f]{6,30}", begin):
        near += sorted((work / group).glob(f"{begin}*"))
    return next((folder for folder in near if (folder / _SCRIPTS[0]).is_file()), None)


def _make_ids(rows: list[Row]) -> Iterator[str]:
    """Return process and tag; with the hash if several are equal."""
    names = [
        _ODD.sub("_", ".".join(filter(None, (_find_kind(row), named(row)[1]))))[:_LONGEST]
        for row in rows
    ]
    often = Counter(names)
    for row, name in zip(rows, names, strict=True):
        yield f"{name}.{cell(row, 'hash').replace('/', '-')}" if often[name] > 1 else name


def _find_kind(row: Row) -> str:
    """Return the process without its enclosing workflows, as for learned run times."""
    return named(row)[0].rpartition(":")[2] or "task"


def _make_task(
    row: Row, ids: Mapping[str, str], folders: Mapping[str, Path | None], runtimes: Runtimes
) -> Task:
    own, took = cell(row, "hash"), realtime(row)
    kind = _find_kind(row)
    size = parse_bytes(cell(row, "memory")) or parse_bytes(cell(row, "peak_rss")) or 0.0
    # a trace has whole hashes, or only their beginnings
    result = (ids.get(name) or ids.get(name[:_SHORT]) for name in _list_staged(folders[own]))
    parents = dict.fromkeys(name for name in result if name is not None and name != ids[own])
    return Task(
        id=ids[own],
        kind=kind,
        procs=parse_procs(cell(row, "cpus")),
        memory_mib=size / _MIB,
        parents=tuple(parents),
        **timed(runtimes, (ids[own], kind), None if isinstance(took, str) else took, None),
    )


def _list_staged(folder: Path | None) -> list[str]:
    """Return hashes of the work folders from which a task's inputs were staged."""
    if folder is None:
        return []
    run, stage = (_read_text(folder / name) for name in _SCRIPTS)
    brought = _STAGED.search(run)
    return _FOLDER.findall((brought[0] if brought else "") + stage)


def _read_text(path: Path) -> str:
    return read_user_file(path).decode(errors="replace") if path.is_file() else ""
