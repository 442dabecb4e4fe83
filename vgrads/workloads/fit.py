"""Fits of a history's bags: maximum likelihood, Kolmogorov–Smirnov D, the best of each
characteristic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from vgrads.kernel.errors import InputError
from vgrads.workloads.distributions import FAMILIES, Distribution, fit
from vgrads.workloads.workload import BagColumns

Floats = NDArray[np.float64]
_DAY_S, _HALF_HOUR_S = 86400.0, 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One family for one characteristic. ``d``: the largest distance between the two distribution
    functions."""

    distribution: Distribution
    d: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A characteristic: its values (logarithms to base 2, the daily cycle in half hours) and fits,
    best first."""

    values: Floats
    fits: tuple[Fit, ...]
    refused: Mapping[str, str]

    @property
    def best(self) -> Fit:
        """Return the family nearest to the values."""
        return self.fits[0]


def characteristics(bags: BagColumns, local_s: Floats | None = None) -> dict[str, Floats]:
    """Return the five characteristics of §3.3–3.5, of bags of at least two tasks (all, for the
    arrivals).

    ``local_s``: arrival of each bag in its users' local time (seconds from a midnight); else the
    log's time.
    """
    local_s = bags.submit_s if local_s is None else local_s
    hour_s = local_s % _DAY_S
    peak = (hour_s >= 8 * 3600) & (hour_s < 17 * 3600)
    gaps = np.diff(bags.submit_s)
    same_day = np.diff(np.floor(local_s / _DAY_S)) == 0
    # within the peak hours of one day, where the daily cycle does not thin arrivals
    gaps = gaps[peak[1:] & peak[:-1] & same_day & (gaps >= 1.0)]
    real = bags.sizes >= 2
    means = np.add.reduceat(bags.runtime_s, bags.first[:-1]) / bags.sizes
    squares = np.add.reduceat(bags.runtime_s**2, bags.first[:-1]) / bags.sizes
    variance = np.maximum(squares - means**2, 0.0)[real]
    return {
        "inter-arrival": np.log2(gaps),
        "daily cycle": np.floor(hour_s / _HALF_HOUR_S) + 0.5,
        "size": np.log2(bags.sizes[real]),
        "run time": np.log2(np.maximum(means[real], 1.0)),
        "variability": np.log2(variance[variance >= 1.0]),
    }


def fit_all(values: Floats) -> Fitted:
    """Fit all families, nearest first. Raise InputError where none can have such values."""
    fits, refused = [], {}
    for family in FAMILIES:
        try:
            distribution = fit(family, values)
            fits.append(Fit(distribution=distribution, d=ks_distance(distribution, values)))
        except InputError as error:
            refused[family] = error.what
        except (ValueError, RuntimeError, FloatingPointError) as error:
            refused[family] = f"no likelihood has a maximum: {error}"
    if not fits:
        raise InputError(f"no distribution can be fitted: {next(iter(refused.values()))}")
    return Fitted(values=values, fits=tuple(sorted(fits, key=lambda f: f.d)), refused=refused)


def ks_distance(distribution: Distribution, values: Floats) -> float:
    """Return Kolmogorov–Smirnov's D; ties (sizes are whole numbers) count as one step."""
    points, counts = np.unique(values, return_counts=True)
    above = np.cumsum(counts) / len(values)
    model = distribution.cdf(points)
    return float(
        # just above and just below each step
        np.maximum(np.abs(above - model), np.abs(above - counts / len(values) - model)).max()
    )


def fit_users(bags: BagColumns) -> tuple[float, int]:
    """Return the exponent of Zipf's law over the ranks of users by bags (maximum likelihood; 0 for
    one user), and the number of users."""
    counts = np.sort(np.unique(bags.user, return_counts=True)[1])[::-1].astype(np.float64)
    logs = np.log(np.arange(1, len(counts) + 1))

    def loss(exponent: float) -> float:
        return float(
            exponent * (counts * logs).sum() + counts.sum() * np.log(np.exp(-exponent * logs).sum())
        )

    if len(counts) < 2:
        return 0.0, len(counts)
    return float(minimize_scalar(loss, bounds=(0.0, 10.0), method="bounded").x), len(counts)


def fit_bags(bags: BagColumns, local_s: Floats | None = None) -> dict[str, Fitted]:
    """Return every characteristic with all its fits (``local_s`` as there). Raise InputError with
    the one that cannot be fitted."""
    result = {}
    for name, values in characteristics(bags, local_s).items():
        try:
            result[name] = fit_all(values)
        except InputError as error:
            raise error.within(name) from error
    return result
