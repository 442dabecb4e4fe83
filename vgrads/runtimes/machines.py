"""How fast is a machine? What a benchmark said of it, as seen from the machine of reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.errors import InputError
from vgrads.traces.task_record import TaskRecord

WEIGHTS = np.array([0.7, 0.3])
"""Powers of the CPU and the I/O score by which a task is quicker, before data: together 1 (twice as
fast in all is twice as fast), and more for computing, for which most tasks are run; errors hardly
depend on how (0.5 to 0.8 gives the same within a hundredth)."""
WEIGHT_SD = np.array([0.2, 0.2])
"""Of the shared powers about these."""
OWN_WEIGHT_SD = np.array([0.2, 0.2])
"""Of one kind's powers about the shared ones."""
SCORED_SD, UNSCORED_SD = 0.1, 0.4
"""Standard deviation of the logarithm of a machine's speed beyond its scores; where it has none.
These and the two of kinds were set by coverage on atacseq and chipseq
(benchmarks/bench_runtimes.py)."""
OWN_SD = 0.1
"""Of what one kind makes of one machine, beyond what others do."""


@dataclass(frozen=True, slots=True)
class Scores:
    """A benchmark's scores of a machine: larger is faster; only ratios matter."""

    cpu: float
    io: float


def checked(scores: Mapping[str, Scores]) -> dict[str, Scores]:
    """InputError for a score that is no positive number."""
    for name, score in scores.items():
        if not (0 < score.cpu < np.inf and 0 < score.io < np.inf):
            raise InputError("a benchmark score must be a positive number", where=name)
    return dict(sorted(scores.items()))


def reference(records: Iterable[TaskRecord], scores: Mapping[str, Scores]) -> str:
    """The machine with scores and most records, or with most records, or the first with scores; ""
    if none."""
    seen: dict[str, int] = {}
    for record in records:
        if record.machine:
            seen[record.machine] = seen.get(record.machine, 0) + 1
    known = {name: count for name, count in seen.items() if name in scores} or seen
    return min(
        known or dict.fromkeys(scores, 0), key=lambda name: (-known.get(name, 0), name), default=""
    )


def offsets(
    names: Iterable[str], base: str, scores: Mapping[str, Scores]
) -> dict[str, NDArray[np.float64]]:
    """Logarithms of the scores relative to those of ``base``; zeros where one has none."""
    zero, found = np.zeros(2), {}
    middle = scores.get(base)
    for name in names:
        score = scores.get(name)
        if score is None or middle is None:
            found[name] = zero
        else:
            found[name] = np.log([score.cpu / middle.cpu, score.io / middle.io])
    return found
