"""Several pools for one need: the earliest claim is kept, the others count it as workers from
elsewhere.

Each pool decides for itself and at its own time. If two claim the whole need of a manager, both see
that in the ledger the next time; if both withdrew, both would claim again. So the older claim is
kept (ties: the lesser name).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolClaim:
    """A pool's claim for a manager: workers of ``procs`` processors, and its age (s)."""

    pool: str
    manager: str
    workers: int
    procs: int
    age_s: float


def sum_claimed_before(
    claims: Iterable[PoolClaim],
    pool: str,
    mine: Mapping[str, float],
    leased: Mapping[str, Mapping[str, int]],
) -> dict[str, int]:
    """Return processors by manager that others have claimed before this pool and not yet delivered.

    ``mine``: age (s) of this pool's claim for a manager; ``leased``: delivered processors by
    manager and pool.
    """
    counts: Counter[str] = Counter()
    for claim in claims:
        own_s = mine.get(claim.manager)
        first = own_s is None or (-claim.age_s, claim.pool) < (-own_s, pool)
        here = leased.get(claim.manager, {}).get(claim.pool, 0)
        if first and claim.workers * claim.procs > here:
            counts[claim.manager] += claim.workers * claim.procs - here
    return dict(counts)
