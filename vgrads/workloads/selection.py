"""The seven task selection policies (§2.3): choice of the next tasks, each a small pure function.

When the eligible set is empty, a policy refills it: from which user (``choose``), and how many of
that user's waiting tasks (``portion``). S-T makes no choice: every task is eligible on arrival. A
set counts as empty once all of it has been assigned to processors; waiting until all of it has
ended, as one sentence of §2.2 may be read, would leave nearly all processors idle under S-BoT,
which the paper finds best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numba import njit

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.errors import InputError

ALL, BAG, TASK = 0, 1, 2
"""Portion of a user's waiting tasks that becomes eligible."""
EVERYTHING, OLDEST, PRIORITY, LEAST_USED, IN_TURN = range(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A policy: the user (one of the codes above), the portion, and its purpose."""

    choose: int
    portion: int
    about: str


@njit(cache=True, inline="always")
def highest_priority(waiting: Ints) -> int:
    """Return the user with the highest priority among those with waiting tasks: the lowest number;
    −1 where none waits."""
    for user in range(len(waiting)):
        if waiting[user] > 0:
            return user
    return -1


@njit(cache=True, inline="always")
def least_used(waiting: Ints, used_s: Floats, running: Ints, since_s: Floats, now_s: float) -> int:
    """Return the user with the lowest consumption: processor time of ended and running tasks, up to
    now."""
    best, lowest = -1, np.inf
    for user in range(len(waiting)):
        if waiting[user] > 0:
            # the sum of now - start over the running tasks, without a loop over them
            consumed = used_s[user] + running[user] * now_s - since_s[user]
            if consumed < lowest:
                best, lowest = user, consumed
    return best


@njit(cache=True, inline="always")
def in_turn(waiting: Ints, last: int) -> int:
    """Return the next user with waiting tasks after the last one."""
    count = len(waiting)
    for step in range(1, count + 1):
        user = (last + step) % count
        if waiting[user] > 0:
            return user
    return -1


SELECTIONS: Mapping[str, Selection] = {
    "S-T": Selection(choose=EVERYTHING, portion=ALL, about="all waiting tasks at once"),
    "S-BoT": Selection(choose=OLDEST, portion=BAG, about="bags in the order of their arrival"),
    "S-U-Prio": Selection(
        choose=PRIORITY,
        portion=ALL,
        about="all tasks of the user with the highest priority; priorities are random",
    ),
    "S-U-T": Selection(
        choose=LEAST_USED, portion=ALL, about="all tasks of the user with the least usage"
    ),
    "S-U-BoT": Selection(
        choose=LEAST_USED, portion=BAG, about="the oldest bag of the user with the least usage"
    ),
    "S-U-GRR": Selection(choose=IN_TURN, portion=ALL, about="all tasks of the next user in turn"),
    "S-U-RR": Selection(choose=IN_TURN, portion=TASK, about="one task of the next user in turn"),
}


def selection_named(name: str) -> Selection:
    """Return a policy by name. Raise InputError with the list of names."""
    if name not in SELECTIONS:
        raise InputError(
            f"unknown selection policy '{name}'", where="selection", fix=", ".join(SELECTIONS)
        )
    return SELECTIONS[name]
