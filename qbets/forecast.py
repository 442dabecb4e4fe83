"""What a queue's history says about the next job, frozen at one instant: GETBOUND and GETPROB."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vgrads.qbets.bounds import minimum_history, probability_within
from vgrads.qbets.clusters import SIZES, bin_of
from vgrads.qbets.downtime import Downtime
from vgrads.qbets.predictor import NOBODY, Arrival, QueuePredictor, Settings
from vgrads.qbets.referee import looser, stricter
from vgrads.qbets.replay import learn
from vgrads.qbets.stream import bounds_of
from vgrads.traces.records import JobLog


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Like jobs: by what size, from (exclusive) and up to (inclusive) which value of it."""

    by: str
    above: float | None
    up_to: float | None


@dataclass(frozen=True, kw_only=True)
class Bound:
    """An answer of GETBOUND with what it rests on; ``bound_s`` is None with a ``reason``."""

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

    ``caution`` is what the referee asks for: misses are taken to be 1 ÷ caution times as frequent
    as history says. ``ahead`` is, in every question, the number of jobs that the asker has waiting
    in the queue beyond the ``own`` that were there already.
    """

    edges: tuple[float, ...]
    waits_s: tuple[NDArray[np.float64], ...]
    since_s: float
    settings: Settings
    downtime: Downtime | None = None
    caution: float = 1.0
    own: int = 0

    @property
    def method(self) -> str:
        """Whose answers these are."""
        return self.settings.method

    def group(self, procs: int, walltime_s: float, ahead: int = 0) -> int:
        """Number of the cluster that a job of this shape belongs to."""
        shape = self.settings.shape(procs, walltime_s)
        return bin_of(self.edges, SIZES[self.settings.cluster_size](*shape, self.own + ahead))

    def waits(self, procs: int, walltime_s: float, ahead: int = 0) -> NDArray[np.float64]:
        """The waits, ascending, that speak about a job of this shape."""
        return self.waits_s[self.group(procs, walltime_s, ahead)]

    def cluster(self, procs: int, walltime_s: float) -> Cluster:
        """The jobs that a job of this shape counts among."""
        group, edges = self.group(procs, walltime_s), (None, *self.edges, None)
        return Cluster(by=self.settings.cluster_size, above=edges[group], up_to=edges[group + 1])

    def bound(
        self, procs: int, walltime_s: float, probability: float, confidence: float = 0.95
    ) -> Bound:
        """With this confidence a job like this waits no longer with this probability."""
        waits = self.waits(procs, walltime_s)
        bound = float(self.bounds(procs, walltime_s, probability, confidence))
        needed = minimum_history(probability, confidence)
        return Bound(
            bound_s=None if np.isnan(bound) else bound,
            probability=probability,
            confidence=confidence,
            method=self.settings.method,
            jobs=len(waits),
            since_s=self.since_s,
            cluster=self.cluster(procs, walltime_s),
            reason=f"{needed} waits needed, {len(waits)} known" if np.isnan(bound) else None,
        )

    def bounds(
        self, procs: int, walltime_s: float, probabilities: ArrayLike, confidence: float = 0.95
    ) -> NDArray[np.float64]:
        """GETBOUND for many probabilities at once; NaN where history is too short. Same shape
        back."""
        waits, levels = self.waits(procs, walltime_s), np.asarray(probabilities, dtype=np.float64)
        plain = bounds_of(waits, levels, confidence)
        if self.caution >= 1.0 or not len(waits):
            return plain
        # NaN where history is too short for the stricter level: then the longest wait of all
        asked = stricter(levels, self.caution, self.settings.quantile)
        strict = bounds_of(waits, asked, confidence)
        return np.where(np.isnan(plain), np.nan, np.where(np.isnan(strict), waits[-1], strict))

    def probability(
        self,
        procs: int,
        walltime_s: float,
        within_s: ArrayLike,
        confidence: float = 0.95,
        ahead: int = 0,
        submit_in_s: float = 0.0,  # noqa: ARG002 past waits know no instant
    ) -> NDArray[np.float64]:
        """With this confidence the least probability of waiting at most ``within_s``; same shape.

        The inverse of :meth:`bounds`: under caution the odds shrink
        (:func:`vgrads.qbets.referee.looser`), but not beyond the longest wait, which is the bound
        wherever history is too short for a stricter one.
        """
        waits = self.waits(procs, walltime_s, ahead)
        known = np.searchsorted(waits, np.asarray(within_s, dtype=np.float64), side="right")
        plain = probability_within(known, len(waits), confidence)
        if self.caution >= 1.0:
            return plain
        wary = looser(plain, self.caution, self.settings.quantile)
        return np.where(known == len(waits), plain, wary)

    def chance(self, procs: int, walltime_s: float, submit_in_s: float, by_s: float) -> float:
        """P(a job that is submitted in ``submit_in_s`` has started by ``by_s``), both from now."""
        return float(self.probability(procs, walltime_s, by_s - submit_in_s))


def freeze(predictor: QueuePredictor, first_s: float, asker: Arrival = NOBODY) -> QueueForecast:
    """What a predictor knows now; ``first_s`` is the beginning of its history, ``asker`` who
    asks."""
    changes = predictor.change_points
    return QueueForecast(
        edges=tuple(predictor.edges),
        waits_s=tuple(stream.sorted_waits for stream in predictor.streams),
        since_s=changes[-1] if changes else first_s,
        settings=predictor.settings,
        downtime=predictor.downtime.at(predictor.now_s),
        caution=predictor.caution,
        own=predictor.ahead[asker.user] if asker.user >= 0 else 0,
    )


def forecast(
    log: JobLog, at_s: float, settings: Settings | None = None, asker: Arrival = NOBODY
) -> QueueForecast:
    """What was known at ``at_s``; change points are judged at the settings' quantile."""
    return freeze(learn(log, settings or Settings(), at_s), float(log.submit_s[0]), asker)
