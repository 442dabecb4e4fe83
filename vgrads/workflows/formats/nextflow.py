"""A finished Nextflow run as a workflow: its trace gives tasks and run times, its work folders the
graph.

Nextflow knows its tasks only as it runs, and its trace says nothing of who needed whom. That stands
in the script by which a task's inputs were brought into its work folder (``.command.run``,
``.command.stage``): paths below other tasks' work folders, each named by a hash of which the trace
has the beginning. Without those folders there is no graph, and none is guessed: tasks in the order
of their processes would promise too much or too little.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from vgrads.kernel.errors import InputError
from vgrads.traces.task_lines import Broken, Row, bytes_of, cell, procs_of, rows
from vgrads.traces.task_nextflow import named, realtime
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.runtimes import Runtimes, timed
from vgrads.workflows.task import Task

_MIB = 1024 * 1024
_SCRIPTS = (".command.run", ".command.stage")
_STAGED = re.compile(r"^nxf_stage\(\)\s*\{.*?^\}", re.MULTILINE | re.DOTALL)
_FOLDER = re.compile(r"/([0-9a-f]{2}/[0-9a-f]{30})(?=[/\s'\"])")
_SHORT = 9  # of a hash, as traces and logs show it: 0a/1b2c3d
_ODD = re.compile(r"[^A-Za-z0-9_+=.-]+")
_LONGEST = 150
_ENDED = ("COMPLETED", "CACHED")


def is_trace(text: str) -> bool:
    """True for a trace that names its tasks' work folders by their hashes."""
    header = {name.strip().lower() for name in text.lstrip().partition("\n")[0].split("\t")}
    return (
        "hash" in header
        and bool(header & {"name", "process"})
        and bool(header & {"realtime", "duration", "status"})
    )


def read_trace(path: Path, runtimes: Runtimes, work: Path | None = None) -> Workflow:
    """The tasks of a run that ended well, or were taken from an earlier one; of several attempts
    the one that did.

    ``work``: Nextflow's work folder; else the trace's own ``workdir`` column, else ``work`` beside
    the trace.
    """
    kept, left = _rows(path)
    folders = {cell(row, "hash"): _folder(row, work or path.parent / "work") for row in kept}
    missing = [name for name, folder in folders.items() if folder is None]
    if missing:
        raise InputError(
            (
                f"says nothing of which task needs which, and {len(missing)} of {len(folders)} "
                f"work folders are not there, as {missing[0]}"
            ),
            where=str(path),
            fix=(
                "--inputs WORK, the work folder of that run; for run times alone: vgrads "
                "runtimes learn"
            ),
        )
    ids = dict(zip(folders, _ids(kept), strict=True))
    tasks = [_task(row, ids, folders, runtimes) for row in kept]
    notes = (f"leaves out {left} tasks or attempts that did not end well",) if left else ()
    return make_workflow(path.stem, tasks, where=str(path), notes=notes)


def _rows(path: Path) -> tuple[list[Row], int]:
    """Rows of tasks that ended well, one for each work folder; and how many did not."""
    kept: dict[str, Row] = {}
    left = 0
    for line, row in rows(path, "\t", quotes=False):
        if isinstance(row, Broken):
            raise InputError(row.why, where=f"{path}: line {line}")
        if not cell(row, "hash"):
            raise InputError("has no hash", where=f"{path}: line {line}")
        if cell(row, "status").upper() in _ENDED:
            if named(kept.setdefault(cell(row, "hash"), row)) != named(row):
                raise InputError("has the hash of another task", where=f"{path}: line {line}")
        else:
            left += 1
    if not kept:
        raise InputError("holds no task that ended well", where=str(path))
    return list(kept.values()), left


def _folder(row: Row, work: Path) -> Path | None:
    """A task's work folder, if it is there with the script that staged its inputs."""
    stated = cell(row, "workdir")
    group, _, begin = cell(row, "hash").partition("/")
    near = [Path(stated)] if stated else []
    if re.fullmatch("[0-9a-f]{2}", group) and re.fullmatch("[0-9a-f]{6,30}", begin):
        near += sorted((work / group).glob(f"{begin}*"))
    return next((folder for folder in near if (folder / _SCRIPTS[0]).is_file()), None)


def _ids(kept: list[Row]) -> Iterator[str]:
    """Process and tag; where several have the same, with their hash."""
    names = [
        _ODD.sub("_", ".".join(filter(None, (_kind(row), named(row)[1]))))[:_LONGEST]
        for row in kept
    ]
    often = Counter(names)
    for row, name in zip(kept, names, strict=True):
        yield f"{name}.{cell(row, 'hash').replace('/', '-')}" if often[name] > 1 else name


def _kind(row: Row) -> str:
    """The process, without the workflows that it is part of; as run times are learned by."""
    return named(row)[0].rpartition(":")[2] or "task"


def _task(
    row: Row, ids: Mapping[str, str], folders: Mapping[str, Path | None], runtimes: Runtimes
) -> Task:
    own, took = cell(row, "hash"), realtime(row)
    kind = _kind(row)
    size = bytes_of(cell(row, "memory")) or bytes_of(cell(row, "peak_rss")) or 0.0
    found = (ids.get(one) or ids.get(one[:_SHORT]) for one in _staged(folders[own]))
    parents = dict.fromkeys(one for one in found if one is not None and one != ids[own])
    return Task(
        id=ids[own],
        kind=kind,
        procs=procs_of(cell(row, "cpus")),
        memory_mib=size / _MIB,
        parents=tuple(parents),
        **timed(runtimes, (ids[own], kind), None if isinstance(took, str) else took, None),
    )


def _staged(folder: Path | None) -> list[str]:
    """Hashes of work folders out of which a task's inputs came."""
    if folder is None:
        return []
    run, stage = (_text(folder / name) for name in _SCRIPTS)
    brought = _STAGED.search(run)
    return _FOLDER.findall((brought[0] if brought else "") + stage)


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""
