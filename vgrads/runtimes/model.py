"""The model: everything learned, brought into the form in which one question takes a tenth of a
millisecond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, hypot, log, sqrt

import numpy as np

from vgrads.kernel.errors import InputError
from vgrads.runtimes.answer import Answer, answers
from vgrads.runtimes.known import Known
from vgrads.runtimes.laws import Array
from vgrads.runtimes.machines import SCORED_SD, UNSCORED_SD, Scores, checked, offsets, reference
from vgrads.runtimes.pooling import Shared, pool
from vgrads.runtimes.prediction import Prediction, Source
from vgrads.runtimes.samples import memories, times

STATED_WEIGHT = 4.0
"""Observations that a value which a person states counts for, as for boot times
(``vgrads.vgrid.binding``)."""
STATED_SD = 0.5
"""Of the logarithm of a true median about what a person states: two thirds within a factor 1.6."""
GUESS_OWN = 0.3
"""Standard deviation of one task of a kind of which nothing is known."""
_UNHEARD = (0.0, UNSCORED_SD)


@dataclass(frozen=True, eq=False)
class Model:
    """What was learned; ``reference`` is the machine of speed 1 ("" where no machine is known by
    name)."""

    reference: str
    times: Mapping[str, Answer]
    memory: Mapping[str, Answer]
    machines: Mapping[str, tuple[float, float]]  # log time over that at the reference, and its sd
    run_sd: float
    level: float
    level_sd: float
    observations: int

    def speed(self, machine: str) -> tuple[float, float]:
        """(times as fast as the reference, standard deviation of its logarithm)."""
        shift, sd = self._machine(machine)
        return exp(-shift), sd

    def predict(
        self,
        kind: str,
        machine: str = "",
        input_bytes: float | None = None,
        procs: int = 1,
        stated_s: float | None = None,
    ) -> Prediction:
        """How long a task of ``kind`` takes at ``machine`` ("": the reference).

        ``stated_s`` is what a person says it takes at the reference. InputError for impossible
        numbers.
        """
        _check(input_bytes, procs, stated_s)
        machine = machine or self.reference
        shift, machine_sd = self._machine(machine)
        found = self.times.get(kind)
        memory = self._memory(kind, input_bytes)
        source: Source = "guess"
        if found is None:
            level, kind_var, own, seen = self.level, self.level_sd**2, GUESS_OWN**2, 0
        else:
            level, kind_var, own = found.at(machine, input_bytes, procs)
            seen, source = found.sample.known, "learned"
        if stated_s is not None:
            weight = STATED_WEIGHT / (STATED_WEIGHT + seen)
            level = weight * log(stated_s) + (1 - weight) * level
            kind_var = (weight * STATED_SD) ** 2 + (1 - weight) ** 2 * kind_var
            source = "learned" if seen >= STATED_WEIGHT else "stated"
        return Prediction(
            median_s=exp(level + shift),
            own=sqrt(own),
            kind=sqrt(kind_var),
            machine=machine_sd,
            workflow=self.run_sd,
            observations=seen,
            source=source,
            memory_bytes=memory and memory[0],
            memory_sd=memory and memory[1],
        )

    def _machine(self, machine: str) -> tuple[float, float]:
        """What all tasks at a machine have in common: logarithm of time over that at the reference,
        and its sd."""
        if machine in ("", self.reference):
            return 0.0, 0.0
        return self.machines.get(machine, _UNHEARD)

    def _memory(self, kind: str, size: float | None) -> tuple[float, float] | None:
        found = self.memory.get(kind)
        if found is None:
            return None
        mean, variance, own = found.at("", size, 1)
        return exp(mean), sqrt(variance + own)


def fit(known: Known, scores: Mapping[str, Scores] | None = None) -> Model:
    """The model of all that is known; ``scores`` of a benchmark by machine, where there are any."""
    told = checked(scores or {})
    base = reference(known.records, told)
    names = sorted({record.machine for record in known.records} | set(told))
    where = offsets(names, base, told)
    scored = frozenset(told) if base in told else frozenset()
    rows = known.by_kind()
    found = pool([times(kind, some, where) for kind, some in rows.items()], base, scored)
    peaks = [sample for kind, some in rows.items() if (sample := memories(kind, some))]
    return Model(
        reference=base,
        times=answers(found, where),
        memory=answers(pool(peaks, "", frozenset()), {}),
        machines={
            name: _machine(name, offset, name in scored, found.shared)
            for name, offset in where.items()
        },
        run_sd=found.shared.run_sd,
        level=found.level.mean,
        level_sd=found.level.sd * sqrt(1 + 1 / (1 + found.level.kinds)),
        observations=len(known.records),
    )


def _machine(name: str, offset: Array, scored: bool, shared: Shared) -> tuple[float, float]:
    """See ``Model.machines``; of a machine with records its own departure was solved for together
    with the weights."""
    own, sd = shared.machines.get(name, (0.0, SCORED_SD if scored else UNSCORED_SD))
    unsure = 0.0 if name in shared.machines else float(offset @ shared.weights_cov @ offset)
    return own - float(offset @ shared.weights), hypot(sd, sqrt(unsure))


def _check(input_bytes: float | None, procs: int, stated_s: float | None) -> None:
    if stated_s is not None and not 0 < stated_s < np.inf:
        raise InputError("a stated run time must be a positive number of seconds")
    if input_bytes is not None and not 0 <= input_bytes < np.inf:
        raise InputError("a size must be a number of bytes")
    if procs < 1:
        raise InputError("a task needs at least one processor")
