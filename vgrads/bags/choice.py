"""Which bag is served next when a host has room, and which of its tasks."""

from __future__ import annotations

from collections.abc import Sequence, Set

NEXT_AVAILABLE = "next-available"
"""Bags by rank, equal ones in the order in which they came; each task to the next host with room
(Falkon, 3.1)."""
FAIR_SHARE = "fair-share"
"""First the owner who has had least by weight, of his bags the one of the highest rank, of equal
ones the one that has had least: processor seconds divided by weight, as in stride scheduling
(Waldspurger 1995)."""
POLICIES = (NEXT_AVAILABLE, FAIR_SHARE)
"""Dispatch policies."""

WINDOW = 64
"""Among so many of a bag's next tasks are those looked for whose inputs a host has already."""


def local_first(
    window: Sequence[int], needs: Sequence[Sequence[str]], cached: Set[str]
) -> list[int]:
    """The tasks of a window, those first of whose inputs a host has most already; else their order
    stays.

    ``needs``: the digests of each one's inputs.
    """
    have = [sum(digest in cached for digest in digests) for digests in needs]
    order = sorted(range(len(window)), key=lambda i: -have[i])
    return [window[i] for i in order]
