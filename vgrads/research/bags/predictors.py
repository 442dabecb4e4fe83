"""How long will the next task last? The six time-series models of Table 4, and how wrong they are
(§3.7).

Each takes a series of run times and gives, for every position, what it says before that one is
known; NaN where nothing is known yet. ``batch`` input lets a model see one bag only, ``user`` input
all that its user has run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numba import njit

from vgrads.kernel.arrays import Floats
from vgrads.kernel.errors import InputError
from vgrads.research.bags.workload import Bags

_ORDER = 5
_TRACKING = 0.2


@njit(cache=True)
def last_value(series: Floats) -> Floats:
    """The last one."""
    said = np.full(len(series), np.nan)
    said[1:] = series[:-1]
    return said


@njit(cache=True)
def mean(series: Floats) -> Floats:
    """The mean of all."""
    said, total = np.full(len(series), np.nan), 0.0
    for i in range(1, len(series)):
        total += series[i - 1]
        said[i] = total / i
    return said


@njit(cache=True)
def mean_of_ten(series: Floats) -> Floats:
    """The mean of the last ten."""
    said, total = np.full(len(series), np.nan), 0.0
    for i in range(1, len(series)):
        total += series[i - 1]
        if i > 10:
            total -= series[i - 11]
        said[i] = total / min(i, 10)
    return said


@njit(cache=True)
def smoothed(series: Floats) -> Floats:
    """Exponential smoothing with weight one half."""
    said, level = np.full(len(series), np.nan), 0.0
    for i in range(1, len(series)):
        level = series[0] if i == 1 else 0.5 * series[i - 1] + 0.5 * level
        said[i] = level
    return said


@njit(cache=True)
def adaptive(series: Floats) -> Floats:
    """Exponential smoothing whose weight is the tracking signal, smoothed error over smoothed
    absolute error (Trigg and Leach 1967, doi:10.1057/jors.1967.5)."""
    said = np.full(len(series), np.nan)
    level, error, size = 0.0, 0.0, 0.0
    for i in range(1, len(series)):
        value = series[i - 1]
        if i == 1:
            level = value
        else:
            off = value - level
            error = _TRACKING * off + (1 - _TRACKING) * error
            size = _TRACKING * abs(off) + (1 - _TRACKING) * size
            level += (abs(error / size) if size > 0 else 0.0) * off
        said[i] = level
    return said


@njit(cache=True)
def autoregressive(series: Floats) -> Floats:
    """AR(5) about the running mean, its coefficients by Yule and Walker from all that is known
    (Levinson's recursion); the mean while fewer than ten values are known. Never below 0."""
    count = len(series)
    said = np.full(count, np.nan)
    total = 0.0
    products = np.zeros(_ORDER + 1)  # sums of x[t] · x[t − k]
    for i in range(1, count):
        value = series[i - 1]
        total += value
        for k in range(_ORDER + 1):
            if i - 1 - k >= 0:
                products[k] += value * series[i - 1 - k]
        centre = total / i
        said[i] = centre
        if i < 2 * _ORDER:
            continue
        gammas = np.zeros(_ORDER + 1)
        for k in range(_ORDER + 1):
            early, late = 0.0, 0.0  # what the two sums of the shifted series leave out
            for j in range(k):
                early += series[j]
                late += series[i - 1 - j]
            gammas[k] = (
                products[k] - centre * (2 * total - early - late) + (i - k) * centre * centre
            ) / i
        if gammas[0] <= 0:
            continue
        weights = _levinson(gammas)
        guess = centre
        for k in range(_ORDER):
            guess += weights[k] * (series[i - 1 - k] - centre)
        said[i] = max(0.0, guess)
    return said


@njit(cache=True)
def _levinson(gammas: Floats) -> Floats:
    """Coefficients of the autoregression with these autocovariances."""
    order = len(gammas) - 1
    weights, before = np.zeros(order), np.zeros(order)
    left = gammas[0]
    for k in range(order):
        step = gammas[k + 1]
        for j in range(k):
            step -= weights[j] * gammas[k - j]
        step = step / left if left > 1e-12 * gammas[0] else 0.0
        before[:k] = weights[:k]
        for j in range(k):
            weights[j] = before[j] - step * before[k - 1 - j]
        weights[k] = step
        left *= 1 - step * step
    return weights


PREDICTORS: Mapping[str, Callable[[Floats], Floats]] = {
    "AdpExpSmooth": adaptive,
    "AutoRegress": autoregressive,
    "ExpSmooth": smoothed,
    "LastValue": last_value,
    "Mean(10)": mean_of_ten,
    "Mean": mean,
}


def predictor_named(name: str) -> Callable[[Floats], Floats]:
    """A predictor; InputError lists them."""
    if name not in PREDICTORS:
        raise InputError(f"no predictor '{name}'", where="predictor", fix=", ".join(PREDICTORS))
    return PREDICTORS[name]


def series_of(bags: Bags, by: str) -> Iterator[Floats]:
    """The run times of each bag, or of each user, in the order of their submission."""
    if by == "batch":
        yield from np.split(bags.runtime_s, bags.first[1:-1])
        return
    if by != "user":
        raise InputError(f"'{by}' is neither batch nor user", where="by")
    owner = bags.user[bags.bag_of]
    order = np.argsort(owner, kind="stable")
    yield from np.split(bags.runtime_s[order], np.flatnonzero(np.diff(owner[order])) + 1)


def inaccuracies(bags: Bags, name: str, by: str) -> Floats:
    """abs(predicted − real) ∕ real in per cent, of every task for which something could be said."""
    predict = predictor_named(name)
    found = []
    for series in series_of(bags, by):
        if len(series) > 1:
            said = predict(series)[1:]
            found.append(100.0 * np.abs(said - series[1:]) / series[1:])
    return np.concatenate(found) if found else np.empty(0)
