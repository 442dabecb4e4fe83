"""Workflows never seen: each family of recorded runs left out of the distributions of tools; its
duration is predicted from names, commands, sizes and processors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vgrads.runtimes.common import pool_tools
from vgrads.runtimes.model import RuntimeModel, fit
from vgrads.runtimes.prediction import Prediction
from vgrads.runtimes.task_history import TaskHistory
from vgrads.runtimes.tools import Tools, joined, of_families
from vgrads.traces.task_files import read_task_records
from vgrads.traces.task_record import TaskRecord
from vgrads.workflows.dag import Workflow
from vgrads.workflows.formats.load import load_workflow
from vgrads_studies.report import markdown_table
from vgrads_studies.runtimes.recorded_tasks import SIZES, WORKFLOWS, records, traces, wfformat_runs

FACTOR = 4.0
"""Wanted of the predicted median, for half of the workflows."""
_DRAWS = 400
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Unseen:
    """One recorded run: its longest path (seconds), the predicted median and the predicted
    probability of at most this."""

    workflow: str
    recorded_s: float
    predicted_s: float
    below: float

    @property
    def factor(self) -> float:
        """Return predicted over recorded."""
        return self.predicted_s / self.recorded_s


def families(folder: Path) -> dict[str, list[TaskRecord]]:
    """Return the records of each family of recorded workflows."""
    results: dict[str, list[TaskRecord]] = defaultdict(list)
    for name in WORKFLOWS:
        for node, frame in traces(folder / "nextflow", name).items():
            results[name] += records(frame, node, SIZES[0])
    for path in wfformat_runs(folder):
        results[_family(path)] += read_task_records(path).records
    return dict(results)


def unseen(folder: Path, listed: Tools) -> list[Unseen]:
    """Predict every recorded run from the other families. ``listed``: the names that count as
    tools, of which those of other families are used."""
    each = {name: pool_tools(TaskHistory(tuple(some))) for name, some in families(folder).items()}
    programs = [name for name in listed if not name.startswith("/")]
    utilities = {name: level for name, level in listed.items() if name.startswith("/")}
    results = []
    for path in wfformat_runs(folder):
        others = of_families(some for name, some in each.items() if name != _family(path))
        tools = joined(utilities, {name: others[name] for name in programs if name in others})
        model = replace(fit(TaskHistory()), tools=tools)
        results.append(_predicted(path, model))
    return results


def _predicted(path: Path, model: RuntimeModel) -> Unseen:
    workflow = load_workflow(path)
    task_records = {record.task: record for record in read_task_records(path).records}
    draws = np.random.default_rng(0)
    family, kinds = draws.normal(size=_DRAWS), dict[str, Array]()
    recorded, predicted = dict[str, Array](), dict[str, Array]()
    for name, record in task_records.items():
        expected = model.predict(
            record.kind, "", record.input_bytes, record.procs, command=record.tool
        )
        kind = kinds.setdefault(record.kind, draws.normal(size=_DRAWS))
        predicted[name] = _drawn(expected, family, kind, draws.normal(size=_DRAWS))
        recorded[name] = np.array([record.seconds])
    took = float(_longest(workflow, recorded)[0])
    values = _longest(workflow, predicted)
    return Unseen(
        path.name.partition(".")[0], took, float(np.median(values)), float(np.mean(values <= took))
    )


def _drawn(expected: Prediction, family: Array, kind: Array, own: Array) -> Array:
    total = expected.workflow * family + expected.kind * kind + expected.own * own
    return np.asarray(np.exp(log(expected.median_s) + total))


def _longest(workflow: Workflow, seconds: Mapping[str, Array]) -> Array:
    """Return the length of the longest path, of each draw."""
    ends = dict[str, Array]()
    for name in workflow.order:
        before = [ends[parent] for parent in workflow.tasks[name].parents]
        start = np.maximum.reduce(before) if before else np.zeros(1)
        ends[name] = start + seconds.get(name, np.zeros(1))
    return np.asarray(np.maximum.reduce(list(ends.values())))


def text(rows: Sequence[Unseen]) -> str:
    """Return the table, and how many medians are within the factor."""
    near = sum(1 / FACTOR <= row.factor <= FACTOR for row in rows)
    inside = sum(0.1 <= row.below <= 0.9 for row in rows)
    head = ("workflow", "recorded s", "predicted s", "factor", "predicted below")
    table = [
        (
            row.workflow,
            f"{row.recorded_s:.0f}",
            f"{row.predicted_s:.0f}",
            f"{row.factor:.2f}",
            f"{row.below:.2f}",
        )
        for row in rows
    ]
    return (
        f"{markdown_table(head, table)}\nwithin a factor {FACTOR:g}: {near} of {len(rows)}; "
        f"inside the 80 % interval: {inside}"
    )


def _family(path: Path) -> str:
    return path.name.split("-")[0]
