"""Run times learned: how true against a regression scaled by the CPU score and the mean of earlier
runs, and how fast.

python benchmarks/bench_runtimes.py [FOLDER]

FOLDER holds nextflow/ and workflows/wfformat/; without it, only what a database of run times costs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from vgrads_studies.runtimes import recorded_tasks, study

from vgrads.portal.records.runtimes import RunTimeRecords
from vgrads.portal.records.store import Store
from vgrads.runtimes.model import RuntimeModel, fit
from vgrads.runtimes.task_history import TaskHistory, learn
from vgrads.traces.task_record import TaskRecord

MOST_MS, RIGHT, RATIO = 0.1, 0.15, 0.6
"""What one prediction may take, and how wrong it may be: alone, and over the mean of earlier
runs."""


def each_ms(
    model: RuntimeModel, requested: list[tuple[str, str, float | None, int]], tries: int = 5
) -> float:
    """Milliseconds for one prediction, the best of some tries."""
    took = []
    for _ in range(tries):
        begun = time.perf_counter()
        for kind, machine, size, procs in requested:
            model.predict(kind, machine, size, procs)
        took.append(time.perf_counter() - begun)
    return min(took) / len(requested) * 1e3


def speed(folder: Path, workflow: str) -> str:
    """Fit and prediction of one workflow, learned from everything on the local node."""
    frames, payload = recorded_tasks.traces(folder, workflow), recorded_tasks.scores(folder)
    records = recorded_tasks.records(
        study.training(frames[recorded_tasks.LOCAL], "all"),
        recorded_tasks.LOCAL,
        recorded_tasks.SIZES[0],
    )
    history = learn(TaskHistory(), records)
    begun = time.perf_counter()
    model = fit(history, payload)
    fit_ms = (time.perf_counter() - begun) * 1e3
    requested = [(r.kind, node, r.input_bytes, r.procs) for r in records for node in frames]
    return (
        f"{workflow}: fit of {len(history.records)} records of {len(history.kinds)} kinds "
        f"{fit_ms:.0f} ms; "
        f"one prediction {each_ms(model, requested):.3f} ms (at most {MOST_MS})"
    )


def stored(count: int, kinds: int) -> str:
    """Learning generated job names into a database, and what a plan pays to open them."""
    random = np.random.default_rng(1)
    names, seconds = random.integers(0, kinds, count), np.exp(random.normal(5, 1.5, count))
    task_records = [
        TaskRecord(kind=f"job-{kind}", seconds=float(s), machine="c", ended_at_s=float(at))
        for at, (kind, s) in enumerate(zip(names, seconds, strict=True))
    ]
    with tempfile.TemporaryDirectory() as folder, Store(f"sqlite:///{folder}/vgrads.db") as store:
        records = RunTimeRecords(store.engine)
        begun = time.perf_counter()
        records.learn(task_records)
        learn_s = time.perf_counter() - begun
        open_s = min(_opened_s(records) for _ in range(5))
        model = records.learned().model
        requested = [(f"job-{kind}", "c", None, 1) for kind in names[:20]]
        return (
            f"{count} records of {kinds} kinds: learned in {learn_s:.1f} s (at most 10 for"
            f" 100,000); opened in {open_s * 1e3:.0f} ms (at most 100 for 10,000 kinds);"
            f" one prediction {each_ms(model, requested):.3f} ms (at most {MOST_MS})"
        )


def _opened_s(records: RunTimeRecords) -> float:
    begun = time.perf_counter()
    records.learned()
    return time.perf_counter() - begun


def main(arguments: list[str]) -> None:
    """Print the tables and both ratios."""
    print(stored(10_000, 10_000))
    print(stored(100_000, 10_000))
    if not arguments:
        return
    folder = Path(arguments[0])
    nextflow = folder / "nextflow"
    accuracies, own = study.rows(nextflow), study.left_out(folder)
    print(study.text(accuracies, own))
    print()
    for row in accuracies:
        if row.workflow == "all":
            print(
                f"{row.trained} rows, {row.size}: {row.ours:.3f} (at most {RIGHT}), "
                f"{row.ours / row.plain:.2f} x plain regression by CPU score"
            )
    for left in own:
        print(f"{left.family}: {left.ratio:.2f} x the mean of earlier runs (at most {RATIO})")
    for workflow in recorded_tasks.workflows(nextflow):
        print(speed(nextflow, workflow))


if __name__ == "__main__":
    main(sys.argv[1:])
