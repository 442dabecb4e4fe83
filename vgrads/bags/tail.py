"""When the tail of a bag begins: few of its tasks wait, and which host gets which begins to matter.

GridBot, section 6.3: no estimate of how many hosts there are is needed, only how much waits.
"""

from __future__ import annotations


def in_tail(pending: int, below: int | None, places: int, before: bool, latched: bool) -> bool:
    """True where the tail has begun. ``below``: so many tasks waiting, at most, are a tail; None:
    fewer than the hosts that are there have places. ``latched``: a tail that has begun goes on
    though tasks come to wait again."""
    if before and latched:
        return True
    return pending < (max(1, places) if below is None else below)
