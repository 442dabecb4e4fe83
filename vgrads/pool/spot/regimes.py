"""Regimes of a spot market: hazards that hold for a day or so, until others take their place.

A zone is now calm and now restless, so that what was seen an hour ago says more than what was seen
yesterday. Regimes are learned from recorded zones; which of them holds is a hidden Markov model
(Rabiner, doi:10.1109/5.18626), whose filter gives their probabilities from what was seen.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from vgrads.pool.spot.history import SpotHistory
from vgrads.pool.spot.survival import LEAST, MOST, STEP_S, Hazards, LifeTable, find_interval

Weights = NDArray[np.float64]
"""A probability for each regime."""

LASTS_S = 24 * 3600.0
"""Mean time until another regime takes its place, by the likelihood of recorded zones."""
_KINDS, _STRENGTH, _POOLED_STEPS = 6, 10.0, 500.0
_RESTLESS = np.array([1.0, 4.0, 16.0])
"""Each regime stands three times, with spells of availability whose odds of ending are so many
times as high as recorded: a zone may be more restless than all that were."""
_FORGOTTEN = 1008
"""A week of steps: the filter begins anew with the week before the present one."""


@dataclass(frozen=True, eq=False)
class SpotRegimes:
    """``steps``: hazards for steps of :data:`STEP_S`; shape (regimes, 2, intervals of ages)."""

    steps: NDArray[np.float64]

    @property
    def count(self) -> int:
        """Return how many there are."""
        return len(self.steps)

    def expect(self, weights: Weights) -> Hazards:
        """Return the mean hazards, given the probabilities of the regimes."""
        return Hazards(np.tensordot(weights, self.steps, axes=1))


def single_regime(hazards: Hazards) -> SpotRegimes:
    """Return hazards that always hold."""
    return SpotRegimes(hazards.steps[None])


@lru_cache(maxsize=64)
def make_regimes(prior: tuple[LifeTable, ...], restless: bool = True) -> SpotRegimes:
    """Return regimes from life tables of recorded zones, and ``restless`` ones beside them.

    The two tables that lose least likelihood as one are merged until few are left: what nearly
    agrees is one regime. Where a table has little, the mean of all tables counts.
    """
    first, *others = [table.weighted(_POOLED_STEPS) for table in prior]
    pooled = sum(others, first).hazards
    tables = list(prior)
    while len(tables) > _KINDS:
        alone = [_log_likelihood(table, pooled) for table in tables]
        _, n, m = min(
            (alone[n] + alone[m] - _log_likelihood(tables[n] + tables[m], pooled), n, m)
            for n, m in combinations(range(len(tables)), 2)
        )
        tables[n] += tables.pop(m)
    calm = np.array([_hazards(table, pooled) for table in tables])
    factors = _RESTLESS if restless else _RESTLESS[:1]
    odds = factors[:, None, None] * (calm[:, 1] / (1.0 - calm[:, 1]))
    without = np.broadcast_to(calm[:, 0], odds.shape)
    steps = np.stack([without, odds / (1.0 + odds)], axis=2).reshape(-1, *calm.shape[1:])
    return SpotRegimes(np.clip(steps, LEAST, MOST))


def _hazards(table: LifeTable, pooled: NDArray[np.float64]) -> NDArray[np.float64]:
    rates = (table.ended + _STRENGTH * pooled) / (table.at_risk + _STRENGTH)
    hazards: NDArray[np.float64] = np.clip(rates, LEAST, MOST)
    return hazards


def _log_likelihood(table: LifeTable, pooled: NDArray[np.float64]) -> float:
    hazards = _hazards(table, pooled)
    # a spell may end within a fraction of a step: then more ended than were at risk
    survived = np.maximum(table.at_risk - table.ended, 0.0)
    return float((table.ended * np.log(hazards) + survived * np.log1p(-hazards)).sum())


class _RegimeFilter:
    """Probabilities of regimes for one history, step by step; goes on where it was."""

    def __init__(self, regimes: SpotRegimes) -> None:
        ends = np.ascontiguousarray(regimes.steps.transpose(1, 2, 0))
        self._chances = (1.0 - ends, ends)  # that a spell goes on, or ends
        self._equal: Weights = np.full(regimes.count, 1.0 / regimes.count)
        self._stays = 1.0 - STEP_S / LASTS_S
        self._renewed = self._equal * (STEP_S / LASTS_S)
        self._seen: tuple[float, ...] = ()
        self._first, self._step, self._weights = 0, 0, self._equal
        self._lock = Lock()

    def weights(self, history: SpotHistory, now_s: float) -> Weights:
        """Return the probabilities at an instant."""
        step = max(0, int((now_s - history.began_s) / STEP_S + 1e-6))
        with self._lock:  # services plan in several threads
            first = max(0, step // _FORGOTTEN - 1) * _FORGOTTEN
            if first != self._first or step < self._step or not self._continues(history):
                self._first, self._step, self._weights = first, first, self._equal
            while self._step < step:
                self._advance(history)
            seen = bisect_right(history.changes_s, history.began_s + step * STEP_S)
            self._seen = history.changes_s[:seen]
            return self._weights

    def _continues(self, history: SpotHistory) -> bool:
        """Return whether a history agrees with what was seen so far."""
        seen, changes_s = len(self._seen), history.changes_s
        until_s = history.began_s + self._step * STEP_S
        same = changes_s[:seen] == self._seen
        return same and (len(changes_s) == seen or changes_s[seen] > until_s)

    def _advance(self, history: SpotHistory) -> None:
        at_s = history.began_s + self._step * STEP_S
        before, after = history.is_available(at_s), history.is_available(at_s + STEP_S)
        age = find_interval(history.age_s(at_s))
        weights = self._weights * self._chances[before != after][int(before), age]
        # a share is renewed in each step, so that no regime becomes impossible
        weights *= self._stays / float(weights.sum())
        weights += self._renewed
        self._weights = weights
        self._step += 1


@lru_cache(maxsize=256)
def _filter_of(regimes: SpotRegimes, _began_s: float, _first: bool) -> _RegimeFilter:
    return _RegimeFilter(regimes)  # one for each history that may go on


def estimate_weights(regimes: SpotRegimes, history: SpotHistory, now_s: float) -> Weights:
    """Return how probable each regime is, by what was seen until now."""
    return _filter_of(regimes, history.began_s, history.first).weights(history, now_s)


def estimate_hazards(history: SpotHistory, prior: tuple[LifeTable, ...], now_s: float) -> Hazards:
    """Return the expected hazards, by what was seen until now and by recorded zones: a plan
    promises what is probable, a decision also prepares for zones that are more restless."""
    regimes = make_regimes(prior, restless=False)
    return regimes.expect(estimate_weights(regimes, history, now_s))
