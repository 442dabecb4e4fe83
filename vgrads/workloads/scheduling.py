"""The task scheduling policies (§2.4): assignment of tasks to processors, by the information used,
each a small pure function.

A policy orders the eligible tasks (``rank``: the lowest comes first) and prefers some free
processors to others (``place``); it may replicate running tasks on unused processors. ``knows`` is
Table 1: resources, tasks; K known, H from history, U unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.errors import InputError

Assigned = tuple[Floats, Floats, Ints, Floats, float, int]
"""For each task: first start, end, cluster, start of the replica that ended first; then the
processor seconds of all replicas, and the number of replicas in excess of tasks."""

FASTEST, TURNS, MEASURED, EARLIEST = range(4)


def in_order(estimate_s: Floats) -> Floats:
    """Keep the order of the eligible set."""
    return np.zeros(len(estimate_s))


def largest_first(estimate_s: Floats) -> Floats:
    """Order the longest task first."""
    return -estimate_s


def shortest_first(estimate_s: Floats) -> Floats:
    """Order the shortest task first."""
    return estimate_s


@njit(cache=True, inline="always")
def fastest_free(free: Ints, speed: Floats) -> int:
    """Return the fastest cluster with a free processor; −1 where there is none."""
    best = -1
    for c in range(len(free)):
        if free[c] > 0 and (best < 0 or speed[c] > speed[best]):
            best = c
    return best


@njit(cache=True, inline="always")
def next_free(free: Ints, last: int) -> int:
    """Return the next cluster in turn with a free processor."""
    count = len(free)
    for step in range(1, count + 1):
        c = (last + step) % count
        if free[c] > 0:
            return c
    return -1


@njit(cache=True, inline="always")
def best_measured(free: Ints, measured: Ints, speed: Floats) -> int:
    """Return the fastest cluster with a free processor on which a task has ended; else the first
    with a free one."""
    best = -1
    for c in range(len(free)):
        if measured[c] > 0 and (best < 0 or speed[c] > speed[best]):
            best = c
    return best if best >= 0 else next_free(free, -1)


@njit(cache=True, inline="always")
def earliest_end(now_s: float, estimate_s: float, idle_s: Floats, speed: Floats) -> int:
    """Return the cluster where a task would end first; ``idle_s``: when a processor of each will be
    free for it."""
    best, end = 0, np.inf
    for c in range(len(speed)):
        at = max(now_s, idle_s[c]) + estimate_s / speed[c]
        if at < end:
            best, end = c, at
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """A policy; ``replicas``: maximum number of replicas of a running task; ``about``: its
    distinctive property."""

    about: str
    knows: tuple[str, str]
    rank: Callable[[Floats], Floats]
    place: int
    replicas: int = 0
    predicts: bool = False


def _make_replicating(replicas: int) -> Scheduling:
    """WQR-n."""
    often = "once" if replicas == 1 else f"up to {replicas} times"
    return Scheduling(
        about=(
            "tasks in the order of the set, to clusters in turn; when no task is waiting, a "
            f"running task is replicated {often}"
        ),
        knows=("U", "U"),
        rank=in_order,
        place=TURNS,
        replicas=replicas,
    )


SCHEDULINGS: Mapping[str, Scheduling] = {
    "ECT": Scheduling(
        about=(
            "each task, on arrival, to the cluster where it would end first, queue included; "
            "the selection policy has no effect"
        ),
        knows=("K", "K"),
        rank=in_order,
        place=EARLIEST,
    ),
    "FPLT": Scheduling(
        about="the longest task to the fastest free processor",
        knows=("K", "K"),
        rank=largest_first,
        place=FASTEST,
    ),
    "RR": replace(_make_replicating(1), about="another name of WQR-1"),
    **{f"WQR-{replicas}": _make_replicating(replicas) for replicas in (1, 2, 4)},
    "DFPLT": Scheduling(
        about=("the longest task to the free processor that has been fastest for finished tasks"),
        knows=("H", "K"),
        rank=largest_first,
        place=MEASURED,
    ),
    "ECT-P": Scheduling(
        about=(
            "as ECT, but the predicted run time of a task is that of the last finished task of "
            "its user"
        ),
        knows=("K", "H"),
        rank=in_order,
        place=EARLIEST,
        predicts=True,
    ),
    "STFR": Scheduling(
        about=(
            "the shortest task to clusters in turn; when no task is waiting, a running task is "
            "replicated once"
        ),
        knows=("U", "K"),
        rank=shortest_first,
        place=TURNS,
        replicas=1,
    ),
    "FPF": Scheduling(
        about="tasks in the order of the set, to the fastest free processor",
        knows=("K", "U"),
        rank=in_order,
        place=FASTEST,
    ),
}


def scheduling_named(name: str) -> Scheduling:
    """Return a policy by name. Raise InputError with the list of names. ``WQR-n`` may have any n
    from 1 to 9."""
    if name.startswith("WQR-") and name[4:].isdigit() and 1 <= int(name[4:]) <= 9:
        return _make_replicating(int(name[4:]))
    if name not in SCHEDULINGS:
        raise InputError(
            f"unknown scheduling policy '{name}'", where="scheduling", fix=", ".join(SCHEDULINGS)
        )
    return SCHEDULINGS[name]
