"""Which bag is served next when a host has room: small pure functions in a literal table.

A policy gives each bag that has pending tasks a key; the bag with the smallest one is served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BagView:
    """A bag as a policy sees it: when it came, and how much its owner and it have had, by weight.

    ``owner_had`` and ``had``: processor seconds divided by weight, as in stride scheduling (Waldspurger 1995).
    """

    number: int
    owner_had: float
    had: float


def next_available(bag: BagView) -> tuple[float, ...]:
    """Bags in the order in which they came; each task to the next host with room (Falkon, section 3.1)."""
    return (bag.number,)


def fair(bag: BagView) -> tuple[float, ...]:
    """The owner who has had least by weight, and of his bags the one that has."""
    return (bag.owner_had, bag.had, bag.number)


POLICIES: Mapping[str, Callable[[BagView], tuple[float, ...]]] = {
    "next-available": next_available,
    "fair-share": fair,
}
"""Dispatch policies by name."""

WINDOW = 64
"""Among so many of a bag's next tasks are those looked for whose inputs a host has already."""


def local_first(
    window: Sequence[int], needs: Sequence[Sequence[str]], cached: Set[str]
) -> list[int]:
    """The tasks of a window, those first of whose inputs a host has most already; else their order stays.

    ``needs``: the digests of each one's inputs.
    """
    have = [sum(digest in cached for digest in digests) for digests in needs]
    order = sorted(range(len(window)), key=lambda i: -have[i])
    return [window[i] for i in order]
