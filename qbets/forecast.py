"""Forecast for the next job from a queue's history, frozen at one instant: GETBOUND and GETPROB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vgrads.kernel.units import format_count
from vgrads.qbets.adaptive_correction import loosen_level
from vgrads.qbets.bounds import (
    compute_highest_level,
    compute_minimum_history,
    compute_probability_within,
    explain_highest_level,
)
from vgrads.qbets.clusters import SIZES, find_bin
from vgrads.qbets.downtime import Downtime
from vgrads.qbets.predictor import (
    UNJUDGED,
    IssuedRecord,
    QueuePredictor,
    Settings,
    count_outcomes,
)
from vgrads.qbets.replay import learn
from vgrads.qbets.stream import compute_corrected_bounds
from vgrads.traces.records import JobLog


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Similar jobs: the size, its lower (exclusive) and upper (inclusive) limit."""

    by: str
    above: float | None
    up_to: float | None


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A result of GETBOUND with its basis; ``bound_s`` is None with a ``reason``."""

    bound_s: float | None
    probability: float
    confidence: float
    method: str
    jobs: int
    since_s: float
    cluster: Cluster
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class QueueForecast:
    """For each cluster the waits that still apply, ascending, and since when; clusters by size.

    ``correction_factor`` is that of the adaptive correction: misses are assumed to be 1 ÷
    correction factor times as frequent as in history. ``ahead`` is, in every question, the number
    of waiting jobs of the user in the queue beyond the ``own`` that were already there;
    ``of_users``: that number for each user.
    """

    edges: tuple[float, ...]
    waits_s: tuple[NDArray[np.float64], ...]
    since_s: float
    settings: Settings
    downtime: Downtime | None = None
    correction_factor: float = 1.0
    record: IssuedRecord = UNJUDGED
    own: int = 0
    of_users: Mapping[int, int] = field(default_factory=dict)

    def for_user(self, user: int) -> QueueForecast:
        """Return the same for questions of a user, by number."""
        return replace(self, own=self.of_users.get(user, 0))

    @property
    def method(self) -> str:
        """The method of the forecast."""
        return self.settings.method

    def group(self, procs: int, walltime_s: float, ahead: int = 0) -> int:
        """Return the number of the cluster of a job of this shape."""
        shape = self.settings.shape(procs, walltime_s)
        return find_bin(self.edges, SIZES[self.settings.cluster_size](*shape, self.own + ahead))

    def waits(self, procs: int, walltime_s: float, ahead: int = 0) -> NDArray[np.float64]:
        """Return the waits, ascending, that apply to a job of this shape."""
        return self.waits_s[self.group(procs, walltime_s, ahead)]

    def cluster(self, procs: int, walltime_s: float) -> Cluster:
        """Return the cluster of a job of this shape."""
        group, edges = self.group(procs, walltime_s), (None, *self.edges, None)
        return Cluster(by=self.settings.cluster_size, above=edges[group], up_to=edges[group + 1])

    def bound(
        self, procs: int, walltime_s: float, probability: float, confidence: float = 0.95
    ) -> Bound:
        """Return the wait that such a job does not exceed with this probability, at this
        confidence."""
        waits = self.waits(procs, walltime_s)
        bound = float(self.bounds(procs, walltime_s, probability, confidence))
        return Bound(
            bound_s=None if np.isnan(bound) else bound,
            probability=probability,
            confidence=confidence,
            method=self.settings.method,
            jobs=len(waits),
            since_s=self.since_s,
            cluster=self.cluster(procs, walltime_s),
            reason=_explain_lack(len(waits), probability, confidence) if np.isnan(bound) else None,
        )

    def bounds(
        self, procs: int, walltime_s: float, probabilities: ArrayLike, confidence: float = 0.95
    ) -> NDArray[np.float64]:
        """Return GETBOUND for many probabilities at once; NaN if history is too short. The result
        has the same shape."""
        waits, levels = self.waits(procs, walltime_s), np.asarray(probabilities, dtype=np.float64)
        factor, quantile = self.correction_factor, self.settings.quantile
        return compute_corrected_bounds(waits, levels, confidence, (factor, quantile))

    def probability(
        self,
        procs: int,
        walltime_s: float,
        within_s: ArrayLike,
        confidence: float = 0.95,
        ahead: int = 0,
        submit_in_s: float = 0.0,  # noqa: ARG002 past waits know no instant
    ) -> NDArray[np.float64]:
        """Return the least probability, at this confidence, of waiting at most ``within_s``; same
        shape.

        The inverse of :meth:`bounds`: with a correction factor the odds shrink
        (:func:`vgrads.qbets.adaptive_correction.loosen_level`), but not beyond the longest wait,
        which is the bound if history is too short for a stricter one.
        """
        waits = self.waits(procs, walltime_s, ahead)
        ranks = np.searchsorted(waits, np.asarray(within_s, dtype=np.float64), side="right")
        plain = compute_probability_within(ranks, len(waits), confidence)
        plain = np.minimum(plain, compute_highest_level(len(waits)))  # at low confidence
        if self.correction_factor >= 1.0:
            return plain
        wary = loosen_level(plain, self.correction_factor, self.settings.quantile)
        return np.where(ranks == len(waits), plain, wary)

    def chance(self, procs: int, walltime_s: float, submit_in_s: float, by_s: float) -> float:
        """Return P(a job that is submitted in ``submit_in_s`` has started by ``by_s``), both from
        now."""
        return float(self.probability(procs, walltime_s, by_s - submit_in_s))


def _explain_lack(waits: int, probability: float, confidence: float) -> str:
    """Say why so many waits have no bound."""
    needed = compute_minimum_history(probability, confidence)
    if waits < needed:
        return f"{format_count(needed, 'wait')} needed, {waits} known"
    return explain_highest_level(waits, "wait")


def freeze(predictor: QueuePredictor, first_s: float) -> QueueForecast:
    """Freeze the current knowledge of a predictor; ``first_s`` is the beginning of its history."""
    changes = predictor.change_points
    return QueueForecast(
        edges=tuple(predictor.edges),
        # not copied: a stream makes a new array after each change
        waits_s=tuple(stream.sorted_waits for stream in predictor.streams),
        since_s=changes[-1] if changes else first_s,
        settings=predictor.settings,
        downtime=predictor.downtime.at(predictor.now_s),
        correction_factor=predictor.correction_factor,
        record=count_outcomes(predictor.missed),
        # copied, because the predictor may replay further
        of_users=dict(predictor.ahead),
    )


def forecast(log: JobLog, at_s: float, settings: Settings | None = None) -> QueueForecast:
    """Return the forecast at ``at_s``; change points are judged at the settings' quantile."""
    return freeze(learn(log, settings or Settings(), at_s), float(log.submit_s[0]))
