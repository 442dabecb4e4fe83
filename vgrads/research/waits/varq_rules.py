"""Rules for the instant of a reservation, chosen by the outcomes of past questions, and the share
of failures to allow, by that of promises.

Only a replayed history has these records: of every past question it shows when such a job would
have started at each instant (docs/decisions/0036-moved-submissions.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.vgrid.varq import Trajectory

RULE_LEVELS = (
    *(0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.88),
    *(0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99),
)
"""Probabilities by the forecast that a rule may require."""
RECORD = 200
"""Latest questions from which a rule is chosen."""
_FEWEST, _FEWEST_PROMISES = 10, 5
_IDLE = 0.45  # idle time of a rule, as a share of that of submitting at once


def adapt(allowed: float, probability: float, retained: bool, rate: float = 0.03) -> float:
    """Return the share of failures to allow from now on, after one more promise was kept or broken.

    Choosing instants by their estimated probability selects those that were estimated too high, and
    moving them discards good outcomes but keeps bad ones; the record of promises corrects both in
    the long run (adaptive conformal inference: Gibbs and Candès, NeurIPS 2021, equation 2). Never
    more lenient than promised, never impossible to meet.
    """
    missing = 1.0 - probability
    step = rate * missing if retained else -rate * probability
    return min(max(allowed + step, missing / 10.0), missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Promise if an instant reaches ``accept`` by the forecast, then submit at the latest that
    reaches ``enough``, or at the latest of the most probable ones."""

    accept: float
    enough: float

    def choose(self, path: Trajectory) -> int | None:
        """Return the index of the instant, None for a refusal."""
        if not len(path.probabilities) or path.probabilities[path.best] < self.accept:
            return None
        return latest(path, self.enough)


def latest(path: Trajectory, enough: float) -> int:
    """Return the index of the latest instant with this probability, else of the best."""
    instants = np.flatnonzero(path.probabilities >= enough)
    return int(instants[-1]) if len(instants) else path.best


@dataclass(frozen=True, slots=True, kw_only=True)
class Practice:
    """Outcomes of a past question at each of :data:`RULE_LEVELS`, promised or not, by the waits of
    similar jobs: 1.0 if it ran by T, 0.0 if not, NaN without such a job; and idle time.

    ``best``: its highest probability by the forecast; ``at_once``: idle time if submitted at once.
    """

    best: float
    in_time: NDArray[np.float64]
    idle: NDArray[np.float64]
    at_once: float


def practised(record: Sequence[Practice], probability: float) -> Rule | None:
    """Return the rule for the next question: it ran by T as often as required in the latest
    :data:`RECORD` questions, one failure added, with less than half the idle time of submitting
    at once; of these the one that promised most, otherwise that with the least share of idle time.

    None if no rule ran by T as often. The forecast's probabilities count by their outcomes only:
    of one too confident, higher ones are required. While there is too little to choose from, the
    forecast is trusted. Refused questions count too, so refusing everything does not last.
    """
    if len(record) < _FEWEST:
        return Rule(accept=probability, enough=probability)
    past = record[-RECORD:]
    in_time, idle = (np.array([getattr(p, name) for p in past]) for name in ("in_time", "idle"))
    at_once = np.array([p.at_once for p in past])
    valid = ~np.isnan(in_time) & ~np.isnan(at_once)[:, None]
    levels = np.array(RULE_LEVELS)
    taken = (np.array([p.best for p in past]) >= levels[:, None]).astype(np.float64)
    successes, promises, idle_s, at_once_s = (
        taken @ np.where(valid, values, 0.0)  # rows: accept, columns: enough
        for values in (in_time, np.ones_like(in_time), idle, at_once[:, None])
    )
    good = (successes >= probability * (promises + 1)) & (promises >= _FEWEST_PROMISES)
    if not good.any():
        return None
    share = idle_s / np.maximum(at_once_s, 1.0)
    merit = np.where(good, np.where(share <= _IDLE, promises, -share), -np.inf)
    accept, enough = np.unravel_index(int(np.argmax(merit)), merit.shape)
    return Rule(accept=RULE_LEVELS[int(accept)], enough=RULE_LEVELS[int(enough)])
