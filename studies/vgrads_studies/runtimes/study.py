"""Accuracy of learned run times and of their intervals, against recorded ones.

Tables: Lotaru's protocol (Bader et al., SSDBM 2022, doi:10.1145/3538712.3538739) on the traces of
its study: learn from shrunken inputs on one node, predict full inputs on every node, from the
scores of a benchmark alone; the coverage of intervals on the same predictions; and own runs, one
left out: every node's trace, and runs recorded as WfFormat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from vgrads.runtimes.machines import Scores
from vgrads.runtimes.model import RuntimeModel, fit
from vgrads.runtimes.task_history import TaskHistory, learn
from vgrads.runtimes.tools import load_shipped
from vgrads.traces.task_record import TaskRecord
from vgrads_studies.report import as_json, markdown_table, study_parser
from vgrads_studies.runtimes import memory as requests
from vgrads_studies.runtimes import pilots, unseen
from vgrads_studies.runtimes.jobs import jobs_left_out
from vgrads_studies.runtimes.jobs import text as jobs_text
from vgrads_studies.runtimes.recorded_tasks import (
    LOCAL,
    SIZES,
    records,
    scores,
    traces,
    wfformat,
    workflows,
)

FAMILIES = ("montage", "bwa", "epigenomics")
LEVELS = (0.5, 0.8, 0.9)
TRAINED = ("all", "six", "first")
"""Rows learned from: all shrunken inputs; of each task and label the six smallest; the first six in
file order, which Lotaru's own program uses."""
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Accuracy for one workflow ("all": together): median absolute relative errors, and shares
    inside the intervals ``LEVELS``.

    ``plain`` is a regression per task, scaled by the CPU score; the others use the sizes in
    ``size``.
    """

    trained: str
    size: str
    workflow: str
    predictions: int
    plain: float
    ours: float
    covered: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One family of runs: medians of absolute relative errors over all tasks of all runs, each left
    out in turn."""

    family: str
    runs: int
    predictions: int
    mean: float
    ours: float
    covered: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Return our error over that of the mean of earlier runs."""
        return self.ours / self.mean


@dataclass(frozen=True, slots=True)
class Compared:
    """Predictions and actual times: relative errors of a rival and of ours, and our deviates."""

    rival: Array
    ours: Array
    deviates: Array


def training(local: pd.DataFrame, trained: str) -> pd.DataFrame:
    """Return shrunken inputs on the local node, as selected by ``TRAINED``."""
    shrunken = local[local.label != "test"]
    if trained == "six":
        shrunken = shrunken.sort_values("workflowinputsize", kind="stable")
    return shrunken if trained == "all" else shrunken.groupby(["task", "label"], sort=False).head(6)


def accuracy(folder: Path, trained: str = "all", size: str = SIZES[0]) -> tuple[Accuracy, ...]:
    """Run Lotaru's protocol: a row for each workflow, and one for all together."""
    compared = {name: _protocol(folder, name, trained, size) for name in workflows(folder)}
    whole = Compared(
        *(
            np.concatenate([getattr(c, name) for c in compared.values()])
            for name in ("rival", "ours", "deviates")
        )
    )
    return tuple(
        Accuracy(
            trained, size, name, len(c.ours), _median(c.rival), _median(c.ours), covered(c.deviates)
        )
        for name, c in (*compared.items(), ("all", whole))
    )


def rows(folder: Path) -> tuple[Accuracy, ...]:
    """Run all protocols: rows learned from, times sizes."""
    return tuple(
        row for trained in TRAINED for size in SIZES for row in accuracy(folder, trained, size)
    )


def _protocol(folder: Path, workflow: str, trained: str, size: str) -> Compared:
    payload, frames = scores(folder), traces(folder, workflow)
    shrunken = training(frames[LOCAL], trained)
    model = fit(learn(TaskHistory(), records(shrunken, LOCAL, size)), payload)
    lines = {task: plain_line(rows, size) for task, rows in shrunken.groupby("task")}
    tests = [
        (record, payload[LOCAL].cpu / payload[node].cpu)
        for node, frame in frames.items()
        for record in records(frame[frame.label == "test"], node, size)
    ]
    rival = [lines[record.kind](record.input_bytes or 0.0) * factor for record, factor in tests]
    return compared(model, [record for record, _ in tests], rival)


def plain_line(rows: pd.DataFrame, size: str) -> Callable[[float], float]:
    """Fit seconds on the size by ordinary least squares."""
    x, y = rows[size].to_numpy(float), rows.realtime.to_numpy(float) / 1000
    middle = x.mean()
    slope = float(((x - middle) @ y) / max(float((x - middle) @ (x - middle)), 1.0))
    return lambda at: float(y.mean()) + slope * (at - middle)


def compared(model: RuntimeModel, came: Iterable[TaskRecord], rival: Iterable[float]) -> Compared:
    """Return the relative errors of both, and ours in standard deviations."""
    results = []
    for record, other in zip(came, rival, strict=True):
        prediction = model.predict(record.kind, record.machine, record.input_bytes, record.procs)
        seconds = max(record.seconds, 1e-3)
        off = float(np.log(seconds / prediction.median_s)) / prediction.sd
        results.append(
            (abs(other - seconds) / seconds, abs(prediction.median_s - seconds) / seconds, off)
        )
    return Compared(*np.array(results).T)


def covered(deviates: Array) -> tuple[float, ...]:
    """Return the shares inside the central intervals ``LEVELS``."""
    inside = 2 * np.abs(ndtr(deviates) - 0.5)
    return tuple(float(np.mean(inside < level)) for level in LEVELS)


def left_out(folder: Path) -> tuple[LeftOut, ...]:
    """Run the leave-one-out protocol. ``folder`` has ``nextflow/`` and ``workflows/wfformat/``:
    every node as a run, every recorded run of a family."""
    nextflow = folder / "nextflow"
    payload = scores(nextflow)
    results = []
    for name in workflows(nextflow):
        frames = traces(nextflow, name)
        results.append(
            _leave(
                name, [records(frame, node, SIZES[0]) for node, frame in frames.items()], payload
            )
        )
    for family in FAMILIES:
        paths = sorted((folder / "workflows" / "wfformat").glob(f"{family}-*.json*"))
        if len(paths) > 1:
            results.append(_leave(family, [wfformat(path) for path in paths], {}))
    return tuple(results)


def _leave(family: str, runs: Sequence[list[TaskRecord]], payload: dict[str, Scores]) -> LeftOut:
    parts = []
    for at, run in enumerate(runs):
        earlier = [record for other, some in enumerate(runs) if other != at for record in some]
        observed: dict[str, list[float]] = {}
        for record in earlier:
            observed.setdefault(record.kind, []).append(record.seconds)
        came = [record for record in run if record.kind in observed]
        model = fit(learn(TaskHistory(), earlier), payload)
        parts.append(
            compared(model, came, [float(np.mean(observed[record.kind])) for record in came])
        )
    rival, ours = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("rival", "ours")
    )
    deviates = np.concatenate([part.deviates for part in parts])
    return LeftOut(family, len(runs), len(ours), _median(rival), _median(ours), covered(deviates))


def text(accuracies: Sequence[Accuracy], own: Sequence[LeftOut]) -> str:
    """Return both tables."""
    head = (
        "learned from",
        "size",
        "workflow",
        "predictions",
        "plain x CPU",
        "ours",
        *(f"in {p:.0%}" for p in LEVELS),
    )
    first = markdown_table(
        head,
        [
            (
                row.trained,
                row.size.removeprefix("taskinputsize") or "as stored",
                row.workflow,
                str(row.predictions),
                f"{row.plain:.3f}",
                f"{row.ours:.3f}",
                *(f"{share:.3f}" for share in row.covered),
            )
            for row in accuracies
        ],
    )
    head = (
        "family",
        "runs",
        "predictions",
        "mean",
        "ours",
        "ratio",
        *(f"in {p:.0%}" for p in LEVELS),
    )
    second = markdown_table(
        head,
        [
            (
                row.family,
                str(row.runs),
                str(row.predictions),
                f"{row.mean:.3f}",
                f"{row.ours:.3f}",
                f"{row.ratio:.2f}",
                *(f"{share:.3f}" for share in row.covered),
            )
            for row in own
        ],
    )
    return (
        "Lotaru's protocol, median absolute relative error\n"
        + first
        + "\n\nOwn runs, one left out, median absolute relative error\n"
        + second
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """``FOLDER`` holds nextflow/, workflows/wfformat/ and sacct/."""
    parser = study_parser("runtimes", __doc__)
    parser.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="folder that contains nextflow/, workflows/wfformat/ and sacct/",
    )
    options = parser.parse_args(arguments)
    accuracies, own = rows(options.folder / "nextflow"), left_out(options.folder)
    dumps = [jobs_left_out(path) for path in sorted((options.folder / "sacct").glob("*.gz"))]
    gains, alone = pilots.pilot_gains(options.folder), unseen.unseen(options.folder, load_shipped())
    memory = requests.memory_left_out(options.folder / "nextflow")
    if options.json:
        tables: dict[str, Sequence[Any]] = {
            "protocol": accuracies,
            "left_out": own,
            "jobs": dumps,
            "memory": memory,
            "unseen": alone,
            "pilots": gains,
        }
        print(as_json({name: [asdict(row) for row in table] for name, table in tables.items()}))
    else:
        print(text(accuracies, own))
        print("\nMemory, one node left out\n" + requests.text(memory))
        print("\nWorkflows never seen, longest path\n" + unseen.text(alone))
        print("\nPilot runs, nothing learned before\n" + pilots.text(gains))
        print("\nJobs of accounting dumps, one left out\n" + jobs_text(dumps))


def _median(values: Array) -> float:
    return float(np.median(values))


if __name__ == "__main__":
    main()
