"""Which tasks next? The seven task selection policies (§2.3), each a small pure function.

When the eligible set is empty, a policy says whose tasks come into it: of which user (``choose``),
and how much of what that user has waiting (``portion``). S-T has no choice to make: everything is
eligible when it comes. A set counts as empty once all of it has been given to processors; waiting
until all of it has ended, as one sentence of §2.2 may be read, would leave nearly all processors
idle under S-BoT, which the paper finds best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numba import njit

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.errors import InputError

ALL, BAG, TASK = 0, 1, 2
"""How much of a user's waiting tasks becomes eligible."""
EVERYTHING, OLDEST, PRIORITY, LEAST_USED, IN_TURN = range(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A policy: whose tasks (one of the codes above), how many of them, and what it is for."""

    choose: int
    portion: int
    about: str


@njit(cache=True, inline="always")
def highest_priority(waiting: Ints) -> int:
    """The user with the highest priority among those with waiting tasks: the lowest number; −1
    where none waits."""
    for user in range(len(waiting)):
        if waiting[user] > 0:
            return user
    return -1


@njit(cache=True, inline="always")
def least_used(waiting: Ints, used_s: Floats, running: Ints, since_s: Floats, now_s: float) -> int:
    """The user with the lowest consumption: processor time of what has ended and of what runs, up
    to now."""
    best, lowest = -1, np.inf
    for user in range(len(waiting)):
        if waiting[user] > 0:
            consumed = used_s[user] + running[user] * now_s - since_s[user]
            if consumed < lowest:
                best, lowest = user, consumed
    return best


@njit(cache=True, inline="always")
def in_turn(waiting: Ints, last: int) -> int:
    """The next user behind the last one who has something waiting."""
    count = len(waiting)
    for step in range(1, count + 1):
        user = (last + step) % count
        if waiting[user] > 0:
            return user
    return -1


SELECTIONS: Mapping[str, Selection] = {
    "S-T": Selection(choose=EVERYTHING, portion=ALL, about="all tasks that wait, at once"),
    "S-BoT": Selection(choose=OLDEST, portion=BAG, about="bags in the order of their arrival"),
    "S-U-Prio": Selection(
        choose=PRIORITY,
        portion=ALL,
        about="all tasks of the user with the highest priority; priorities are drawn by lot",
    ),
    "S-U-T": Selection(
        choose=LEAST_USED, portion=ALL, about="all tasks of the user who has used least"
    ),
    "S-U-BoT": Selection(
        choose=LEAST_USED, portion=BAG, about="the oldest bag of the user who has used least"
    ),
    "S-U-GRR": Selection(choose=IN_TURN, portion=ALL, about="all tasks of the next user in turn"),
    "S-U-RR": Selection(choose=IN_TURN, portion=TASK, about="one task of the next user in turn"),
}


def selection_named(name: str) -> Selection:
    """A policy; InputError lists them."""
    if name not in SELECTIONS:
        raise InputError(
            f"no selection policy '{name}'", where="selection", fix=", ".join(SELECTIONS)
        )
    return SELECTIONS[name]
