"""The model: all learned data, in a form that answers one query in a tenth of a millisecond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import exp, log, sqrt

import numpy as np

from vgrads.kernel.errors import InputError
from vgrads.runtimes.answer import Answer, Kinds
from vgrads.runtimes.common import Common, estimate
from vgrads.runtimes.laws import Array
from vgrads.runtimes.machines import UNSCORED_SD, Scores
from vgrads.runtimes.prediction import Prediction, Source, mixed_quantile
from vgrads.runtimes.samples import STEPS, memories, times
from vgrads.runtimes.task_history import KindRecords, TaskHistory

STATED_WEIGHT = 4.0
"""Number of observations that a value stated by a user counts as, as for boot times
(``vgrads.vgrid.binding``)."""
STATED_SD = 0.5
"""Standard deviation of the logarithm of a true median about a stated one: two thirds within a
factor 1.6."""
_UNHEARD = (0.0, UNSCORED_SD)


@dataclass(frozen=True, eq=False)
class RuntimeModel:
    """Learned run times. Each kind is weighed when it is first predicted; ``machines`` of
    ``common`` have the logarithm of time relative to the reference, and its standard deviation."""

    common: Common
    times: Kinds
    memory: Kinds
    _unseen: dict[str, Answer] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """Return the machine of speed 1."""
        return self.common.reference

    @property
    def machines(self) -> Mapping[str, tuple[float, float]]:
        """Return the machines with records or scores."""
        return self.common.machines

    @property
    def run_sd(self) -> float:
        """Return the standard deviation of runs of a workflow about the usual."""
        return self.common.times.shared.run_sd

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
        workflow, kind_predictor = self.run_sd, self.times.find(kind)
        memory = self._memory(kind, input_bytes)
        source: Source = "guess"
        if kind_predictor is None:
            (level, kind_var, own, laws), observed = self._guess(machine), 0
            if self.common.is_of_jobs(machine):  # of all its jobs
                shift, machine_sd, workflow = 0.0, 0.0, 0.0
        else:
            level, kind_var, own, laws = kind_predictor.at(machine, input_bytes, procs)
            observed, source = kind_predictor.sample.observations, "learned"
            workflow = self.run_sd if kind_predictor.sample.source == STEPS else 0.0
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
            workflow=workflow,
            observations=observed,
            source=source,
            memory_bytes=memory and memory[0],
            memory_sd=memory and memory[1],
            memory_kind=memory[2] if memory else 0.0,
            laws=laws if stated_s is None else None,
        )

    def _guess(self, machine: str) -> Answer:
        """Return what is supposed of a kind without records: like those of workflows, or, where a
        machine runs jobs of a scheduler's accounting, like these."""
        if machine not in self._unseen:
            self._unseen[machine] = _unseen(self.common, machine)
        return self._unseen[machine]

    def _machine(self, machine: str) -> tuple[float, float]:
        """Return the common part of all tasks at a machine: logarithm of time over that at the
        reference, and its sd."""
        if machine in ("", self.reference):
            return 0.0, 0.0
        return self.machines.get(machine, _UNHEARD)

    def _memory(self, kind: str, size: float | None) -> tuple[float, float, float] | None:
        kind_predictor = self.memory.find(kind)
        if kind_predictor is None:
            return None
        mean, variance, own, _ = kind_predictor.at("", size, 1)
        return exp(mean), sqrt(variance + own), sqrt(variance)


def fit(history: TaskHistory, scores: Mapping[str, Scores] | None = None) -> RuntimeModel:
    """Fit the model to all records; ``scores`` of a benchmark by machine, where there are any."""
    return model_of(history, estimate(history, scores))


def model_of(records: KindRecords, common: Common) -> RuntimeModel:
    """Return the model of records, given what was estimated from them."""
    return RuntimeModel(
        common,
        Kinds(records, partial(times, scores=common.where), common.times, common.where),
        Kinds(records, memories, common.memory, {}),
    )


def _unseen(common: Common, machine: str) -> Answer:
    parts, own = list[Array](), float(0)
    for name, share in common.shares(machine).items():
        source = common.times.source(name)
        weights, means, spread = source.unseen()
        parts.append(np.array([share * weights, means, spread]))
        own += share * source.noise
    weights, means, spread = np.array(np.concatenate(parts, axis=1))
    middle = mixed_quantile(0.5, weights, means, np.sqrt(spread))
    total = float(weights @ (spread + (means - middle) ** 2))
    own = min(own, total / 2)  # the rest differs between kinds
    return Answer(middle, total - own, own, np.array([weights, means - middle, spread]))


def _check(input_bytes: float | None, procs: int, stated_s: float | None) -> None:
    if stated_s is not None and not 0 < stated_s < np.inf:
        raise InputError("a stated run time must be a positive number of seconds")
    if input_bytes is not None and not 0 <= input_bytes < np.inf:
        raise InputError("a size must be a number of bytes")
    if procs < 1:
        raise InputError("a task needs at least one processor")
