"""D8: how many workers, where a worker that is asked for comes later and the capacity is known but
roughly.

With U tasks unfinished, n workers there and W seconds until new ones come, those there will have
done n·W ÷ cycle tasks by then (within the capacity), more will have come if work keeps coming, and
a worker for whom nothing is left has come for nothing. So the size is the largest of these:

- ``min(connected, U, cap)``: who works goes on; who is beyond the work or the capacity goes;
- coming: requests stay as long as something would be left for them if they came early (one in ten
  does);
- new: more are asked for if, when half of them have come, a minute of work is left for each;
- kept: idle ones, as long as the time until more work comes costs less than the wait to get them
  back times the chance that they are needed (:mod:`vgrads.pool.lookahead`).

Between asking and withdrawing lies a gap on purpose, so that nothing swings. ``cap`` is the upper
end of the capacity's interval and a little, since at the capacity itself the manager has to wait
for workers as they vary. It rises at once, and falls only after it has been lower for a while, to
the highest that was told meanwhile. Where no task has ended, what the policy gives as default
counts, else a number that doubles every ``DOUBLE_S``; where all that ended has failed, three
workers are enough to find out why.

The constants were chosen on random work (``vgrads.research.pools.loads.other``, seeds 500 to 511),
not on the thesis's patterns; around what was chosen little changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from vgrads.pool.lookahead import learn, next_work_s, worth_having
from vgrads.pool.share import whole
from vgrads.pool.size_view import Memory, Sized, SizeView, term
from vgrads.pool.view import HostView, PoolLimits, PoolView

START, DOUBLE_S = 64, 60.0
"""Workers while no task has ended, and after how long it is twice as many."""
DWELL_S = 60.0
"""How long the upper end must have been lower before the cap falls."""
PATIENCE = 0.25
"""How many idle seconds of a worker a second of waiting for one is worth."""
SPARE = 0.25
"""Workers beyond the capacity, in its square roots, so that the manager has work while they
vary."""
WORTH_S = 60.0
"""A worker is asked for if so much work will be left for it when it comes: less is not worth its
start. Where workers come sooner, as much as it takes them to come."""
FAILING = 3
"""Workers while every task fails."""


def wait_aware(view: SizeView, memory: Memory) -> Sized:
    """D8, as above."""
    memory = _remembered(view, memory)
    name, most = _cap(view, memory)
    cap, work = (name, most), ("work", view.unfinished)
    there = ("connected", view.connected)
    return Sized(
        (
            term("there", view, there, work, cap),
            term("coming", view, ("of use when they come", _useful(view, memory, most)), cap),
            term(
                "new", view, ("of use when asked for now", _worth_asking(view, memory, most)), cap
            ),
            term("kept", view, ("idle worth keeping", _kept(view, memory)), there, cap),
        ),
        memory,
    )


def _worth_asking(view: SizeView, memory: Memory, cap: int) -> int:
    """Workers there and on their way, and as many more as will find enough to do, chance
    fluctuations left out."""
    sure = view.connected + view.coming
    expected = _expected(view, memory, view.wait_s)
    done = _done(view, view.wait_s, cap, view.asked)
    left = view.unfinished + expected - done - _chance(expected, done)
    if left <= sure or not view.cycle_s:
        return left
    worth_s = min(WORTH_S, view.wait_s)
    return sure + math.ceil((left - sure) * min(1.0, view.cycle_s / max(worth_s, view.cycle_s)))


def _chance(expected: int, done: int) -> int:
    """By how much work that comes and goes at random differs from what is expected."""
    return math.floor(math.sqrt(expected + done)) if expected else 0


def _cap(view: SizeView, memory: Memory) -> tuple[str, int]:
    """The most that the manager is believed to keep busy."""
    if view.failing:
        return "all tasks fail", FAILING
    if memory.cap is not None:
        return "cap", memory.cap
    if view.default_capacity is not None:
        return "default capacity", whole(view.default_capacity)
    doubled = (view.now_s - (memory.begun_s or 0.0)) / DOUBLE_S
    return "not known yet", whole(START * 2.0 ** min(doubled, 30.0))


def _remembered(view: SizeView, memory: Memory) -> Memory:
    begun_s = view.now_s if memory.begun_s is None and view.unfinished else memory.begun_s
    memory = replace(memory, seen=learn(memory.seen, _pool_view(view)), begun_s=begun_s)
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


def _done(view: SizeView, until_s: float, cap: int, asked: Sequence[tuple[float, int]] = ()) -> int:
    """Tasks that those there end until then, and those asked for from when they are believed to
    come; what is late is believed to be late by as much again."""
    if not view.cycle_s:
        return 0
    worked_s = view.connected * until_s
    for since_s, workers in asked:
        worked_s += workers * max(0.0, until_s - abs(view.wait_s - (view.now_s - since_s)))
    return math.floor(min(worked_s, cap * until_s) / view.cycle_s)


def _expected(view: SizeView, memory: Memory, within_s: float) -> int:
    """Tasks that will have come by then, if they go on coming as they did while others still wait;
    what is late for twice as long as usual is believed to have ended, and after stages nothing
    comes before all has ended."""
    seen = memory.seen
    if (
        not view.waiting
        or len(seen.sizes) < 3
        or 2 * sum(seen.ended_before[1:]) >= len(seen.ended_before)
    ):
        return 0
    span_s = seen.at_s[-1] - seen.at_s[0]
    if span_s <= 0.0 or view.now_s - seen.at_s[-1] > 2.0 * span_s / (len(seen.sizes) - 1):
        return 0
    return math.floor(within_s * sum(seen.sizes[1:]) / span_s)


def _useful(view: SizeView, memory: Memory, cap: int) -> int:
    """Workers there, and those on their way for whom something would be left if they came soon."""
    found = view.connected
    for since_s, workers in sorted(view.asked):
        soon_s = max(0.0, view.wait_low_s - (view.now_s - since_s))
        expected, done = _expected(view, memory, soon_s), _done(view, soon_s, cap)
        left = view.unfinished + expected - done + _chance(expected, done) - found
        found += max(0, min(workers, left))
    return found if found > view.connected else 0


def _kept(view: SizeView, memory: Memory) -> int:
    """Workers worth keeping for work that comes: beside those that will still work then."""
    if not view.idle or view.waiting or len(memory.seen.sizes) < 2:
        return 0  # after one arrival nobody knows whether there will be another
    now = _pool_view(view)
    kept = worth_having(memory.seen, now, PATIENCE)
    return kept + (view.running if next_work_s(memory.seen, now) < (view.cycle_s or 0.0) else 0)


def _pool_view(view: SizeView) -> PoolView:
    """For the look-ahead; the tasks that run are believed to take as long again as one takes."""
    host = HostView(id="", allocation="", joined_s=0.0, busy_since_s=view.now_s)
    return PoolView(
        now_s=view.now_s,
        queued=view.waiting,
        running=view.running,
        arrived=view.arrived,
        limits=PoolLimits(most=max(1, view.connected)),
        hosts=(host,) if view.running else (),
        wait_s=view.wait_s,
        task_s=view.cycle_s or 0.0,
    )
