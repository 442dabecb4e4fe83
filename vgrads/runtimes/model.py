"""The model: all learned data, in a form that answers one query in a tenth of a millisecond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, hypot, log, sqrt

import numpy as np

from vgrads.kernel.errors import InputError
from vgrads.runtimes.answer import KindPredictor, answers
from vgrads.runtimes.laws import Array
from vgrads.runtimes.machines import SCORED_SD, UNSCORED_SD, Scores, checked, offsets, reference
from vgrads.runtimes.pooling import Shared, pool
from vgrads.runtimes.prediction import Prediction, Source
from vgrads.runtimes.samples import memories, times
from vgrads.runtimes.task_history import TaskHistory

STATED_WEIGHT = 4.0
"""Number of observations that a value stated by a user counts as, as for boot times
(``vgrads.vgrid.binding``)."""
STATED_SD = 0.5
"""Standard deviation of the logarithm of a true median about a stated one: two thirds within a
factor 1.6."""
GUESS_OWN = 0.3
"""Standard deviation of one task of a kind without data."""
_UNHEARD = (0.0, UNSCORED_SD)


@dataclass(frozen=True, eq=False)
class RuntimeModel:
    """Learned run times; ``reference`` is the machine of speed 1 ("" where no machine is named)."""

    reference: str
    times: Mapping[str, KindPredictor]
    memory: Mapping[str, KindPredictor]
    machines: Mapping[str, tuple[float, float]]  # log time relative to the reference, and its sd
    run_sd: float
    level: float
    level_sd: float
    observations: int

    def speed(self, machine: str) -> tuple[float, float]:
        """Return (speed relative to the reference, standard deviation of its logarithm)."""
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
        """Return how long a task of ``kind`` takes at ``machine`` ("": the reference).

        ``stated_s`` is the user's estimate at the reference. Raises InputError for impossible
        numbers.
        """
        _check(input_bytes, procs, stated_s)
        machine = machine or self.reference
        shift, machine_sd = self._machine(machine)
        kind_predictor = self.times.get(kind)
        memory = self._memory(kind, input_bytes)
        source: Source = "guess"
        if kind_predictor is None:
            level, kind_var, own, observed = self.level, self.level_sd**2, GUESS_OWN**2, 0
        else:
            level, kind_var, own = kind_predictor.at(machine, input_bytes, procs)
            observed, source = kind_predictor.sample.observations, "learned"
        if stated_s is not None:
            weight = STATED_WEIGHT / (STATED_WEIGHT + observed)
            level = weight * log(stated_s) + (1 - weight) * level
            kind_var = (weight * STATED_SD) ** 2 + (1 - weight) ** 2 * kind_var
            source = "learned" if observed >= STATED_WEIGHT else "stated"
        return Prediction(
            median_s=exp(level + shift),
            own=sqrt(own),
            kind=sqrt(kind_var),
            machine=machine_sd,
            workflow=self.run_sd,
            observations=observed,
            source=source,
            memory_bytes=memory and memory[0],
            memory_sd=memory and memory[1],
        )

    def _machine(self, machine: str) -> tuple[float, float]:
        """Return the common part of all tasks at a machine: logarithm of time over that at the
        reference, and its sd."""
        if machine in ("", self.reference):
            return 0.0, 0.0
        return self.machines.get(machine, _UNHEARD)

    def _memory(self, kind: str, size: float | None) -> tuple[float, float] | None:
        kind_predictor = self.memory.get(kind)
        if kind_predictor is None:
            return None
        mean, variance, own = kind_predictor.at("", size, 1)
        return exp(mean), sqrt(variance + own)


def fit(history: TaskHistory, scores: Mapping[str, Scores] | None = None) -> RuntimeModel:
    """Fit the model to all records; ``scores`` of a benchmark by machine, where there are any."""
    payload = checked(scores or {})
    base = reference(history.records, payload)
    names = sorted({record.machine for record in history.records} | set(payload))
    where = offsets(names, base, payload)
    scored = frozenset(payload) if base in payload else frozenset()
    rows = history.by_kind()
    pooled = pool([times(kind, some, where) for kind, some in rows.items()], base, scored)
    peaks = [sample for kind, some in rows.items() if (sample := memories(kind, some))]
    return RuntimeModel(
        reference=base,
        times=answers(pooled, where),
        memory=answers(pool(peaks, "", frozenset()), {}),
        machines={
            name: _machine(name, offset, name in scored, pooled.shared)
            for name, offset in where.items()
        },
        run_sd=pooled.shared.run_sd,
        level=pooled.level.mean,
        level_sd=pooled.level.sd * sqrt(1 + 1 / (1 + pooled.level.kinds)),
        observations=len(history.records),
    )


def _machine(name: str, offset: Array, scored: bool, shared: Shared) -> tuple[float, float]:
    """Return an entry of ``RuntimeModel.machines``; the departure of a machine with records was
    solved for together with the weights."""
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
