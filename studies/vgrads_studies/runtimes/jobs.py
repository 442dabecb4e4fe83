"""Accuracy of run times that are learned from a scheduler's accounting, one record left out.

A record whose name has no other is one of a name that was never seen; names with others are also
compared with the last and with the mean value of the name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vgrads.runtimes.common import Common, estimate
from vgrads.runtimes.model import make_model
from vgrads.runtimes.task_history import TaskHistory, learn
from vgrads.traces.task_files import read_task_records
from vgrads.traces.task_record import TaskRecord
from vgrads_studies.report import markdown_table

LEVELS = (0.5, 0.8, 0.9)
MOST_OF_A_NAME = 8
"""Records of one name that are left out in turn: no name decides the result."""


@dataclass(frozen=True, slots=True)
class JobsLeftOut:
    """One dump. ``covered`` (levels): share inside the intervals; ``named``: predictions for names
    with other records, and medians of their absolute relative errors; ``farthest``: largest factor
    between a name's only record and its prediction."""

    dump: str
    names: int
    predictions: int
    covered: tuple[float, ...]
    named: int
    last: float
    mean: float
    ours: float
    farthest: float


@dataclass(frozen=True, slots=True)
class _Prediction:
    inside: tuple[bool, ...]
    errors: tuple[float, float, float] | None


def jobs_left_out(path: Path) -> JobsLeftOut:
    """Leave out one record of a dump after the other. What all names share is estimated once, from
    all of them: one record of thousands hardly moves it."""
    history = learn(TaskHistory(), read_task_records(path).records)
    common = estimate(history)
    results = [
        _left_out(rows[:at] + rows[at + 1 :], rows[at], common)
        for rows in history.by_kind.values()
        for at in _places(rows)
    ]
    single = [rows[0] for rows in history.by_kind.values() if len(rows) == 1 and rows[0].finished]
    model = make_model(history, common)
    far = [
        abs(np.log(max(r.seconds, 0.5) / model.predict(r.kind, r.machine, None, r.procs).median_s))
        for r in single
    ]
    errors = np.array([r.errors for r in results if r.errors is not None]).reshape(-1, 3)
    last, mean, ours = (float(value) for value in np.median(errors, axis=0))
    return JobsLeftOut(
        dump=path.name.partition(".")[0],
        names=len(history.kinds),
        predictions=len(results),
        covered=tuple(float(share) for share in np.mean([r.inside for r in results], axis=0)),
        named=len(errors),
        last=last,
        mean=mean,
        ours=ours,
        farthest=float(np.exp(max(far, default=0.0))),
    )


def _places(rows: Sequence[TaskRecord]) -> Iterator[int]:
    """Return which finished records of a name are left out, evenly spaced."""
    places = [at for at, row in enumerate(rows) if row.finished]
    step = max(1, -(-len(places) // MOST_OF_A_NAME))
    yield from places[::step]


def _left_out(rest: tuple[TaskRecord, ...], left: TaskRecord, common: Common) -> _Prediction:
    model = make_model(TaskHistory(rest), common)
    prediction = model.predict(left.kind, left.machine, left.input_bytes, left.procs)
    seconds = max(left.seconds, 0.5)
    inside = tuple(
        prediction.quantile(0.5 - level / 2) < seconds <= prediction.quantile(0.5 + level / 2)
        for level in LEVELS
    )
    others = sorted((r for r in rest if r.finished), key=lambda r: r.ended_at_s or 0.0)
    if not others:
        return _Prediction(inside, None)
    rivals = others[-1].seconds, float(np.mean([r.seconds for r in others]))
    last, mean, ours = (abs(v - seconds) / seconds for v in (*rivals, prediction.median_s))
    return _Prediction(inside, (last, mean, ours))


def text(rows: Sequence[JobsLeftOut]) -> str:
    """Return the table."""
    levels = (f"in {level:.0%}" for level in LEVELS)
    head = ("dump", "names", "predictions", *levels, "named", "last", "mean", "ours", "farthest")
    return markdown_table(
        head,
        [
            (
                row.dump,
                str(row.names),
                str(row.predictions),
                *(f"{share:.3f}" for share in row.covered),
                str(row.named),
                *(f"{error:.4f}" for error in (row.last, row.mean, row.ours)),
                f"{row.farthest:.2f}",
            )
            for row in rows
        ],
    )
