"""Whether a set or a bag is archived: it is listed again once something of it begins anew."""

from __future__ import annotations


def is_archived(archived_s: float | None, began_s: float | None) -> bool:
    """Return True where work was archived, and nothing of it has begun since. ``began_s``: when its
    newest run began, None where there is none."""
    return archived_s is not None and (began_s is None or began_s <= archived_s)
