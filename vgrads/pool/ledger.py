"""Several pools, one need: whose promise came first is kept, the others count it as help from
elsewhere.

Each pool decides for itself and at its own time. If two promise the same manager all it needs, both
see that in the ledger the next time; were both to give way, both would come back. So the older
promise stands (ties: the lesser name).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a pool has promised a manager: workers of ``procs`` processors, and how long ago (s)."""

    pool: str
    manager: str
    workers: int
    procs: int
    age_s: float


def claimed_before(
    claims: Iterable[Claim],
    pool: str,
    mine: Mapping[str, float],
    lent: Mapping[str, Mapping[str, int]],
) -> dict[str, int]:
    """Processors by manager that others have promised before this pool did and not yet delivered.

    ``mine``: how long ago (s) this pool promised a manager something; ``lent``: processors by
    manager and pool that have come.
    """
    found: Counter[str] = Counter()
    for claim in claims:
        own_s = mine.get(claim.manager)
        first = own_s is None or (-claim.age_s, claim.pool) < (-own_s, pool)
        here = lent.get(claim.manager, {}).get(claim.pool, 0)
        if first and claim.workers * claim.procs > here:
            found[claim.manager] += claim.workers * claim.procs - here
    return dict(found)
