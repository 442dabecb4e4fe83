"""Run times learned: how true against a regression scaled by the CPU score and the mean of earlier
runs, and how fast.

python benchmarks/bench_runtimes.py FOLDER      (FOLDER holds nextflow/ and workflows/wfformat/)
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from vgrads.research.runtimes import study
from vgrads.runtimes.model import RuntimeModel, fit
from vgrads.runtimes.task_history import TaskHistory, learn

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
    frames, payload = study.traces(folder, workflow), study.scores(folder)
    records = study.records(study.training(frames[study.LOCAL], "all"), study.LOCAL, study.SIZES[0])
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


def main(arguments: list[str]) -> None:
    """Print the tables and both ratios."""
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
    for workflow in study.workflows(nextflow):
        print(speed(nextflow, workflow))


if __name__ == "__main__":
    main(sys.argv[1:])
