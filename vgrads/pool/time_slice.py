"""Temporary shares while there are fewer workers than were decided: the existing ones are shared in
turn.

A pool decides on as many workers as it may have, and its sites may not deliver them for hours.
Until then the first manager would keep all existing ones. So while a manager has waited in vain for
a worker that would be its own if only the working ones were shared, the others are requested to
release their surplus.
"""

from __future__ import annotations

from collections.abc import Mapping

from vgrads.pool.share import fill


def share_by_turns(
    shares: Mapping[str, int],
    needs: Mapping[str, tuple[int, float]],
    running: Mapping[str, int],
    waiting_s: Mapping[str, float],
    patience_s: float,
) -> dict[str, int]:
    """Return the workers for each manager for now; ``shares`` where no manager starves.

    ``needs``: need and weight; ``running``: working ones; ``waiting_s``: how long a manager has
    waited for workers that have not come.
    """
    needs_by_name = {name: need for name, (need, _) in needs.items()}
    weights = {name: weight for name, (_, weight) in needs.items()}
    fair = fill(needs_by_name, weights, sum(running.get(name, 0) for name in needs_by_name)).decided
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
