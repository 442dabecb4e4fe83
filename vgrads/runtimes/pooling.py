"""Shared effects of kinds, machines and runs, in alternating steps: laws per kind given the shared
effects, shared effects given the laws.

Given each kind's most probable law all shared effects are jointly normal: departures of machines
from their scores, of the powers of scores from those before data, of runs from the usual. Their
posterior is solved for at once, by generalised least squares with every kind's own covariance, so
that a kind observed at one machine only carries no information about its speed. Variances between
runs, machines and kinds are expected values (EM) with a prior that counts as a few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from vgrads.runtimes.laws import PRIOR, Array, Laws, pooled
from vgrads.runtimes.machines import SCORED_SD, UNSCORED_SD, WEIGHT_SD, WEIGHTS
from vgrads.runtimes.samples import Sample
from vgrads.runtimes.weighing import Level, Weighed, weigh

LEVEL = Level(mean=float(np.log(600.0)), sd=2.0)
"""Before any data ten minutes, 90 % between 22 s and 4.5 h: tasks that are worth a plan."""
RUN_SD, RUN_COUNT = 0.1, 4.0
"""Standard deviation of runs of a workflow about the usual, and the number of runs that it counts
as."""
MOST_RUNS = 400
LEVEL_COUNT = 3.0
_TURNS = 4


@dataclass(frozen=True)
class Shared:
    """``weights`` (2,) of the scores and their covariance; machines' own departures with standard
    deviations."""

    weights: Array
    weights_cov: Array
    machines: dict[str, tuple[float, float]] = field(default_factory=dict)
    runs: dict[tuple[str, str], float] = field(default_factory=dict)
    run_sd: float = RUN_SD


@dataclass(frozen=True)
class Pooled:
    """The pooled results of all kinds."""

    kinds: tuple[Weighed, ...]
    shared: Shared
    level: Level
    laws: Laws


NOTHING = Shared(weights=WEIGHTS, weights_cov=np.diag(WEIGHT_SD**2))


def pool(raw: Sequence[Sample], base: str, scored: frozenset[str]) -> Pooled:
    """Alternate both steps, a fixed number of times; samples in a fixed order give a fixed
    result."""
    shared, level, laws = NOTHING, LEVEL, PRIOR
    kinds = list[Weighed]()
    for turn in range(_TURNS):
        kinds = [weigh(s, _shift(s, shared), level, laws) for s in raw]
        if turn == _TURNS - 1 or not kinds:
            break
        laws = pooled(
            np.sum(
                [k.belief.sum(1) for k in kinds if k.sample.spread > 0] or [PRIOR.shapes * 0],
                axis=0,
            ),
            np.sum(
                [k.belief.sum(0) for k in kinds if len(k.sample.y) > 1] or [PRIOR.noises * 0],
                axis=0,
            ),
        )
        shared = _share(kinds, base, scored, shared)
        level = _levels(kinds, level)
    return Pooled(tuple(kinds), shared, level, laws)


def _shift(sample: Sample, shared: Shared) -> Array:
    """Return the additions of machines and runs to the logarithms of a sample."""
    machines = [shared.machines.get(name, (0.0, 0.0))[0] for name in sample.machines]
    runs = [shared.runs.get(run, 0.0) for run in sample.runs]
    return np.asarray(np.array(machines) + np.array(runs) - sample.scores @ shared.weights)


def _share(kinds: Sequence[Weighed], base: str, scored: frozenset[str], old: Shared) -> Shared:
    machines = sorted({m for k in kinds for m in k.sample.machines if m and m != base})
    runs = _runs(kinds)
    columns: dict[tuple[str, ...], int] = {("m", name): 2 + at for at, name in enumerate(machines)}
    columns |= {("r", *run): 2 + len(machines) + at for at, run in enumerate(runs)}
    spread = [SCORED_SD if name in scored else UNSCORED_SD for name in machines]
    prior = np.concatenate([WEIGHT_SD, spread, np.full(len(runs), old.run_sd)])
    precision, right = np.diag(prior**-2.0), np.zeros(len(prior))
    for kind in kinds:
        sample, (law, noise) = kind.sample, kind.best
        effect = np.zeros((len(sample.y), len(prior)))
        effect[:, :2] = -sample.scores
        for row, (name, run) in enumerate(zip(sample.machines, sample.runs, strict=True)):
            keys: tuple[tuple[str, ...], ...] = (("m", name), ("r", *run))
            for key in keys:
                if key in columns:
                    effect[row, columns[key]] = 1.0
        target = kind.rest[law] + _shift(sample, old) + sample.scores @ WEIGHTS
        precision += effect.T @ kind.inverse[noise] @ effect
        right += effect.T @ kind.inverse[noise] @ target
    cov = np.linalg.inv(precision)
    result, sd = cov @ right, np.sqrt(np.diag(cov))
    first = 2 + len(machines)
    total = RUN_COUNT * RUN_SD**2 + float(np.sum(result[first:] ** 2 + sd[first:] ** 2))
    return Shared(
        weights=WEIGHTS + result[:2],
        weights_cov=np.asarray(cov[:2, :2], float),
        machines={
            name: (float(result[2 + at]), float(sd[2 + at])) for at, name in enumerate(machines)
        },
        runs={run: float(result[first + at]) for at, run in enumerate(runs)},
        run_sd=float(np.sqrt(total / (RUN_COUNT + len(runs)))),
    )


def _runs(kinds: Sequence[Weighed]) -> list[tuple[str, str]]:
    """Return the runs whose effect is solved for: at most ``MOST_RUNS``, those with most records,
    in order of their names."""
    count = Counter(run for kind in kinds for run in kind.sample.runs if run[1])
    return sorted(sorted(count, key=lambda run: (-count[run], run))[:MOST_RUNS])


def levels(kinds: Sequence[Weighed], level: Level) -> Array:
    """Return the level of each kind by its best law."""
    results = []
    for kind in kinds:
        law, noise = kind.best
        results.append(
            level.mean + level.sd**2 * float(np.sum(kind.inverse[noise] @ kind.rest[law]))
        )
    return np.array(results)


def _levels(kinds: Sequence[Weighed], level: Level) -> Level:
    """Return mean and spread over kinds; the prior counts as ``LEVEL_COUNT`` kinds."""
    result = levels(kinds, level)
    count = len(result) + LEVEL_COUNT
    mean = (LEVEL_COUNT * LEVEL.mean + float(result.sum())) / count
    square = LEVEL_COUNT * (LEVEL.sd**2 + (LEVEL.mean - mean) ** 2) + float(
        np.sum((result - mean) ** 2)
    )
    return Level(mean=mean, sd=float(np.sqrt(square / count)), kinds=len(result))
