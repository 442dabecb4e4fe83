"""How much a host is given at once: by time, not by count, and never what others could begin
sooner."""

from __future__ import annotations

from math import ceil

SECONDS_IN_HAND = 0.1
"""Work that waits at a host while its results travel: what hides an exchange and the write before
it."""
MOST = 1000
"""Tasks in one answer."""
LONG_S = 10.0
"""Tasks of this length are not worth fetching early: an exchange costs them nothing."""


def wanted(places: int, typical_s: float | None, in_hand_s: float = SECONDS_IN_HAND) -> int:
    """Tasks that a host with ``places`` should hold, begun ones counted, of a bag whose tasks take
    ``typical_s``.

    None: not known yet; then no more than it can run.
    """
    if typical_s is None or typical_s >= LONG_S:
        return places
    ahead = min(MOST, ceil(in_hand_s * places / max(typical_s, 1e-6)))
    return places + max(1, ahead)


def fair_part(pending: int, places: int, all_places: int) -> int:
    """The most of what is pending that a host should draw, so that the last tasks are spread over
    all of them.

    Guided self-scheduling (Polychronopoulos and Kuck 1987): the remaining tasks by the processors
    there are.
    """
    return max(1, ceil(pending * places / max(all_places, places, 1)))
