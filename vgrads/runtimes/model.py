"""The model: all learned data, in a form that answers one query in a tenth of a millisecond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import exp, hypot, log, sqrt
from typing import NamedTuple

import numpy as np

from vgrads.kernel.errors import InputError
from vgrads.runtimes.answer import Answer, Kinds
from vgrads.runtimes.common import Common, estimate
from vgrads.runtimes.laws import Array
from vgrads.runtimes.machines import UNSCORED_SD, Scores
from vgrads.runtimes.prediction import Prediction, Source, compute_mixed_quantile
from vgrads.runtimes.samples import STEPS, memories, times
from vgrads.runtimes.task_history import KindRecords, TaskHistory
from vgrads.runtimes.tools import (
    FAMILY_SD,
    NO_TOOLS,
    ToolLevel,
    Tools,
    by_size,
    choose_best,
    expected,
    joined,
    list_names,
    load_shipped,
)

STATED_WEIGHT = 4.0
"""Number of observations that a value stated by a user counts as, as for boot times
(``vgrads.vgrid.binding``)."""
STATED_SD = 0.5
"""Standard deviation of the logarithm of a true median about a stated one: two thirds within a
factor 1.6."""
_UNHEARD = (0.0, UNSCORED_SD)
_FAMILY_SHARE = 0.64
"""At most, of the variance of a kind without records."""


class _Guess(NamedTuple):
    """The answer for a kind without records; ``workflow``: standard deviation of what it shares
    with others of its workflow; ``tool``: by which it was guessed."""

    answer: Answer
    workflow: float
    tool: str


@dataclass(frozen=True, eq=False)
class RuntimeModel:
    """Learned run times. Each kind is weighed when it is first predicted; ``machines`` of
    ``common`` have the logarithm of time relative to the reference, and its standard deviation."""

    common: Common
    times: Kinds
    memory: Kinds
    tools: Tools = field(default_factory=load_shipped)
    _unseen: dict[tuple[str, str, float], _Guess] = field(default_factory=dict)

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
        command: str = "",
    ) -> Prediction:
        """Return how long a task of ``kind`` takes at ``machine`` ("": the reference).

        ``stated_s`` is the user's estimate at the reference; ``command`` matters only for a kind
        without records. Raises InputError for impossible numbers.
        """
        _check(input_bytes, procs, stated_s)
        machine = machine or self.reference
        shift, machine_sd = self._machine(machine)
        workflow, kind_predictor = self.run_sd, self.times.find(kind)
        memory = self._memory(kind, input_bytes)
        source: Source = "guess"
        tool, observed = "", 0
        if kind_predictor is None:
            guess = self._guess(machine, list_names(kind, command), by_size(input_bytes, procs))
            level, kind_var, own, laws = guess.answer
            workflow, tool = hypot(guess.workflow, workflow), guess.tool
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
            # the user's value replaces the guess, and what it would have shared with other kinds
            workflow, tool = min(workflow, self.run_sd), ""
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
            tool=tool,
            memory_kind=memory[2] if memory else 0.0,
            laws=laws if stated_s is None else None,
        )

    def tool_of(self, kind: str, command: str) -> str:
        """Return the tool by which a kind without records is guessed; empty if none is listed."""
        return choose_best(list_names(kind, command), self.tools).lstrip("/")

    def _guess(self, machine: str, names: Sequence[str], size: float) -> _Guess:
        """Return what is expected of a kind without records: like others that use its tool, or
        like those of workflows; where a machine runs jobs of a scheduler's accounting, like
        these."""
        jobs = self.common.is_of_jobs(machine)
        tool, size = ("", 0.0) if jobs else (choose_best(names, self.tools), round(size, 1))
        # the size is rounded, so that few answers are stored
        key = (machine, tool, size)
        if key not in self._unseen:
            level = self.tools[tool] if tool else None
            answer, workflow = _predict_unseen(self.common, machine, level, size)
            self._unseen[key] = _Guess(answer, workflow, tool.lstrip("/"))
        return self._unseen[key]

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
    return make_model(history, estimate(history, scores))


def make_model(records: KindRecords, common: Common, others: Tools = NO_TOOLS) -> RuntimeModel:
    """Return the model of records, with what was estimated from them. ``others``: tools as other
    owners have run them."""
    return RuntimeModel(
        common,
        Kinds(records, partial(times, scores=common.where), common.times, common.where),
        Kinds(records, memories, common.memory, {}),
        joined(load_shipped(), others, common.tools),
    )


def _predict_unseen(
    common: Common, machine: str, tool: ToolLevel | None, size: float
) -> tuple[Answer, float]:
    """Return the answer for a kind without records, and the deviation of the part that it shares
    with others of its workflow, which is not in the answer."""
    parts, own = list[Array](), float(0)
    for name, share in common.shares(machine).items():
        source = common.times.source(name)
        weights, means, spread = source.unseen(size)
        parts.append(np.array([share * weights, means, spread]))
        own += share * source.noise
    whole = np.concatenate(parts, axis=1)
    if tool is not None:
        weight, (weights, means, spread) = expected(tool)
        like = np.array([weight * weights, means + size, spread])
        whole = np.concatenate([whole * [[1 - weight], [1], [1]], like], axis=1)
    weights, means, spread = whole
    middle = compute_mixed_quantile(0.5, weights, means, np.sqrt(spread))
    total = float(weights @ (spread + (means - middle) ** 2))
    family = min(FAMILY_SD**2, _FAMILY_SHARE * total)
    own = min(own, (total - family) / 2)  # the rest differs between kinds
    spread = np.maximum(spread - family, (1 - _FAMILY_SHARE) * spread)
    laws = np.array([weights, means - middle, spread])
    return Answer(middle, total - family - own, own, laws), sqrt(family)


def _check(input_bytes: float | None, procs: int, stated_s: float | None) -> None:
    if stated_s is not None and not 0 < stated_s < np.inf:
        raise InputError("a stated run time must be a positive number of seconds")
    if input_bytes is not None and not 0 <= input_bytes < np.inf:
        raise InputError("a size must be a number of bytes")
    if procs < 1:
        raise InputError("a task needs at least one processor")
