"""Shares of a pool's workers for its managers: Yu's rounds (PhD thesis, Notre Dame 2013, §4.4.2, Eq
4.6–4.15).

The result is weighted max-min fairness: each manager gets the same level times its weight, but no
more than its need. In the thesis a manager needs, of this pool,

- ``example``: min(capacity, unfinished tasks) − workers from elsewhere (its worked example: 1000,
  1000, 200);
- ``stated``: min(max(0, capacity − connected), waiting) + received (Eq 4.6–4.8 by the letter: 1000,
  1000, 300);

and the default is ``example``, in which workers from elsewhere are not requested a second time.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

Reading = Literal["example", "stated"]
_TINY = 1e-9
_MOST = 1e9  # a resource that is never busy is unbounded


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerAd:
    """Published state of a manager (thesis, §4.4.1; from ``capacity_low`` on ours).

    ``by_pool``: its workers by the pool they come from, ``arrived``: tasks it ever had,
    ``execution_s`` and ``cycle_s``: time of a task at a worker without and with overhead,
    ``failing``: all ended tasks so far have failed.
    """

    name: str
    waiting: int = 0
    running: int = 0
    workers: int = 0
    capacity: float | None = None
    by_pool: Mapping[str, int] = field(default_factory=dict)
    at_s: float = 0.0
    capacity_low: float | None = None
    capacity_high: float | None = None
    execution_s: float | None = None
    cycle_s: float | None = None
    arrived: int = 0
    failing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePolicy:
    """A pool's policy (thesis, §4.4.3).

    ``distribution``: (pattern of names, value) in order, the first that matches the whole name
    counts; all managers of a pattern share its value, which is a proportion and not a bound.
    ``max_change``: workers per minute.
    """

    max_workers: int
    distribution: tuple[tuple[str, float], ...] = ((".*", 1.0),)
    max_change: float | None = None
    default_capacity: float | None = None
    billing_cycle_s: float | None = None
    reading: Reading = "example"


@dataclass(frozen=True, slots=True)
class ShareRound:
    """One round: the undecided workers and needs (Eq 4.13, 4.12), the offer per unit of weight (Eq
    4.14, 4.15), and the managers whose need was met."""

    undecided: float
    needed: int
    per_weight: float
    full: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shares:
    """``decided``: workers by manager; ``exact``: before rounding."""

    decided: Mapping[str, int]
    exact: Mapping[str, float]
    rounds: tuple[ShareRound, ...]


def whole(workers: float) -> int:
    """Return a capacity as a number of workers, at least one."""
    # round() would take 2.5 to the even number 2
    return max(1, math.floor(min(workers, _MOST) + 0.5))


def count_elsewhere(ad: ManagerAd, pool: str, others: Mapping[str, int] | None = None) -> int:
    """Return the workers that a manager has from elsewhere, or will have by other pools'
    decisions."""
    return max(0, ad.workers - ad.by_pool.get(pool, 0)) + (others or {}).get(ad.name, 0)


def compute_need(
    ad: ManagerAd, most: int | None, from_elsewhere: int, pool: str, reading: Reading
) -> int:
    """Return the workers that a manager needs of this pool, if ``most`` in all are of use to it
    (None: unknown)."""
    received, unfinished = ad.by_pool.get(pool, 0), ad.waiting + ad.running
    if reading == "example":
        return max(0, min(unfinished if most is None else most, unfinished) - from_elsewhere)
    connected = received + from_elsewhere
    still = ad.waiting if most is None else min(max(0, most - connected), ad.waiting)
    return still + received


def needs(
    ads: Sequence[ManagerAd],
    policy: SharePolicy,
    pool: str,
    others: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Return the need of each manager by Eq 4.6–4.8, in the policy's reading."""
    result = {}
    for ad in ads:
        capacity = policy.default_capacity if ad.capacity is None else ad.capacity
        most = None if capacity is None else whole(capacity)
        result[ad.name] = compute_need(
            ad, most, count_elsewhere(ad, pool, others), pool, policy.reading
        )
    return result


def compute_default_most(names: Sequence[str], policy: SharePolicy) -> dict[str, float]:
    """Eq 4.9–4.11: return the share of a manager if all need more than there is; none if no pattern
    matches it."""
    patterns = [re.compile(pattern) for pattern, _ in policy.distribution]
    at = {
        name: next((n for n, pattern in enumerate(patterns) if pattern.fullmatch(name)), -1)
        for name in names
    }
    matched = Counter(at.values())
    total = sum(value for n, (_, value) in enumerate(policy.distribution) if matched[n])
    if total <= 0.0:
        return dict.fromkeys(names, 0.0)
    scale = policy.max_workers / total
    return {
        name: scale * policy.distribution[n][1] / matched[n] if n >= 0 else 0.0
        for name, n in at.items()
    }


def limit_total(policy: SharePolicy, previous: int | None, elapsed_s: float) -> int:
    """Return the workers that may be shared now: ``max_change`` limits how fast their number
    grows."""
    if policy.max_change is None:
        return policy.max_workers
    # rounding must not lose a whole worker
    grown = math.floor(policy.max_change * elapsed_s / 60.0 + _TINY)
    return min(policy.max_workers, (previous or 0) + grown)


def fill(needs: Mapping[str, int], weights: Mapping[str, float], total: int) -> Shares:
    """Compute Eq 4.12–4.15 with these needs and default maxima, then round to whole numbers by
    largest remainder, ties by name.

    The sum is the lesser of ``total`` and all needs of managers with a weight. The first round
    offers each manager its default maximum, since these add up to the total; where ``max_change``
    holds that down, the same fraction of it. Sorted by need ÷ weight, the managers whose need is
    met in a round are the next ones of that order, so that all rounds together take one pass.
    """
    names = sorted(
        (name for name in needs if weights[name] > 0.0),
        key=lambda name: (needs[name] / weights[name], name),
    )
    # slightly less, so that rounding leaves no manager undecided whose need is just met
    level = [needs[name] / weights[name] * (1.0 - _TINY) - _TINY for name in names]
    weight = [0.0, *accumulate(weights[name] for name in names)]
    sums = [0, *accumulate(needs[name] for name in names)]
    exact, rounds = dict.fromkeys(needs, 0.0), []
    begun = 0
    while begun < len(names):
        undecided, needed = float(total - sums[begun]), sums[-1] - sums[begun]
        per_weight = undecided / (weight[-1] - weight[begun])
        until = len(names) if needed <= undecided else max(begun, bisect_right(level, per_weight))
        rounds.append(ShareRound(undecided, needed, per_weight, tuple(names[begun:until])))
        exact |= {name: float(needs[name]) for name in names[begun:until]}
        if until == begun:
            exact |= {name: weights[name] * per_weight for name in names[begun:]}
            break
        begun = until
    return Shares(_round_to_total(exact, min(total, sums[-1])), exact, tuple(rounds))


def share(
    ads: Sequence[ManagerAd],
    policy: SharePolicy,
    pool: str = "",
    previous: int | None = None,
    elapsed_s: float = 0.0,
    others: Mapping[str, int] | None = None,
) -> Shares:
    """Return how many workers of this pool each manager gets. ``others``: workers that other pools
    have decided for a manager and not yet delivered; ``previous``: total decided ``elapsed_s`` ago.
    """
    weights = compute_default_most([ad.name for ad in ads], policy)
    return fill(needs(ads, policy, pool, others), weights, limit_total(policy, previous, elapsed_s))


def _round_to_total(exact: Mapping[str, float], total: int) -> dict[str, int]:
    decided = {name: math.floor(workers + _TINY) for name, workers in exact.items()}
    left = total - sum(decided.values())
    order = sorted(exact, key=lambda name: (decided[name] - exact[name], name))
    for name in order[: max(0, left)]:
        decided[name] += 1
    return decided
