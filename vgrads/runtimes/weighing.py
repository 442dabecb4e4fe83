"""One kind: every law weighted by its fit to the records, none of them chosen.

Given a law and a noise, all other variables (level, machines, departures) are jointly normal, so
that the likelihood is exact for any number of records (Rasmussen and Williams, Gaussian Processes
for Machine Learning, 2006, equation 2.30; predictions by 2.25 and 2.26). So the result includes the
uncertainty of a kind, with six records or with one. Censored records are replaced by the normal
that has the moments of the truncated one (expectation propagation).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vgrads.runtimes.laws import (
    DEPARTURE,
    GROWTH,
    NOISE,
    REPEAT,
    Array,
    Laws,
    curves,
    ratios,
)
from vgrads.runtimes.machines import OWN_SD, OWN_WEIGHT_SD
from vgrads.runtimes.samples import JOBS, PROCS_POWER, PROCS_SD, Sample

_MOST = 64
_VAGUE = 1e4
_SETTLES = 12
MOST_SHORTER = 5.0


@dataclass(frozen=True)
class Level:
    """Level of a kind before its records: mean and standard deviation at the middle size on the
    reference machine."""

    mean: float
    sd: float


@dataclass(frozen=True, eq=False)
class Weighed:
    """``belief`` (laws, noises) sums to 1; ``inverse`` (noises, n, n) of the covariance; ``rest``
    (laws, n): residuals of the observations."""

    sample: Sample
    belief: Array
    inverse: Array
    rest: Array

    @property
    def best(self) -> tuple[int, int]:
        """Return the most probable law and noise."""
        law, noise = np.unravel_index(int(self.belief.argmax()), self.belief.shape)
        return int(law), int(noise)


def common(sample: Sample, level: Level) -> Array:
    """Return the covariance (n, n) of the parts that a kind's records share under any law: level,
    machine, powers of scores."""
    codes = np.unique(np.array(sample.machines), return_inverse=True)[1]
    same = codes[:, None] == codes[None, :]
    weighted = sample.scores * OWN_WEIGHT_SD
    shared = level.sd**2 + OWN_SD**2 * same + weighted @ weighted.T
    if sample.several:
        shared = shared + PROCS_SD**2 * np.outer(sample.procs, sample.procs)
    return np.asarray(shared)


def repeats(sample: Sample) -> Array:
    """Return the variance (noises,) that the tasks of a kind in one run share; none for jobs, each
    of which is by itself."""
    return np.asarray(REPEAT**2 * (sample.source != JOBS))


def noise_var(shorter: Array) -> Array:
    """Return the variance (noises, n) of tasks that are e^``shorter`` times shorter than the
    longest observed."""
    power = 2 * GROWTH[:, None] * np.clip(shorter, 0.0, MOST_SHORTER)
    return np.asarray(NOISE[:, None] ** 2 * np.exp(power))


def _make_normal(sample: Sample, shift: Array, level: Level) -> tuple[Array, Array]:
    """Return the covariance (noises, n, n), and the residuals of the observations by law (laws,
    n)."""
    row = np.arange(len(sample.y))
    apart = np.exp(-np.abs(sample.places[:, None] - sample.places[None, :]))
    whole = common(sample, level) + DEPARTURE[:, None, None] ** 2 * apart
    if any(run[1] for run in sample.runs):
        codes = np.unique([f"{flow}\0{run}" for flow, run in sample.runs], return_inverse=True)[1]
        whole += repeats(sample)[:, None, None] * (codes[:, None] == codes[None, :])
    else:
        whole[:, row, row] += repeats(sample)[:, None]
    whole[:, row, row] += noise_var(sample.longest - sample.y[None, :]) + sample.blur
    rest = sample.y - shift - level.mean - curves(ratios(sample.x, sample.least))
    return whole, rest - PROCS_POWER * sample.procs if sample.several else rest


def _score(whole: Array, inverse: Array, rest: Array) -> Array:
    """Return the log likelihood (laws, noises) up to a constant."""
    square = np.einsum("qn,enq->qe", rest, inverse @ rest.T)
    # the logarithm of the determinant, without its overflow: twice the sum of these
    corners = np.diagonal(np.linalg.cholesky(whole), axis1=1, axis2=2)
    return np.asarray(-square / 2 - np.log(corners).sum(1))


def _open_score(raw: Sample, whole: Array, rest: Array) -> Array:
    """Return the same where some are censored: the likelihood of the others, and given these, the
    probability that each censored one is beyond its bound (Tobit; dependence between censored ones
    is ignored)."""
    shut, beyond = np.flatnonzero(~raw.open), np.flatnonzero(raw.open)
    spread, offs = whole[:, beyond, beyond].copy(), -rest[:, None, beyond]
    score = np.zeros((len(rest), len(whole)))
    if len(shut):
        observed = whole[:, shut[:, None], shut]
        inverse = _compute_inverse(observed)
        link = whole[:, beyond[:, None], shut]
        gain = link @ inverse
        spread -= (gain * link).sum(2)
        offs = offs + np.einsum("ecu,qu->qec", gain, rest[:, shut])
        score = _score(observed, inverse, rest[:, shut])
    z = offs / np.sqrt(np.maximum(spread, 1e-12))
    return np.asarray(score + _log_ndtr(z).sum(2))


def _compute_posterior_weights(score: Array, laws: Laws) -> Array:
    score = score + np.log(laws.shapes)[:, None] + np.log(laws.noises)
    # relative to the largest, so that not all of them round to zero
    belief = np.exp(score - score.max())
    return np.asarray(belief / belief.sum())


def weigh(raw: Sample, shift: Array, level: Level, laws: Laws) -> Weighed:
    """Return the posterior weights; ``shift`` (n,) is the estimated addition of machines and runs
    to each."""
    whole, rest = _make_normal(raw, shift, level)
    if raw.open.any():
        belief = _compute_posterior_weights(_open_score(raw, whole, rest), laws)
        return _replace_censored(raw, whole, rest, belief)
    inverse = _compute_inverse(whole)
    return Weighed(
        raw, _compute_posterior_weights(_score(whole, inverse, rest), laws), inverse, rest
    )


def _replace_censored(raw: Sample, whole: Array, rest: Array, belief: Array) -> Weighed:
    """Replace censored observations by pseudo-observations: their expected values, given that they
    exceed ``raw.y``. They carry no information at first, and are updated half-way a fixed number of
    times, under the most probable law."""
    law, noise = np.unravel_index(int(belief.argmax()), belief.shape)
    which = np.flatnonzero(raw.open)
    sites = np.zeros((2, len(which)))  # precision, and precision times mean
    sites[0], sites[1] = 1 / _VAGUE, raw.y[which] / _VAGUE
    for _ in range(_SETTLES):
        move, blur = np.zeros_like(raw.y), np.zeros_like(raw.y)
        move[which], blur[which] = sites[1] / sites[0] - raw.y[which], 1 / sites[0]
        inverse = _compute_inverse(whole[noise] + np.diag(blur))
        spread = 1.0 / np.diag(inverse)
        middle = (
            raw.y + move - spread * (inverse @ (rest[law] + move))
        )  # left out: Rasmussen and Williams, 5.12
        for at, row in enumerate(which):
            variance = max(float(spread[row] - blur[row]), float(NOISE[noise]) ** 2)
            mean, own = _estimate_site(float(middle[row]), variance, float(raw.y[row]))
            sites[:, at] = (sites[:, at] + np.array([1 / own, mean / own])) / 2
    move[which], blur[which] = sites[1] / sites[0] - raw.y[which], 1 / sites[0]
    every = np.arange(len(raw.y))
    whole[:, every, every] += blur
    return Weighed(
        raw.observe(raw.y + move, raw.blur + blur), belief, _compute_inverse(whole), rest + move
    )


def _log_ndtr(z: Array) -> Array:
    from scipy.special import log_ndtr  # noqa: PLC0415 late: as in vgrads.qbets.bounds

    return np.asarray(log_ndtr(z))


def _estimate_site(mean: float, variance: float, bound: float) -> tuple[float, float]:
    """Return mean and variance of a normal factor that turns the cavity into the truncated normal's
    first two moments."""
    sd = np.sqrt(variance)
    z = (bound - mean) / sd
    hazard = float(np.exp(-z * z / 2 - 0.5 * np.log(2 * np.pi) - _log_ndtr(-z)))
    inside, shrink = mean + sd * hazard, 1 - hazard * (hazard - z)
    # the bound is so low that it tells nothing, and the factor has no finite variance
    if shrink > 1 - 1e-9:
        return inside, _VAGUE
    left = max(variance * shrink, 1e-9)
    own = 1 / (1 / left - 1 / variance)
    return own * (inside / left - mean / variance), min(own, _VAGUE)


def choose_laws(weighed: Weighed) -> tuple[np.ndarray, np.ndarray, Array]:
    """Return laws, noises and weights that stand for all in predictions: at most ``_MOST``, by
    systematic sampling (Kitagawa, 1996, doi:10.1080/10618600.1996.10474692).

    The most probable ones would not do. Of few records thousands are plausible, and the law that is
    split among fewest then seems to be certain.
    """
    total = np.cumsum(weighed.belief.ravel())
    chosen = np.searchsorted(total, (np.arange(_MOST) + 0.5) / _MOST * total[-1])
    cells, counts = np.unique(chosen, return_counts=True)
    laws, noises = np.unravel_index(cells, weighed.belief.shape)
    return laws, noises, np.asarray(counts / _MOST)


def _compute_inverse(whole: Array) -> Array:
    return np.asarray(np.linalg.inv(whole), float)
