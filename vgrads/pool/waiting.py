"""D8: the number of workers where requested ones join later and the capacity is only estimated.

With U tasks unfinished, n current workers and W seconds until new ones join, the current ones will
have done n·W ÷ cycle tasks by then (within the capacity), more will have arrived if work keeps
arriving, and a worker for which none is left is useless. So the size is the largest of these:

- ``min(connected, U, cap)``: working ones continue; those beyond the work or the capacity are
  released;
- requested: requests stay as long as work would be left for them if they joined early (one in ten
  does);
- new: more are requested if, when half of them have joined, a minute of work is left for each;
- kept: idle ones, as long as the time until more work arrives costs less than the wait to get them
  back times the probability that they are needed (:mod:`vgrads.pool.lookahead`).

There is a gap between requesting and cancelling, to prevent oscillation. ``cap`` is the upper end
of the capacity's interval and a little more, since at the capacity itself the manager has to wait
for workers as they vary. It rises at once, and falls only after it has been lower for a while, to
the highest value in that time. Where no task has ended, the policy's default applies, else a number
that doubles every ``DOUBLE_S``; where all ended tasks have failed, three workers are enough to find
the cause.

The constants were chosen on random work (``vgrads_studies.pools.loads.other``, seeds 500 to 511),
not on the thesis's patterns; near the chosen values the results change little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from vgrads.pool.lookahead import count_worth_having, estimate_next_work_s, learn
from vgrads.pool.share import whole
from vgrads.pool.size_view import Memory, SizeView, SizingResult, term
from vgrads.pool.view import NodeView, PoolLimits, PoolView

START, DOUBLE_S = 64, 60.0
"""Workers while no task has ended, and the time in which the number doubles."""
DWELL_S = 60.0
"""How long the upper end must have been lower before the cap falls, in seconds."""
PATIENCE = 0.25
"""How many idle seconds of a worker a second of waiting for one is worth."""
SPARE = 0.25
"""Workers beyond the capacity, in multiples of its square root, so that the manager has work while
they vary."""
WORTH_S = 60.0
"""A worker is requested if this much work will be left for it when it joins: less is not worth its
start. Where workers join sooner, as much as they take to join."""
FAILING = 3
"""Workers while every task fails."""


def wait_aware(view: SizeView, memory: Memory) -> SizingResult:
    """Sizing policy D8, see above."""
    memory = _remember_view(view, memory)
    name, most = _cap(view, memory)
    cap, work = (name, most), ("work", view.unfinished)
    there = ("connected", view.connected)
    return SizingResult(
        (
            term("there", view, there, work, cap),
            term(
                "coming", view, ("useful when they start", _count_useful(view, memory, most)), cap
            ),
            term(
                "new",
                view,
                ("useful if requested now", _add_worthwhile(view, memory, most)),
                cap,
            ),
            term(
                "kept",
                view,
                ("idle worth keeping", _count_workers_to_keep(view, memory)),
                there,
                cap,
            ),
        ),
        memory,
    )


def _add_worthwhile(view: SizeView, memory: Memory, cap: int) -> int:
    """Return current and requested workers, and as many more as will find enough work, random
    fluctuations excluded."""
    sure = view.connected + view.coming
    expected = _estimate_expected(view, memory, view.wait_s)
    done = _estimate_done(view, view.wait_s, cap, view.requests)
    left = view.unfinished + expected - done - _estimate_randomness(expected, done)
    if left <= sure or not view.cycle_s:
        return left
    worth_s = min(WORTH_S, view.wait_s)
    # a worker takes as many of the remaining tasks as fit into `worth_s`
    return sure + math.ceil((left - sure) * min(1.0, view.cycle_s / max(worth_s, view.cycle_s)))


def _estimate_randomness(expected: int, done: int) -> int:
    """Return by how much randomly arriving and ending work differs from the expected amount."""
    # the standard deviation of independent arrivals and ends
    return math.floor(math.sqrt(expected + done)) if expected else 0


def _cap(view: SizeView, memory: Memory) -> tuple[str, int]:
    """Return the estimated maximum of workers that the manager can keep busy."""
    if view.failing:
        return "all tasks fail", FAILING
    if memory.cap is not None:
        return "cap", memory.cap
    if view.default_capacity is not None:
        return "default capacity", whole(view.default_capacity)
    doubled = (view.now_s - (memory.begun_s or 0.0)) / DOUBLE_S
    # after 30 doublings no pool has so many, and the power of a long time would overflow
    return "not known yet", whole(START * 2.0 ** min(doubled, 30.0))


def _remember_view(view: SizeView, memory: Memory) -> Memory:
    begun_s = view.now_s if memory.begun_s is None and view.unfinished else memory.begun_s
    memory = replace(
        memory, arrivals=learn(memory.arrivals, _make_pool_view(view)), begun_s=begun_s
    )
    if view.capacity is None:
        return memory
    high = whole(view.capacity.high + SPARE * math.sqrt(view.capacity.high))
    if memory.cap is None or high >= memory.cap:
        return replace(memory, cap=high, below_s=None, peak=0)
    since_s = view.now_s if memory.below_s is None else memory.below_s
    peak = max(memory.peak, high)
    if view.now_s - since_s >= DWELL_S:
        return replace(memory, cap=peak, below_s=None, peak=0)
    return replace(memory, below_s=since_s, peak=peak)


def _estimate_done(
    view: SizeView, until_s: float, cap: int, requested: Sequence[tuple[float, int]] = ()
) -> int:
    """Return the tasks that current workers end until then, and requested ones from their expected
    arrival; late ones are expected to be late by as much again."""
    if not view.cycle_s:
        return 0
    worked_s = view.connected * until_s
    for since_s, workers in requested:
        worked_s += workers * max(0.0, until_s - abs(view.wait_s - (view.now_s - since_s)))
    return math.floor(min(worked_s, cap * until_s) / view.cycle_s)


def _estimate_expected(view: SizeView, memory: Memory, within_s: float) -> int:
    """Return the tasks that will have arrived by then, if arrivals continue as they did while
    others still waited; arrivals that are late for twice the usual time are assumed to have ceased,
    and after stages none arrive before all has ended."""
    history = memory.arrivals
    # half of the arrivals or more came when all before them had ended: the work comes in stages
    if (
        not view.waiting
        or len(history.sizes) < 3
        or 2 * sum(history.ended_before[1:]) >= len(history.ended_before)
    ):
        return 0
    span_s = history.at_s[-1] - history.at_s[0]
    if span_s <= 0.0 or view.now_s - history.at_s[-1] > 2.0 * span_s / (len(history.sizes) - 1):
        return 0
    return math.floor(within_s * sum(history.sizes[1:]) / span_s)


def _count_useful(view: SizeView, memory: Memory, cap: int) -> int:
    """Return current workers, and requested ones for which work would be left if they joined
    soon."""
    count = view.connected
    for since_s, workers in sorted(view.requests):
        soon_s = max(0.0, view.wait_low_s - (view.now_s - since_s))
        expected, done = _estimate_expected(view, memory, soon_s), _estimate_done(view, soon_s, cap)
        left = view.unfinished + expected - done + _estimate_randomness(expected, done) - count
        count += max(0, min(workers, left))
    return count if count > view.connected else 0


def _count_workers_to_keep(view: SizeView, memory: Memory) -> int:
    """Return workers worth keeping for future work, in addition to those that will still be busy
    then."""
    if not view.idle or view.waiting or len(memory.arrivals.sizes) < 2:
        return 0  # one arrival does not predict another
    now = _make_pool_view(view)
    useful = count_worth_having(memory.arrivals, now, PATIENCE)
    return useful + (
        view.running if estimate_next_work_s(memory.arrivals, now) < (view.cycle_s or 0.0) else 0
    )


def _make_pool_view(view: SizeView) -> PoolView:
    """Return the view for the look-ahead; running tasks are expected to take one more full run
    time."""
    node = NodeView(id="", allocation="", joined_s=0.0, busy_since_s=view.now_s)
    return PoolView(
        now_s=view.now_s,
        queued=view.waiting,
        running=view.running,
        arrived=view.arrived,
        limits=PoolLimits(most=max(1, view.connected)),
        nodes=(node,) if view.running else (),
        wait_s=view.wait_s,
        task_s=view.cycle_s or 0.0,
    )
