"""How many workers one manager should have: Yu's D1 to D7 (PhD thesis, Notre Dame 2013, §4.4.4, Eq
4.16–4.22), the rules of today's tools, and ours. One table, each a pure function of what is seen
and of what it remembers.

Every answer is the largest of some terms, each the least of some named numbers, so that it says by
itself why it is what it is: "40 = min(work 500, capacity 40)".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from vgrads.pool.share import whole
from vgrads.pool.size_view import Memory, Sized, SizeView, term
from vgrads.pool.waiting import wait_aware

Size = Callable[[SizeView, Memory], Sized]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """A policy and what goes with it. ``idle_s``: a worker that had nothing to do for so long
    leaves by itself, or before a billing boundary (``billing``). ``gives_back``: requests and idle
    workers beyond the size are taken back; else workers only leave by themselves. ``paced``: the
    policy's ``max_change`` holds."""

    size: Size
    idle_s: float = 120.0
    gives_back: bool = False
    billing: bool = False
    paced: bool = False


def _thesis(capacity: bool, default: bool, change: bool) -> Size:
    def size(view: SizeView, memory: Memory) -> Sized:
        bounds = [("work", view.unfinished)]
        if capacity and view.capacity is not None:
            bounds.append(("capacity", whole(view.capacity.value)))
        elif capacity and default and view.default_capacity is not None:
            bounds.append(("default capacity", whole(view.default_capacity)))
        if change and view.max_change is not None:
            grown = math.floor(view.max_change * view.elapsed_s / 60.0 + 1e-9)
            bounds.append(("change", view.previous + grown))
        return Sized((term("size", view, *bounds),), memory)

    return size


def _work_queue_factory(view: SizeView, memory: Memory) -> Sized:
    """Every 30 s all tasks that are left, at most the capacity (10 while unknown, never less), at
    most 5 that have not yet connected (manual pages of work_queue_factory, ``-c``)."""
    if memory.recent and view.now_s - memory.recent[-1][0] < 30.0 - 1e-9:
        return Sized((term("as before", view, ("decided", memory.recent[-1][1])),), memory)
    capacity = 10 if view.capacity is None else max(10, math.ceil(view.capacity.value - 1e-9))
    bounds = (("work", view.unfinished), ("capacity", capacity), ("to connect", view.connected + 5))
    sized = Sized((term("size", view, *bounds),), memory)
    return replace(sized, memory=replace(memory, recent=((view.now_s, sized.workers),)))


def _hyperqueue(view: SizeView, memory: Memory) -> Sized:
    """One allocation waits in the queue as long as tasks wait that no worker is free for (backlog
    1)."""
    lacking = view.waiting > view.idle
    there = view.connected + max(view.coming, int(lacking))
    return Sized((term("size", view, ("backlog", there)),), memory)


def _dask_adaptive(view: SizeView, memory: Memory) -> Sized:
    """Work that ends in 5 s, at most one worker a task; a task that was never seen takes .5 s;
    fewer only after three equal votes (distributed's ``Adaptive``)."""
    seconds = view.unfinished * (0.5 if view.execution_s is None else view.execution_s)
    wanted = min(view.unfinished, math.ceil(seconds / 5.0), view.max_workers)
    there = view.connected + view.coming
    votes = 1 + (memory.recent[-1][1] if memory.recent else 0) if wanted < there else 0
    terms = [term("target", view, ("work in 5 s", wanted), ("work", view.unfinished))]
    if 0 < votes < 3:
        terms.append(term("not yet fewer", view, ("there", there)))
    return Sized(tuple(terms), replace(memory, recent=((view.now_s, votes),)))


def _parsl(view: SizeView, memory: Memory) -> Sized:
    """As many slots as tasks, those on their way counted (strategy ``simple``, parallelism 1)."""
    return Sized((term("size", view, ("work", view.unfinished)),), memory)


def _kubernetes(view: SizeView, memory: Memory) -> Sized:
    """One task a worker, nothing within a tenth of that; up by doubling or by 4, down to the most
    of the last 300 s (HorizontalPodAutoscaler)."""
    now = view.connected + view.coming
    near = now > 0 and abs(view.unfinished / now - 1.0) <= 0.1
    wanted = now if near else view.unfinished
    recent = (*(one for one in memory.recent if view.now_s - one[0] <= 300.0), (view.now_s, wanted))
    highest = max(workers for _, workers in recent)
    return Sized(
        (
            term("up", view, ("work", wanted), ("doubled", max(2 * now, now + 4))),
            term("not yet down", view, ("most of 300 s", highest), ("there", now)),
        ),
        replace(memory, recent=recent),
    )


SIZINGS: Mapping[str, Sizing] = {
    "d1": Sizing(size=_thesis(False, False, False)),
    "d2": Sizing(size=_thesis(False, False, True), paced=True),
    "d3": Sizing(size=_thesis(True, False, False)),
    "d4": Sizing(size=_thesis(True, True, False)),
    "d5": Sizing(size=_thesis(True, False, True), paced=True),
    "d6": Sizing(size=_thesis(True, True, True), paced=True),
    "d7": Sizing(size=_thesis(True, True, True), paced=True, billing=True),
    "work-queue-factory": Sizing(size=_work_queue_factory, idle_s=300.0),
    "hyperqueue": Sizing(size=_hyperqueue, idle_s=300.0),
    "dask-adaptive": Sizing(size=_dask_adaptive, idle_s=math.inf, gives_back=True),
    "parsl": Sizing(size=_parsl),
    "kubernetes": Sizing(size=_kubernetes, idle_s=math.inf, gives_back=True),
    "d8": Sizing(size=wait_aware, idle_s=math.inf, gives_back=True, paced=True),
}


def size(policy: str, view: SizeView, memory: Memory) -> Sized:
    """How many workers, why, and what is to be remembered until the next time."""
    return SIZINGS[policy].size(view, memory)
