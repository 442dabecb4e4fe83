"""Speed of a machine: its benchmark scores relative to the reference machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.errors import InputError
from vgrads.traces.task_record import TaskRecord

WEIGHTS = np.array([0.7, 0.3])
"""Powers of the CPU and the I/O score for a task's speed, before data: together 1 (twice as fast in
all is twice as fast), and more for computing, which dominates most tasks; errors hardly depend on
the split (0.5 to 0.8 gives the same within a hundredth)."""
WEIGHT_SD = np.array([0.2, 0.2])
"""Standard deviation of the shared powers about these."""
OWN_WEIGHT_SD = np.array([0.2, 0.2])
"""Standard deviation of one kind's powers about the shared ones."""
SCORED_SD, UNSCORED_SD = 0.1, 0.4
"""Standard deviation of the logarithm of a machine's speed beyond its scores; of one without
scores. These and the two of kinds were set by coverage on atacseq and chipseq
(benchmarks/bench_runtimes.py)."""
OWN_SD = 0.1
"""Standard deviation of one kind's effect of one machine, beyond that of the other kinds."""


@dataclass(frozen=True, slots=True)
class Scores:
    """A benchmark's scores of a machine: larger is faster; only ratios matter."""

    cpu: float
    io: float


def check_scores(scores: Mapping[str, Scores]) -> dict[str, Scores]:
    """Raise InputError for a score that is not a positive number."""
    for name, score in scores.items():
        if not (0 < score.cpu < np.inf and 0 < score.io < np.inf):
            raise InputError("a benchmark score must be a positive number", where=name)
    return dict(sorted(scores.items()))


def reference(records: Iterable[TaskRecord], scores: Mapping[str, Scores]) -> str:
    """Return the machine with scores and most records, or with most records, or the first with
    scores; "" if none."""
    observed: dict[str, int] = {}
    for record in records:
        if record.machine:
            observed[record.machine] = observed.get(record.machine, 0) + 1
    records_by_machine = {
        name: count for name, count in observed.items() if name in scores
    } or observed
    return min(
        records_by_machine or dict.fromkeys(scores, 0),
        key=lambda name: (-records_by_machine.get(name, 0), name),
        default="",
    )


def compute_offsets(
    names: Iterable[str], base: str, scores: Mapping[str, Scores]
) -> dict[str, NDArray[np.float64]]:
    """Return the logarithms of the scores relative to those of ``base``; zeros where one has
    none."""
    zero, result = np.zeros(2), {}
    middle = scores.get(base)
    for name in names:
        score = scores.get(name)
        if score is None or middle is None:
            result[name] = zero
        else:
            result[name] = np.log([score.cpu / middle.cpu, score.io / middle.io])
    return result
