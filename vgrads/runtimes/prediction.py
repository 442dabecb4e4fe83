"""A prediction: a distribution of the run time of one task, its spread separated by what shares
it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import erfc, exp, hypot, log, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.errors import InputError

Source = Literal["stated", "learned", "guess"]
Floats = NDArray[np.float64]
_HALVINGS = 50
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """log t = log ``median_s`` + own + kind + machine + workflow, independent normals with mean 0.

    The four numbers are their standard deviations: ``own`` is drawn for every task, ``kind`` once
    for all tasks of the kind, ``machine`` once for all at one machine, ``workflow`` once for a run.
    ``observations``: number of records used; ``tool``: without any, that by which it is guessed.
    ``laws`` (3, h): weights, distances from the median and variances of the laws behind own and
    kind; quantiles are of this mixture.
    ``memory_bytes`` is the median of the peak,
    ``memory_sd`` the standard deviation of its logarithm; None if unknown. ``memory_kind``: the
    part of this deviation that all tasks of the kind share.
    """

    median_s: float
    own: float
    kind: float
    machine: float
    workflow: float
    observations: int
    source: Source
    memory_bytes: float | None = None
    memory_sd: float | None = None
    tool: str = ""
    memory_kind: float = 0.0
    laws: Floats | None = field(default=None, compare=False, repr=False)

    @property
    def sd(self) -> float:
        """Return the standard deviation of the logarithm, all together."""
        return hypot(self.own, self.kind, self.machine, self.workflow)

    def quantile(self, p: float) -> float:
        """Return the seconds within which the task ends with probability ``p``. Raise InputError
        unless 0 < p < 1."""
        if self.laws is None:
            return exp(log(self.median_s) + self.sd * _compute_deviate(p))
        weights, offs, variances = self.laws
        sds = np.sqrt(variances + self.machine**2 + self.workflow**2)
        return exp(log(self.median_s) + compute_mixed_quantile(p, weights, offs, sds))

    def memory_quantile(self, p: float) -> float | None:
        """Return the bytes that suffice with probability ``p``; None without data."""
        if self.memory_bytes is None or self.memory_sd is None:
            return None
        return exp(log(self.memory_bytes) + self.memory_sd * _compute_deviate(p))


def compute_mixed_quantile(p: float, weights: Floats, means: Floats, sds: Floats) -> float:
    """Return the quantile of a mixture of normals, by bisection."""
    z = _compute_deviate(p)
    # the quantile of a mixture lies between those of its parts
    low, high = float(np.min(means + z * sds)), float(np.max(means + z * sds))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = [erfc(z) / 2 for z in ((means - middle) / (sds * sqrt(2.0))).tolist()]
        if float(weights @ np.array(below)) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _compute_deviate(p: float) -> float:
    if not 0.0 < p < 1.0:
        raise InputError(f"the probability of a quantile must be between 0 and 1, is {p:g}")
    return _NORMAL.inv_cdf(p)
