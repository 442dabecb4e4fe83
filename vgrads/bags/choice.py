"""The choice of the next bag for an agent with free processors, and of its tasks."""

from __future__ import annotations

from collections.abc import Sequence, Set

NEXT_AVAILABLE = "next-available"
"""Bags by rank, equal ones in order of arrival; each task to the next agent with room (Falkon,
3.1)."""
FAIR_SHARE = "fair-share"
"""First the owner with the least usage by weight; of their bags the one with the highest rank, of
equal ones the one with the least usage: processor seconds divided by weight, as in stride
scheduling (Waldspurger 1995)."""
POLICIES = (NEXT_AVAILABLE, FAIR_SHARE)
"""Bag orderings."""

WINDOW = 64
"""Number of a bag's next tasks that are searched for tasks whose inputs an agent has cached."""


def sort_by_locality(
    window: Sequence[int], needs: Sequence[Sequence[str]], cached: Set[str]
) -> list[int]:
    """Sort the tasks of a window by the number of inputs cached at an agent, most first; otherwise
    their order is kept.

    ``needs``: the digests of each task's inputs.
    """
    have = [sum(digest in cached for digest in digests) for digests in needs]
    order = sorted(range(len(window)), key=lambda i: -have[i])
    return [window[i] for i in order]
