"""Start of a bag's tail: few of its tasks wait, and the assignment to nodes begins to matter.

GridBot, section 6.3: needs no estimate of the number of nodes, only the number of waiting tasks.
"""

from __future__ import annotations


def is_in_tail(pending: int, below: int | None, places: int, before: bool, latched: bool) -> bool:
    """Return True where the tail has begun. ``below``: maximum number of waiting tasks in a tail;
    None: fewer than the processors of the current agents. ``latched``: a tail that has begun
    continues when tasks wait again."""
    if before and latched:
        return True
    return pending < (max(1, places) if below is None else below)
