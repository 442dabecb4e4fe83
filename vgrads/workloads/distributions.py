"""The families of the bags-of-tasks model, each with its parameters in the order of the paper's
Table 3.

The paper does not define the parameters of a pair. The only sensible reading (checked by a test):
``W(shape, scale)``; ``G(shape, rate)``, or the daily cycle of DAS-2 would peak at midnight;
``N(deviation, mean)``, or half of all tasks would last seven seconds; ``LN(mean, deviation)`` of
the logarithm, or one task in twelve would last for days.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats
from scipy.special import digamma

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count

Floats = NDArray[np.float64]
FAMILIES = ("exponential", "hyper-exponential", "normal", "log-normal", "gamma", "Weibull")
_SYMBOLS = {"W": "Weibull", "G": "gamma", "N": "normal", "LN": "log-normal", "E": "exponential"}
_LEAST = 10  # least number of values for a fit
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Distribution:
    """A family with its parameters; hyper-exponential: share, rate, other rate."""

    family: str
    parameters: tuple[float, ...]

    def __str__(self) -> str:
        symbol = next((s for s, f in _SYMBOLS.items() if f == self.family), "H")
        return f"{symbol}({', '.join(f'{p:.2f}' for p in self.parameters)})"

    def sample(self, draws: np.random.Generator, count: int) -> Floats:
        """Draw ``count`` values."""
        if self.family == "hyper-exponential":
            share, value, other = self.parameters
            rates = np.where(draws.random(count) < share, value, other)
            return np.asarray(draws.exponential(1.0, count) / rates)
        return np.asarray(
            _freeze_distribution(self).rvs(size=count, random_state=draws), dtype=np.float64
        )

    def cdf(self, values: Floats) -> Floats:
        """Return P(X ≤ value)."""
        if self.family == "hyper-exponential":
            share, value, other = self.parameters
            positive = np.maximum(values, 0.0)
            return np.asarray(
                1.0 - share * np.exp(-value * positive) - (1.0 - share) * np.exp(-other * positive)
            )
        return np.asarray(_freeze_distribution(self).cdf(values), dtype=np.float64)

    def pdf(self, values: Floats) -> Floats:
        """Return the density."""
        if self.family == "hyper-exponential":
            share, value, other = self.parameters
            return np.asarray(
                share * value * np.exp(-value * values)
                + (1 - share) * other * np.exp(-other * values)
            )
        return np.asarray(_freeze_distribution(self).pdf(values), dtype=np.float64)

    def median(self) -> float:
        """Return the median."""
        if self.family == "hyper-exponential":
            # beyond 50 mean lengths of the longer phase practically nothing is left
            top = 50.0 / min(self.parameters[1:])
            return float(
                optimize.brentq(lambda x: float(self.cdf(np.array([x]))[0]) - 0.5, 0.0, top)
            )
        return float(_freeze_distribution(self).median())


def parse(symbol: str, value: float, other: float) -> Distribution:
    """Parse an entry of Table 3."""
    return Distribution(_SYMBOLS[symbol], (value, other))


def stated(family: str, parameters: Sequence[float]) -> Distribution:
    """Return a distribution from its stated parameters. Raise InputError for invalid ones."""
    counts = {"exponential": 1, "hyper-exponential": 3}
    if family not in FAMILIES:
        raise InputError(f"unknown family '{family}'", where="family", fix=", ".join(FAMILIES))
    if len(parameters) != counts.get(family, 2) or not np.isfinite(parameters).all():
        raise InputError(
            f"{family} has {counts.get(family, 2)} finite parameters", where="parameters"
        )
    first, last = parameters[0], parameters[-1]
    free = {"normal": (first,), "log-normal": (last,)}  # means may be anything
    if min(free.get(family, parameters)) <= 0 or (family == "hyper-exponential" and first >= 1):
        raise InputError(
            f"invalid parameters of the {family} distribution: {list(parameters)}",
            where="parameters",
        )
    return Distribution(family, tuple(parameters))


def _freeze_distribution(d: Distribution) -> Any:
    value, other = (*d.parameters, 0.0)[:2]
    makers: Mapping[str, Any] = {
        "Weibull": lambda: stats.weibull_min(value, scale=other),
        "gamma": lambda: stats.gamma(value, scale=1.0 / other),
        "normal": lambda: stats.norm(loc=other, scale=value),
        "log-normal": lambda: stats.lognorm(other, scale=np.exp(value)),
        "exponential": lambda: stats.expon(scale=1.0 / value),
    }
    return makers[d.family]()


def fit(family: str, values: Floats) -> Distribution:
    """Return the maximum-likelihood fit. Raise InputError where the family cannot have such
    values."""
    data = np.asarray(values, dtype=np.float64)
    if family not in FAMILIES:
        raise InputError(f"unknown family '{family}'", where="family", fix=", ".join(FAMILIES))
    if len(data) < _LEAST:
        count = format_count(len(data), "value", "are")
        raise InputError(f"{count} too few to fit, {_LEAST} are needed", where=family)
    if not np.isfinite(data).all() or data.std() <= _TINY * max(1.0, abs(float(data.mean()))):
        raise InputError("all values are equal, or some are not numbers", where=family)
    if family == "normal":
        return Distribution(family, (float(data.std()), float(data.mean())))
    if (data < 0).any():
        raise InputError("has no values below 0", where=family)
    # the logarithm of 0 has no likelihood
    data = np.maximum(data, _TINY)
    return Distribution(family, _require_positive(family, data))


def _require_positive(family: str, data: Floats) -> tuple[float, ...]:
    if family == "exponential":
        return (1.0 / float(data.mean()),)
    if family == "log-normal":
        logs = np.log(data)
        return float(logs.mean()), float(logs.std())
    if family == "gamma":
        shape = _solve_gamma_shape(data)
        return shape, shape / float(data.mean())
    if family == "Weibull":
        return _fit_weibull(data)
    return _fit_hyper_exponential(data)


def _solve_gamma_shape(data: Floats) -> float:
    """Return the root of log k − ψ(k) = log of the mean − mean of the logs."""
    gap = float(np.log(data.mean()) - np.log(data).mean())
    return float(optimize.brentq(lambda k: np.log(k) - digamma(k) - gap, 1e-3, 1e6))


def _fit_weibull(data: Floats) -> tuple[float, float]:
    """Return the root of the profile likelihood in the shape; the scale follows."""
    # relative to the largest value, so that high powers do not overflow
    scaled, logs = data / data.max(), np.log(data)

    def slope(shape: float) -> float:
        powers = scaled**shape
        return float((powers * logs).sum() / powers.sum() - 1.0 / shape - logs.mean())

    shape = float(optimize.brentq(slope, 1e-2, 500.0))
    return shape, float(data.max() * (scaled**shape).mean() ** (1.0 / shape))


def _fit_hyper_exponential(data: Floats, rounds: int = 300) -> tuple[float, float, float]:
    """Fit two exponential phases by expectation maximisation, starting from the halves of the
    data."""
    ordered = np.sort(data)
    half = len(ordered) // 2
    share, item, other = 0.5, 1.0 / ordered[:half].mean(), 1.0 / ordered[half:].mean()
    for _ in range(rounds):
        first = share * item * np.exp(-item * data)
        second = (1.0 - share) * other * np.exp(-other * data)
        # far out, both densities may be rounded to 0
        weight = first / np.maximum(first + second, 1e-300)
        # a phase whose share is 0 would never come back
        share = float(np.clip(weight.mean(), 1e-6, 1 - 1e-6))
        item = float(weight.sum() / (weight * data).sum())
        other = float((1 - weight).sum() / max(((1 - weight) * data).sum(), 1e-300))
    return share, item, other
