"""Recorded run times that the studies use: traces of Nextflow on several nodes, runs as
WfFormat."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd

from vgrads.kernel.documents import validate
from vgrads.kernel.errors import InputError
from vgrads.runtimes.machines import Scores
from vgrads.traces.task_record import TaskRecord
from vgrads.vgrid.catalog import Catalog, build_catalog
from vgrads.vgrid.documents import SitesDocument

WORKFLOWS = ("atacseq", "chipseq", "bacass")
"""The last one is for testing only: no choices were based on it."""
LOCAL = "local"
SIZES = ("taskinputsize", "taskinputsizeuncompressed")


def scores(folder: Path) -> dict[str, Scores]:
    """Read the benchmark scores of every node."""
    rows = pd.read_csv(_file(folder / "node-benchmarks.csv")).itertuples()
    return {str(row.node): Scores(float(row.cpu_score), float(row.io_score)) for row in rows}  # type: ignore[arg-type]


def traces(folder: Path, workflow: str) -> dict[str, pd.DataFrame]:
    """Read the trace of every node on which a workflow ran."""
    names = sorted(folder.glob(f"{workflow}-*.csv.gz"))
    if not names:
        raise InputError("contains no trace of this workflow", where=f"{folder}: {workflow}")
    return {path.name.split("-", 1)[1].removesuffix(".csv.gz"): pd.read_csv(path) for path in names}


def workflows(folder: Path) -> tuple[str, ...]:
    """Return the workflows with local traces, the named ones first."""
    here = {path.name.split("-")[0] for path in folder.glob(f"*-{LOCAL}.csv.gz")}
    return (*(name for name in WORKFLOWS if name in here), *sorted(here - set(WORKFLOWS)))


def records(frame: pd.DataFrame, node: str, size: str) -> list[TaskRecord]:
    """Return rows of a trace as records; those of one label and workflow input are one run."""
    return [
        TaskRecord(
            kind=row["task"],
            seconds=row["realtime"] / 1000,
            workflow=row["workflow"],
            run=f"{node}/{row['label']}/{row['workflowinputsize']}",
            machine=node,
            procs=int(row["cpus"]),
            cpu_seconds=_busy(row["%cpu"]) * row["realtime"] / 1000,
            input_bytes=float(row[size]),
            memory_bytes=float(row["peak_rss"]),
        )
        for row in frame.to_dict("records")
    ]


def _busy(percent: object) -> float:
    """Return the number of busy processors; 0 where it is not recorded."""
    try:
        return float(str(percent)) / 100
    except ValueError:
        return 0.0


def wfformat_runs(folder: Path) -> list[Path]:
    """Return the files of the runs that are recorded as WfFormat."""
    return sorted((folder / "workflows" / "wfformat").glob("*.json*"))


def single_site(node: str, procs: int) -> Catalog:
    """Return a catalogue of one machine."""
    site = {"name": node, "kind": "local", "procs": procs, "driver": "simulated"}
    return build_catalog(validate(SitesDocument, {"site": [site]}, node), Path(), node)


def wfformat(path: Path) -> list[TaskRecord]:
    """Read the tasks of a run recorded as WfFormat 1.5; the program is the kind."""
    whole = path.read_bytes()
    document: dict[str, Any] = json.loads(
        gzip.decompress(whole) if path.suffix == ".gz" else whole
    )["workflow"]
    message = document["specification"]
    sizes = {file["id"]: float(file["sizeInBytes"]) for file in message["files"]}
    reads = {
        task["id"]: sum(sizes.get(name, 0.0) for name in task.get("inputFiles", ()))
        for task in message["tasks"]
    }
    return [
        TaskRecord(
            kind=str(task.get("command", {}).get("program") or task["id"].rsplit("_", 1)[0]),
            seconds=float(task["runtimeInSeconds"]),
            workflow=path.name.split("-")[0],
            run=path.name,
            task=task["id"],
            machine=next(iter(task.get("machines", ())), ""),
            input_bytes=reads.get(task["id"]) or None,
            memory_bytes=task.get("memoryInBytes"),
        )
        for task in document["execution"]["tasks"]
    ]


def _file(path: Path) -> Path:
    if not path.is_file():
        raise InputError("no such file", where=str(path))
    return path
