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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vgrads.runtimes.laws import DEPARTURE, NOISE, PRIOR, REPEAT, Array, Laws, pool_weights
from vgrads.runtimes.levels import BEFORE, MEAN, Levels, before, fit_levels
from vgrads.runtimes.machines import OWN_SD, SCORED_SD, UNSCORED_SD, WEIGHT_SD, WEIGHTS
from vgrads.runtimes.samples import Sample
from vgrads.runtimes.weighing import Level, Weighed, weigh

RUN_SD, RUN_COUNT = 0.1, 4.0
"""Standard deviation of runs of a workflow about the usual, and the number of runs that it counts
as."""
MOST_RUNS = 400
STRAYS, _MOST_STRAYS = 0.1, 3.0
"""A task of a kind with n records does not resemble them with probability a / (a + n), as in a
Chinese restaurant process (Aldous, 1985, doi:10.1007/BFb0099421): a name covers two things, a task
ended early. ``a`` before data, and at most."""
_STRAY, _FAR, _PAIR = 6.0, 1.5, 1.0
"""A task is one if its logarithm is farther from the median of the others than so many of their
median distances, and than this distance; of two jobs the older one, if they are that far apart."""
MOST_KINDS = 96
"""Kinds of one source from which laws, noises, machines and runs are estimated: those with most
records."""
_VAGUE, _TEN = 1e4, np.arange(1, 10)
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
class Source:
    """What the kinds of one source have in common."""

    levels: Levels = BEFORE
    laws: Laws = PRIOR
    strays: float = STRAYS

    @property
    def noise(self) -> float:
        """Return the variance of a task of a kind of which nothing is known."""
        return float(self.laws.noises @ NOISE**2)

    def unseen(self, shift: float = 0.0) -> Array:
        """Return a task of a kind without records, (3, parts): weights, means, variances.
        ``shift``: of its level, for its size."""
        return self.levels.unseen(self.noise, shift)


@dataclass(frozen=True)
class Pooled:
    """What kinds share. Any kind is predicted from this and its own records."""

    shared: Shared
    sources: Mapping[str, Source]
    mean: float = MEAN

    def source(self, name: str) -> Source:
        """Return the common part of a source, also of one without records."""
        source = self.sources.get(name)
        if source is not None:
            return source
        others = [source.levels for source in self.sources.values()]
        return Source(replace(BEFORE, mean=before(others, self.mean)))

    def weigh(self, sample: Sample) -> tuple[Weighed, Level]:
        """Return a kind given what is shared, and the level that it was compared with."""
        source = self.source(sample.source)
        shift = _shift(sample, self.shared)
        level, var = _fit_level(sample, shift, source.laws)
        own = Level(source.levels.mean, source.levels.spread_of(level, var))
        return weigh(damp_strays(sample, shift), shift, own, source.laws), own


NOTHING = Pooled(Shared(weights=WEIGHTS, weights_cov=np.diag(WEIGHT_SD**2)), {})


def pool(
    raw: Sequence[Sample], base: str, scored: frozenset[str], result: Pooled = NOTHING
) -> Pooled:
    """Alternate both steps, a fixed number of times, from what holds before data; samples in a
    fixed order give a fixed result."""
    names = sorted({sample.source for sample in raw})
    of = {name: [s for s in raw if s.source == name] for name in names}
    chosen = {name: _select_richest(of[name]) for name in names}
    for turn in range(_TURNS):
        result = replace(result, sources={n: _fit_levels(of[n], result, n) for n in names})
        # ends with the levels, so that they belong to the last shared effects
        if turn == _TURNS - 1:
            break
        kinds = {name: [result.weigh(s)[0] for s in chosen[name]] for name in names}
        laws = {name: _fit_laws(kinds[name]) for name in names}
        strays = {name: _fit_strays(of[name], result.shared) for name in names}
        result = replace(
            result,
            shared=_fit_shares([k for n in names for k in kinds[n]], base, scored, result.shared),
            sources={n: replace(result.sources[n], laws=laws[n], strays=strays[n]) for n in names},
        )
    return result


def _select_richest(samples: Sequence[Sample]) -> list[Sample]:
    order = sorted(samples, key=lambda s: (-len(set(s.machines)), -len(s.y), s.kind))
    return sorted(order[:MOST_KINDS], key=lambda s: s.kind)


def _fit_laws(kinds: Sequence[Weighed]) -> Laws:
    return pool_weights(
        np.sum(
            [k.belief.sum(1) for k in kinds if k.sample.spread > 0] or [PRIOR.shapes * 0], axis=0
        ),
        np.sum(
            [k.belief.sum(0) for k in kinds if len(k.sample.y) > 1] or [PRIOR.noises * 0], axis=0
        ),
    )


def _is_stray(sample: Sample, shift: Array) -> NDArray[np.bool_]:
    """Return which records do not resemble the others, (n,); none where they differ by size, or are
    fewer than three."""
    y = sample.y - shift
    if len(y) == 2 and sample.follows:  # the newer one is believed
        return np.array([abs(y[1] - y[0]) > _PAIR, False])
    if len(y) < 3 or sample.spread > 0:
        return np.zeros(len(y), bool)
    y = y - _compute_medians(y, sample.machines)
    others = np.array([np.delete(y, at) for at in range(len(y))])
    middle = np.median(others, axis=1)
    usual = np.median(np.abs(others - middle[:, None]), axis=1)
    return np.asarray(np.abs(y - middle) > np.maximum(_STRAY * usual, _FAR))


def _compute_medians(y: Array, machines: Sequence[str]) -> Array:
    """Return the median at each machine with at least three records, else that of all."""
    names, middle = np.array(machines), np.full(len(y), np.median(y))
    for name in set(machines):
        here = names == name
        if here.sum() > 2:
            middle[here] = np.median(y[here])
    return middle


def damp_strays(sample: Sample, shift: Array) -> Sample:
    """Return the sample in which these carry almost no information about the others."""
    stray = _is_stray(sample, shift)
    return sample.observe(sample.y, np.where(stray, _VAGUE, sample.blur)) if stray.any() else sample


def _fit_strays(samples: Sequence[Sample], shared: Shared) -> float:
    """Return ``a`` (see ``STRAYS``) by which as many records as do not resemble the others would be
    expected; what is expected before data counts as one kind of ten records."""
    several = [s for s in samples if len(s.y) > 1 and s.spread == 0]
    each = [_is_stray(s, _shift(s, shared)) for s in several]
    counts = np.concatenate([np.arange(1, len(stray)) for stray in each] + [_TEN])
    observed = sum(float(stray.sum()) for stray in each) + float(np.sum(STRAYS / (STRAYS + _TEN)))
    low, high = 0.0, _MOST_STRAYS
    for _ in range(30):
        # bisection: the expected number rises with a
        middle = (low + high) / 2
        below = float(np.sum(middle / (middle + counts))) < observed
        low, high = (middle, high) if below else (low, middle)
    return low


def _fit_level(sample: Sample, shift: Array, laws: Laws) -> tuple[float, float]:
    """Return the mean of a kind's records, and the variance with which it shows its level."""
    noise = float(laws.noises @ (NOISE**2 + REPEAT**2 + DEPARTURE**2))
    return float(np.mean(sample.y - shift)), OWN_SD**2 + noise / len(sample.y)


def _fit_levels(samples: Sequence[Sample], result: Pooled, name: str) -> Source:
    old = result.source(name)
    shifts = [_shift(sample, result.shared) for sample in samples]
    pairs = [_fit_level(s, shift, old.laws) for s, shift in zip(samples, shifts, strict=True)]
    tasks = [s.y[len(s.y) // 2] for s in samples]
    others = [s.levels for other, s in result.sources.items() if other != name]
    levels, variances = np.array(pairs).T
    fitted = fit_levels(levels, variances, np.array(tasks), before(others, result.mean))
    return replace(old, levels=fitted)


def _shift(sample: Sample, shared: Shared) -> Array:
    """Return the additions of machines and runs to the logarithms of a sample."""
    machines = [shared.machines.get(name, (0.0, 0.0))[0] for name in sample.machines]
    runs = [shared.runs.get(run, 0.0) for run in sample.runs]
    return np.asarray(np.array(machines) + np.array(runs) - sample.scores @ shared.weights)


def _fit_shares(kinds: Sequence[Weighed], base: str, scored: frozenset[str], old: Shared) -> Shared:
    machines = sorted({m for k in kinds for m in k.sample.machines if m and m != base})
    runs = _select_runs(kinds)
    # effects in order: two weights of scores, machines, runs
    columns: dict[tuple[str, ...], int] = {("m", name): 2 + at for at, name in enumerate(machines)}
    columns |= {("r", *run): 2 + len(machines) + at for at, run in enumerate(runs)}
    spread = [SCORED_SD if name in scored else UNSCORED_SD for name in machines]
    prior = np.concatenate([WEIGHT_SD, spread, np.full(len(runs), old.run_sd)])
    # normal equations of a regression with independent normal priors of mean 0
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
        # weights are solved for as departures from those before data, whose prior mean is 0
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


def _select_runs(kinds: Sequence[Weighed]) -> list[tuple[str, str]]:
    """Return the runs whose effect is solved for: at most ``MOST_RUNS``, those with most records,
    in order of their names."""
    count = Counter(run for kind in kinds for run in kind.sample.runs if run[1])
    return sorted(sorted(count, key=lambda run: (-count[run], run))[:MOST_RUNS])
