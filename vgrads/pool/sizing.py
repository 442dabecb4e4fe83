"""Sizing policies, the number of workers for one manager: Yu's D1 to D7 (PhD thesis, Notre Dame
2013, §4.4.4, Eq 4.16–4.22), the rules of today's tools, and ours. One table, each a pure function
of its view and its memory.

Every result is the maximum of some terms, each the minimum of some named numbers, so that it
explains itself: "40 = min(work 500, capacity 40)".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from vgrads.pool.share import whole
from vgrads.pool.size_view import Memory, SizeView, SizingResult, term
from vgrads.pool.waiting import wait_aware

Size = Callable[[SizeView, Memory], SizingResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """A sizing policy and its rules of release. ``idle_s``: idle time after which a worker leaves,
    or before a billing boundary (``billing``). ``gives_back``: requests and idle workers beyond the
    size are cancelled and released; else workers only leave by themselves. ``paced``: the policy's
    ``max_change`` applies."""

    size: Size
    idle_s: float = 120.0
    gives_back: bool = False
    billing: bool = False
    paced: bool = False


def _make_thesis_policy(capacity: bool, default: bool, change: bool) -> Size:
    def size(view: SizeView, memory: Memory) -> SizingResult:
        bounds = [("work", view.unfinished)]
        if capacity and view.capacity is not None:
            bounds.append(("capacity", whole(view.capacity.value)))
        elif capacity and default and view.default_capacity is not None:
            bounds.append(("default capacity", whole(view.default_capacity)))
        if change and view.max_change is not None:
            grown = math.floor(view.max_change * view.elapsed_s / 60.0 + 1e-9)
            bounds.append(("change", view.previous + grown))
        return SizingResult((term("size", view, *bounds),), memory)

    return size


def _size_work_queue_factory(view: SizeView, memory: Memory) -> SizingResult:
    """Every 30 s all remaining tasks, at most the capacity (10 while unknown, never less), at most
    5 that have not yet connected (manual pages of work_queue_factory, ``-c``)."""
    # memory.recent holds one pair here: instant and workers of the last decision
    if memory.recent and view.now_s - memory.recent[-1][0] < 30.0 - 1e-9:
        return SizingResult((term("as before", view, ("decided", memory.recent[-1][1])),), memory)
    capacity = 10 if view.capacity is None else max(10, math.ceil(view.capacity.value - 1e-9))
    bounds = (("work", view.unfinished), ("capacity", capacity), ("to connect", view.connected + 5))
    sized = SizingResult((term("size", view, *bounds),), memory)
    return replace(sized, memory=replace(memory, recent=((view.now_s, sized.workers),)))


def _size_hyperqueue(view: SizeView, memory: Memory) -> SizingResult:
    """One allocation waits in the queue as long as tasks wait without a free worker (backlog 1)."""
    lacking = view.waiting > view.idle
    there = view.connected + max(view.coming, int(lacking))
    return SizingResult((term("size", view, ("backlog", there)),), memory)


def _size_dask_adaptive(view: SizeView, memory: Memory) -> SizingResult:
    """Work that ends in 5 s, at most one worker per task; a task of unknown run time counts .5 s;
    fewer only after three equal votes (distributed's ``Adaptive``)."""
    seconds = view.unfinished * (0.5 if view.execution_s is None else view.execution_s)
    target = min(view.unfinished, math.ceil(seconds / 5.0), view.max_workers)
    there = view.connected + view.coming
    # memory.recent holds one pair here: instant and equal votes so far
    votes = 1 + (memory.recent[-1][1] if memory.recent else 0) if target < there else 0
    terms = [term("target", view, ("work in 5 s", target), ("work", view.unfinished))]
    if 0 < votes < 3:
        terms.append(term("not yet fewer", view, ("there", there)))
    return SizingResult(tuple(terms), replace(memory, recent=((view.now_s, votes),)))


def _size_parsl(view: SizeView, memory: Memory) -> SizingResult:
    """As many slots as tasks, including requested ones (strategy ``simple``, parallelism 1)."""
    return SizingResult((term("size", view, ("work", view.unfinished)),), memory)


def _size_kubernetes(view: SizeView, memory: Memory) -> SizingResult:
    """One task per worker, no change within a tenth of that; up by doubling or by 4, down to the
    maximum of the last 300 s (HorizontalPodAutoscaler)."""
    now = view.connected + view.coming
    near = now > 0 and abs(view.unfinished / now - 1.0) <= 0.1
    target = now if near else view.unfinished
    recent = (
        *(item for item in memory.recent if view.now_s - item[0] <= 300.0),
        (view.now_s, target),
    )
    highest = max(workers for _, workers in recent)
    return SizingResult(
        (
            term("up", view, ("work", target), ("doubled", max(2 * now, now + 4))),
            term("not yet down", view, ("most of 300 s", highest), ("there", now)),
        ),
        replace(memory, recent=recent),
    )


SIZINGS: Mapping[str, Sizing] = {
    "d1": Sizing(size=_make_thesis_policy(False, False, False)),
    "d2": Sizing(size=_make_thesis_policy(False, False, True), paced=True),
    "d3": Sizing(size=_make_thesis_policy(True, False, False)),
    "d4": Sizing(size=_make_thesis_policy(True, True, False)),
    "d5": Sizing(size=_make_thesis_policy(True, False, True), paced=True),
    "d6": Sizing(size=_make_thesis_policy(True, True, True), paced=True),
    "d7": Sizing(size=_make_thesis_policy(True, True, True), paced=True, billing=True),
    "work-queue-factory": Sizing(size=_size_work_queue_factory, idle_s=300.0),
    "hyperqueue": Sizing(size=_size_hyperqueue, idle_s=300.0),
    "dask-adaptive": Sizing(size=_size_dask_adaptive, idle_s=math.inf, gives_back=True),
    "parsl": Sizing(size=_size_parsl),
    "kubernetes": Sizing(size=_size_kubernetes, idle_s=math.inf, gives_back=True),
    "d8": Sizing(size=wait_aware, idle_s=math.inf, gives_back=True, paced=True),
}


def size(policy: str, view: SizeView, memory: Memory) -> SizingResult:
    """Return the number of workers, the reasons, and the memory for the next call."""
    return SIZINGS[policy].size(view, memory)
