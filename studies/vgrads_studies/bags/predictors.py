"""Predictors of the next task's run time: the six time-series models of Table 4, and their errors
(§3.7).

Each takes a series of run times and returns, for every position, its prediction from earlier
values; NaN where there are none. ``batch`` input lets a model see one bag only, ``user`` input all
that its user has run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numba import njit

from vgrads.kernel.arrays import Floats
from vgrads.kernel.errors import InputError
from vgrads.workloads.workload import BagColumns

_ORDER = 5
_TRACKING = 0.2


@njit(cache=True)
def last_value(series: Floats) -> Floats:
    """Predict the last value."""
    text = np.full(len(series), np.nan)
    text[1:] = series[:-1]
    return text


@njit(cache=True)
def mean(series: Floats) -> Floats:
    """Predict the mean of all values."""
    text, total = np.full(len(series), np.nan), 0.0
    for i in range(1, len(series)):
        total += series[i - 1]
        text[i] = total / i
    return text


@njit(cache=True)
def mean_of_ten(series: Floats) -> Floats:
    """Predict the mean of the last ten values."""
    text, total = np.full(len(series), np.nan), 0.0
    for i in range(1, len(series)):
        total += series[i - 1]
        if i > 10:
            total -= series[i - 11]
        text[i] = total / min(i, 10)
    return text


@njit(cache=True)
def smoothed(series: Floats) -> Floats:
    """Predict by exponential smoothing with weight one half."""
    text, level = np.full(len(series), np.nan), 0.0
    for i in range(1, len(series)):
        level = series[0] if i == 1 else 0.5 * series[i - 1] + 0.5 * level
        text[i] = level
    return text


@njit(cache=True)
def adaptive(series: Floats) -> Floats:
    """Predict by exponential smoothing whose weight is the tracking signal, smoothed error over
    smoothed absolute error (Trigg and Leach 1967, doi:10.1057/jors.1967.5)."""
    text = np.full(len(series), np.nan)
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
        text[i] = level
    return text


@njit(cache=True)
def autoregressive(series: Floats) -> Floats:
    """Predict by AR(5) about the running mean, its coefficients by Yule and Walker from all earlier
    values (Levinson's recursion); by the mean for fewer than ten values. Never below 0."""
    count = len(series)
    text = np.full(count, np.nan)
    total = 0.0
    products = np.zeros(_ORDER + 1)  # sums of x[t] · x[t − k]
    for i in range(1, count):
        value = series[i - 1]
        total += value
        for k in range(_ORDER + 1):
            if i - 1 - k >= 0:
                products[k] += value * series[i - 1 - k]
        centre = total / i
        text[i] = centre
        if i < 2 * _ORDER:
            continue
        gammas = np.zeros(_ORDER + 1)
        for k in range(_ORDER + 1):
            early, late = 0.0, 0.0  # values omitted from the sums of the shifted series
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
        text[i] = max(0.0, guess)
    return text


@njit(cache=True)
def _levinson(gammas: Floats) -> Floats:
    """Return the coefficients of the autoregression with these autocovariances."""
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
    """Return a predictor by name. Raise InputError with the list of names."""
    if name not in PREDICTORS:
        raise InputError(
            f"unknown predictor '{name}'", where="predictor", fix=", ".join(PREDICTORS)
        )
    return PREDICTORS[name]


def series_of(bags: BagColumns, by: str) -> Iterator[Floats]:
    """Return the run times of each bag, or of each user, in the order of their submission."""
    if by == "batch":
        yield from np.split(bags.runtime_s, bags.first[1:-1])
        return
    if by != "user":
        raise InputError(f"unknown value '{by}'; choose batch or user", where="by")
    owner = bags.user[bags.bag_of]
    order = np.argsort(owner, kind="stable")
    yield from np.split(bags.runtime_s[order], np.flatnonzero(np.diff(owner[order])) + 1)


def inaccuracies(bags: BagColumns, name: str, by: str) -> Floats:
    """Return abs(predicted − real) ∕ real in per cent, for every task with a prediction."""
    predict = predictor_named(name)
    results = []
    for series in series_of(bags, by):
        if len(series) > 1:
            text = predict(series)[1:]
            results.append(100.0 * np.abs(text - series[1:]) / series[1:])
    return np.concatenate(results) if results else np.empty(0)
