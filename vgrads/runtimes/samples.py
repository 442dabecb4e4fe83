"""The records of one kind as arrays, for time or for memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vgrads.runtimes.laws import JOBS_RANGE, RANGE, Array
from vgrads.traces.task_record import TaskRecord

JOBS, STEPS = "jobs", "steps"
"""Sources: job names of a scheduler's accounting, and steps of workflows. Names of jobs differ more
in what they stand for, so each has its own levels, laws and noises."""
MOST = 48
"""Maximum number of weighed records of a kind: the information of more is lost in the uncertainty
of machines."""
PROCS_POWER, PROCS_SD = -0.6, 0.4
"""Power of the processors and its standard deviation, before data, where records with several
processor numbers exist."""
BUSY_POWER, MOST_BUSY = 0.3, 16.0
"""A benchmark measures one core. A task that keeps several busy shares caches, memory and clock,
and is affected less by the score: by this power of its number of busy processors, limited to this
number. Chosen on atacseq and chipseq."""
_LEAST_S = 1e-3
_NO_SCORE = np.zeros(2)


@dataclass(frozen=True, eq=False)
class Sample:
    """``n`` observations of the ``observations`` ones: logarithms ``y`` and their extra variance
    ``blur`` (rounding; infinite-free), sizes as logarithms ``x`` from their middle ``centre`` (0
    where unrecorded), log scores (n, 2), log processors ``procs`` from ``usual``; ``least`` is the
    smallest x, ``longest`` the largest y; ``open`` marks censored ones, known only as lower bounds.
    """

    kind: str
    source: str
    observations: int
    y: Array
    blur: Array
    open: np.ndarray
    x: Array
    centre: float
    spread: float
    least: float
    longest: float
    scores: Array
    procs: Array
    usual: float
    several: bool
    machines: tuple[str, ...]
    runs: tuple[tuple[str, str], ...]
    dated: bool
    gain: Array = field(default_factory=lambda: np.ones(2))

    def observe(self, y: Array, blur: Array) -> Sample:
        """Return the sample with other values, as censored ones are filled in."""
        return replace(self, y=y, blur=blur)

    @property
    def follows(self) -> bool:
        """Return whether the latest records matter most: of jobs with times, and without sizes."""
        return self.source == JOBS and self.dated and not self.spread

    @property
    def places(self) -> Array:
        """Return where departures are, (n,), in the distances over which they decay: by size, or
        by age, before the next one at 0."""
        return np.arange(-len(self.y), 0) / JOBS_RANGE if self.follows else self.x / RANGE

    def place_of(self, x: float) -> float:
        """Return where the departure of a task of a size is."""
        return 0.0 if self.follows else x / RANGE


def thin(records: Iterable[TaskRecord]) -> list[TaskRecord]:
    """Return at most ``MOST``, the newest of every machine in turn, in order of age."""
    places: dict[str, list[TaskRecord]] = {}
    for record in records:
        places.setdefault(record.machine, []).append(record)
    # first the newest record of every machine, then the second newest of each, and so on
    turns = sorted(
        (len(rows) - at, name, at) for name, rows in places.items() for at in range(len(rows))
    )
    chosen = [places[name][at] for _, name, at in sorted(turns[:MOST], key=lambda turn: turn[1:])]
    return sorted(chosen, key=lambda record: record.ended_at_s or 0.0)


def times(kind: str, records: Iterable[TaskRecord], scores: Mapping[str, Array]) -> Sample:
    """Return the sample of seconds, which may be whole ones or thousandths."""
    every = list(records)
    rows = thin(every)
    seconds = np.array([record.seconds for record in rows])
    whole = bool(np.all(seconds == np.round(seconds)))
    step = 1.0 if whole else _LEAST_S
    # what is recorded as 0 may have taken up to half a step
    values = np.maximum(seconds, step / 2)
    gain = _choose_gain(rows)
    felt = {row.machine: scores.get(row.machine, _NO_SCORE) * gain for row in rows}
    # rounding is uniform over a step: variance step² ÷ 12; of a logarithm, ÷ the time squared
    sample = _sample(kind, rows, np.log(values), step**2 / 12 / values**2, felt, len(every))
    return replace(sample, gain=gain)


def _choose_gain(rows: Sequence[TaskRecord]) -> Array:
    """Return how much of a machine's scores affects a kind, (2,): all of them where it keeps one
    processor busy, or this is unrecorded."""
    busy = [r.cpu_seconds / r.seconds for r in rows if r.cpu_seconds and r.seconds > 0]
    if not busy:
        return np.ones(2)
    many = np.exp(np.mean(np.log(np.clip(busy, 1.0, MOST_BUSY))))
    return np.array([many**-BUSY_POWER, 1.0])


def memories(kind: str, records: Iterable[TaskRecord]) -> Sample | None:
    """Return the sample of the records with peak memory, on which machines and processors have no
    effect; None without any."""
    rows = thin(r for r in records if r.memory_bytes)
    if not rows:
        return None
    # a task that ran out of memory shows only a lower bound of what it needs
    plain = [replace(r, finished=not r.memory_full, machine="", run="", procs=1) for r in rows]
    values = np.log([record.memory_bytes or 1.0 for record in rows])
    sample = _sample(kind, plain, values, np.zeros(len(rows)), {"": np.zeros(2)}, len(rows))
    return replace(sample, source=derive_source(rows))


def _sample(
    kind: str,
    rows: list[TaskRecord],
    y: Array,
    blur: Array,
    scores: Mapping[str, Array],
    observations: int,
) -> Sample:
    sizes = np.array([np.log(max(r.input_bytes, 1.0)) if r.input_bytes else np.nan for r in rows])
    message = ~np.isnan(sizes)
    centre = float(sizes[message].mean()) if message.any() else np.nan
    procs = np.log([float(r.procs) for r in rows])
    return Sample(
        kind=kind,
        source=derive_source(rows),
        observations=observations,
        y=y,
        blur=blur,
        open=np.array([not r.finished for r in rows]),
        x=np.where(message, sizes - centre, 0.0),
        centre=centre,
        spread=float(sizes[message].std()) if message.any() else 0.0,
        least=float(np.min(sizes[message] - centre)) if message.any() else 0.0,
        longest=float(y.max()),
        scores=np.array([scores[r.machine] for r in rows]),
        procs=procs - procs.mean(),
        usual=float(procs.mean()),
        several=bool(np.ptp(procs) > 0),
        machines=tuple(r.machine for r in rows),
        runs=tuple((r.workflow, r.run) if r.run else ("", "") for r in rows),
        dated=all(r.ended_at_s is not None for r in rows),
    )


def derive_source(rows: Iterable[TaskRecord]) -> str:
    """Return the source of a kind with these records."""
    return STEPS if any(row.workflow or row.run for row in rows) else JOBS
