"""Which manager gets how many of a pool's workers: Yu's rounds (PhD thesis, Notre Dame 2013,
§4.4.2, Eq 4.6–4.15).

What comes out is weighted max-min fairness: everybody gets the same level of water times its
weight, nobody more than it needs. In the thesis a manager needs, of this pool,

- ``example``: min(capacity, unfinished tasks) − workers from elsewhere (its worked example: 1000,
  1000, 200);
- ``stated``: min(max(0, capacity − connected), waiting) + received (Eq 4.6–4.8 by the letter: 1000,
  1000, 300);

and the default is ``example``, in which what others bring is not asked for a second time.
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
_MOST = 1e9  # what is never busy has no bound


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerAd:
    """What a manager publishes of itself (thesis, §4.4.1; from ``capacity_low`` on ours).

    ``by_pool``: its workers by the pool they come from, ``arrived``: tasks it ever had,
    ``execution_s`` and ``cycle_s``: what a task takes at a worker without and with all else,
    ``failing``: all that has ended so far has failed.
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
    ``max_change``: workers a minute.
    """

    max_workers: int
    distribution: tuple[tuple[str, float], ...] = ((".*", 1.0),)
    max_change: float | None = None
    default_capacity: float | None = None
    billing_cycle_s: float | None = None
    reading: Reading = "example"


@dataclass(frozen=True, slots=True)
class Round:
    """One round of the rounds: what was undecided and needed (Eq 4.13, 4.12), what it offered one
    unit of weight (Eq 4.14, 4.15), and who was full with its need."""

    undecided: float
    needed: int
    per_weight: float
    full: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shares:
    """``decided``: workers by manager; ``exact``: before they were made whole."""

    decided: Mapping[str, int]
    exact: Mapping[str, float]
    rounds: tuple[Round, ...]


def whole(workers: float) -> int:
    """A capacity as a number of workers, at least one."""
    return max(1, math.floor(min(workers, _MOST) + 0.5))


def elsewhere(ad: ManagerAd, pool: str, others: Mapping[str, int] | None = None) -> int:
    """Workers that a manager has from elsewhere, or will have by what other pools decided."""
    return max(0, ad.workers - ad.by_pool.get(pool, 0)) + (others or {}).get(ad.name, 0)


def need(ad: ManagerAd, most: int | None, from_elsewhere: int, pool: str, reading: Reading) -> int:
    """Workers that a manager needs of this pool, if ``most`` in all are of use to it (None: not
    known)."""
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
    """Eq 4.6–4.8 for each manager, by the policy's reading."""
    found = {}
    for ad in ads:
        known = policy.default_capacity if ad.capacity is None else ad.capacity
        most = None if known is None else whole(known)
        found[ad.name] = need(ad, most, elsewhere(ad, pool, others), pool, policy.reading)
    return found


def default_most(names: Sequence[str], policy: SharePolicy) -> dict[str, float]:
    """Eq 4.9–4.11: what a manager gets if all want more than there is; nothing if no pattern
    matches it."""
    patterns = [re.compile(pattern) for pattern, _ in policy.distribution]
    at = {
        name: next((n for n, one in enumerate(patterns) if one.fullmatch(name)), -1)
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


def total_most(policy: SharePolicy, previous: int | None, elapsed_s: float) -> int:
    """Workers that may be shared out now: ``max_change`` limits how fast their number grows."""
    if policy.max_change is None:
        return policy.max_workers
    grown = math.floor(policy.max_change * elapsed_s / 60.0 + _TINY)
    return min(policy.max_workers, (previous or 0) + grown)


def fill(wanted: Mapping[str, int], weights: Mapping[str, float], total: int) -> Shares:
    """Eq 4.12–4.15 with these needs and default maxima, then whole numbers by largest remainder,
    ties by name.

    The sum is the lesser of ``total`` and all needs of those that have a weight. The first round
    offers everybody its default maximum, since these add up to the total; where ``max_change``
    holds that down, the same part of it. In the order of need ÷ weight, who becomes full in a round
    are the next ones of that order, so that all rounds together take one pass.
    """
    names = sorted(
        (name for name in wanted if weights[name] > 0.0),
        key=lambda name: (wanted[name] / weights[name], name),
    )
    level = [wanted[name] / weights[name] * (1.0 - _TINY) - _TINY for name in names]
    weight = [0.0, *accumulate(weights[name] for name in names)]
    sums = [0, *accumulate(wanted[name] for name in names)]
    exact, rounds = dict.fromkeys(wanted, 0.0), []
    begun = 0
    while begun < len(names):
        undecided, needed = float(total - sums[begun]), sums[-1] - sums[begun]
        per_weight = undecided / (weight[-1] - weight[begun])
        until = len(names) if needed <= undecided else max(begun, bisect_right(level, per_weight))
        rounds.append(Round(undecided, needed, per_weight, tuple(names[begun:until])))
        exact |= {name: float(wanted[name]) for name in names[begun:until]}
        if until == begun:
            exact |= {name: weights[name] * per_weight for name in names[begun:]}
            break
        begun = until
    return Shares(_whole(exact, min(total, sums[-1])), exact, tuple(rounds))


def share(
    ads: Sequence[ManagerAd],
    policy: SharePolicy,
    pool: str = "",
    previous: int | None = None,
    elapsed_s: float = 0.0,
    others: Mapping[str, int] | None = None,
) -> Shares:
    """How many workers of this pool each manager gets. ``others``: workers that other pools have
    decided for a manager and not yet delivered; ``previous``: what was decided in all ``elapsed_s``
    ago."""
    weights = default_most([ad.name for ad in ads], policy)
    return fill(needs(ads, policy, pool, others), weights, total_most(policy, previous, elapsed_s))


def _whole(exact: Mapping[str, float], total: int) -> dict[str, int]:
    decided = {name: math.floor(workers + _TINY) for name, workers in exact.items()}
    left = total - sum(decided.values())
    order = sorted(exact, key=lambda name: (decided[name] - exact[name], name))
    for name in order[: max(0, left)]:
        decided[name] += 1
    return decided
