"""The records of one kind as arrays, for time or for memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vgrads.runtimes.laws import Array
from vgrads.traces.task_record import TaskRecord

MOST = 48
"""Records of a kind that are weighed: what more of them told would be lost in what is not known of
machines."""
PROCS_POWER, PROCS_SD = -0.6, 0.4
"""Of the power of the processors, before data, where records with several numbers of them exist."""
BUSY_POWER, MOST_BUSY = 0.3, 16.0
"""A benchmark measures one core. A task that keeps several busy shares caches, memory and clock,
and feels less of it: by this power of how many it keeps busy, at most so many. Chosen on atacseq
and chipseq."""
_LEAST_S = 1e-3


@dataclass(frozen=True, eq=False)
class Sample:
    """``n`` observations of the ``known`` ones: logarithms ``y`` and their extra variance ``blur``
    (rounding; infinite-free), sizes as logarithms ``x`` from their middle ``centre`` (0 where
    untold), log scores (n, 2), log processors ``procs`` from ``usual``; ``least`` is the smallest
    x, ``longest`` the largest y; ``open`` marks those that are only known to be larger."""

    kind: str
    known: int
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
    gain: Array = field(default_factory=lambda: np.ones(2))

    def seen(self, y: Array, blur: Array) -> Sample:
        """The same with other values, as censored ones are filled in."""
        return replace(self, y=y, blur=blur)


def thin(records: Iterable[TaskRecord]) -> list[TaskRecord]:
    """At most ``MOST``, the newest of every machine in turn; records stand in order of age."""
    places: dict[str, list[TaskRecord]] = {}
    for record in records:
        places.setdefault(record.machine, []).append(record)
    turns = sorted(
        (len(rows) - at, name, at) for name, rows in places.items() for at in range(len(rows))
    )
    return [places[name][at] for _, name, at in sorted(turns[:MOST], key=lambda turn: turn[1:])]


def times(kind: str, records: Iterable[TaskRecord], scores: Mapping[str, Array]) -> Sample:
    """Seconds, which may be whole ones or thousandths."""
    every = list(records)
    rows = thin(every)
    seconds = np.array([record.seconds for record in rows])
    whole = bool(np.all(seconds == np.round(seconds)))
    step = 1.0 if whole else _LEAST_S
    values = np.maximum(seconds, step / 2)
    gain = _gain(rows)
    felt = {name: offset * gain for name, offset in scores.items()}
    sample = _sample(kind, rows, np.log(values), step**2 / 12 / values**2, felt, len(every))
    return replace(sample, gain=gain)


def _gain(rows: Sequence[TaskRecord]) -> Array:
    """How much of a machine's scores a kind feels, (2,): all of them where it keeps one processor
    busy, or nobody says."""
    busy = [r.cpu_seconds / r.seconds for r in rows if r.cpu_seconds and r.seconds > 0]
    if not busy:
        return np.ones(2)
    many = np.exp(np.mean(np.log(np.clip(busy, 1.0, MOST_BUSY))))
    return np.array([many**-BUSY_POWER, 1.0])


def memories(kind: str, records: Iterable[TaskRecord]) -> Sample | None:
    """Peak memory, on which machines and processors have no effect; None where nothing is told of
    it."""
    rows = thin(r for r in records if r.memory_bytes)
    if not rows:
        return None
    plain = [replace(r, finished=not r.memory_full, machine="", run="", procs=1) for r in rows]
    values = np.log([record.memory_bytes or 1.0 for record in rows])
    return _sample(kind, plain, values, np.zeros(len(rows)), {"": np.zeros(2)}, len(rows))


def _sample(
    kind: str,
    rows: list[TaskRecord],
    y: Array,
    blur: Array,
    scores: Mapping[str, Array],
    known: int,
) -> Sample:
    sizes = np.array([np.log(max(r.input_bytes, 1.0)) if r.input_bytes else np.nan for r in rows])
    told = ~np.isnan(sizes)
    centre = float(sizes[told].mean()) if told.any() else np.nan
    procs = np.log([float(r.procs) for r in rows])
    return Sample(
        kind=kind,
        known=known,
        y=y,
        blur=blur,
        open=np.array([not r.finished for r in rows]),
        x=np.where(told, sizes - centre, 0.0),
        centre=centre,
        spread=float(sizes[told].std()) if told.any() else 0.0,
        least=float(np.min(sizes[told] - centre)) if told.any() else 0.0,
        longest=float(y.max()),
        scores=np.array([scores[r.machine] for r in rows]),
        procs=procs - procs.mean(),
        usual=float(procs.mean()),
        several=bool(np.ptp(procs) > 0),
        machines=tuple(r.machine for r in rows),
        runs=tuple((r.workflow, r.run) if r.run else ("", "") for r in rows),
    )
