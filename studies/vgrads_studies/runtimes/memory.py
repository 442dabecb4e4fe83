"""Memory that is requested by what was learned, one node's trace left out: beside what the authors
of the workflows state, and how often it does not suffice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vgrads.api.plans.runtimes import MEMORY
from vgrads.runtimes.model import fit
from vgrads.runtimes.task_history import TaskHistory, learn
from vgrads_studies.report import markdown_table
from vgrads_studies.runtimes.recorded_tasks import SIZES, records, scores, traces, workflows


@dataclass(frozen=True, slots=True)
class MemoryLeftOut:
    """One workflow: tasks, memory requested over memory stated (sums), and the share of tasks whose
    peak was larger."""

    workflow: str
    tasks: int
    ratio: float
    exceeded: float


def memory_left_out(folder: Path) -> list[MemoryLeftOut]:
    """Leave out every node's trace in turn. ``folder`` is ``nextflow/``."""
    payload = scores(folder)
    results = []
    for name in workflows(folder):
        frames = traces(folder, name)
        runs = {node: records(frame, node, SIZES[0]) for node, frame in frames.items()}
        rows: list[tuple[float, float, float]] = []
        for node, run in runs.items():
            others = [record for other, some in runs.items() if other != node for record in some]
            model = fit(learn(TaskHistory(), others), payload)
            for record, stated in zip(run, frames[node]["memory"].to_numpy(float), strict=True):
                prediction = model.predict(record.kind, "", record.input_bytes)
                requested = prediction.memory_quantile(MEMORY)
                if requested and stated > 0:
                    rows.append((requested, stated, record.memory_bytes or 0.0))
        requests, limits, peaks = np.array(rows).T
        results.append(
            MemoryLeftOut(
                workflow=name,
                tasks=len(rows),
                ratio=float(requests.sum() / limits.sum()),
                exceeded=float(np.mean(peaks > requests)),
            )
        )
    return results


def text(rows: Sequence[MemoryLeftOut]) -> str:
    """Return the table."""
    return markdown_table(
        ("workflow", "tasks", "requested / stated", "exceeded"),
        [(r.workflow, str(r.tasks), f"{r.ratio:.3f}", f"{r.exceeded:.4f}") for r in rows],
    )
