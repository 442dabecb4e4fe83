"""Number of tasks sent to an agent at once: by time, not by count, and never tasks that others
could start sooner."""

from __future__ import annotations

from math import ceil

SECONDS_IN_HAND = 0.1
"""Work queued at an agent while its results travel, in seconds: it hides an exchange and the write
before it."""
MOST = 1000
"""Maximum number of tasks in one answer."""
LONG_S = 10.0
"""Tasks of this length (seconds) are not fetched early: the cost of an exchange is negligible."""


def bundle_size(places: int, typical_s: float | None, in_hand_s: float = SECONDS_IN_HAND) -> int:
    """Return the tasks that an agent with ``places`` should hold, running ones included, of a bag
    whose tasks take ``typical_s``.

    ``typical_s`` None: unknown; then no more than it can run.
    """
    if typical_s is None or typical_s >= LONG_S:
        return places
    ahead = min(MOST, ceil(in_hand_s * places / max(typical_s, 1e-6)))
    return places + max(1, ahead)


def limit_draw(pending: int, places: int, all_places: int) -> int:
    """Return the maximum number of pending tasks that an agent should draw, so that the last tasks
    are spread over all agents.

    Guided self-scheduling (Polychronopoulos and Kuck 1987): the remaining tasks divided by the
    number of processors.
    """
    return max(1, ceil(pending * places / max(all_places, places, 1)))
