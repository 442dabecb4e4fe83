"""What is answered: a distribution of the time that one task takes, its spread kept apart by what
shares it."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, hypot, log
from typing import Literal

from scipy.special import ndtri

from vgrads.kernel.errors import InputError

Source = Literal["stated", "learned", "guess"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """log t = log ``median_s`` + own + kind + machine + workflow, independent normals with mean 0.

    The four numbers are their standard deviations: ``own`` is drawn for every task, ``kind`` once
    for all tasks of the kind, ``machine`` once for all at one machine, ``workflow`` once for a run.
    ``observations`` stand behind it. ``memory_bytes`` is the median of the peak, ``memory_sd`` the
    standard deviation of its logarithm; None if unknown.
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

    @property
    def sd(self) -> float:
        """Of the logarithm, all together."""
        return hypot(self.own, self.kind, self.machine, self.workflow)

    def quantile(self, p: float) -> float:
        """Seconds within which the task ends with probability ``p``; InputError unless 0 < p <
        1."""
        return exp(log(self.median_s) + self.sd * _deviate(p))

    def memory_quantile(self, p: float) -> float | None:
        """Bytes that suffice with probability ``p``; None where nothing is known."""
        if self.memory_bytes is None or self.memory_sd is None:
            return None
        return exp(log(self.memory_bytes) + self.memory_sd * _deviate(p))


def _deviate(p: float) -> float:
    if not 0.0 < p < 1.0:
        raise InputError(f"a quantile's probability lies between 0 and 1, not {p:g}")
    return float(ndtri(p))
