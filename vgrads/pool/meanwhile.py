"""Shares while there are fewer workers than were decided: those that there are go round, too.

A pool decides for as many as it may have, and its sites may not give them for hours. Whoever came
first would keep all that there are until then. So while somebody has waited in vain for a worker
that would be its own if only those at work were shared out, the others are told to let go of what
they have beyond that.
"""

from __future__ import annotations

from collections.abc import Mapping

from vgrads.pool.share import fill


def meanwhile(
    shares: Mapping[str, int],
    needs: Mapping[str, tuple[int, float]],
    running: Mapping[str, int],
    waiting_s: Mapping[str, float],
    patience_s: float,
) -> dict[str, int]:
    """Workers that managers are told for now; ``shares`` where nobody starves.

    ``needs``: need and weight; ``running``: at work; ``waiting_s``: how long a manager has waited
    for workers that have not come.
    """
    wanted = {name: need for name, (need, _) in needs.items()}
    weights = {name: weight for name, (_, weight) in needs.items()}
    fair = fill(wanted, weights, sum(running.get(name, 0) for name in wanted)).decided
    starve = [
        name
        for name in fair
        if running.get(name, 0) < fair[name] and waiting_s.get(name, 0.0) >= patience_s
    ]
    if not starve:
        return dict(shares)
    return {
        name: min(count, fair[name]) if running.get(name, 0) >= fair.get(name, 0) else count
        for name, count in shares.items()
    }
