"""Hosts kept, given back and asked for by what the work has done so far: no knowledge of what will
come.

One rule, that of renting against buying: a host is worth having until the next work comes if the
time until then costs less than the wait to get it back, times the chance that it will be needed,
times ``patience``. With patience 1 an idle second of a host weighs as much as a second that work
waits for it; more patience buys speed with idle hosts. The same rule says which hosts to keep and
which to ask for ahead.

- *When does the next work come?* Where work came when all before it had ended (stages with
  barriers), once all there is has ended, and as long afterwards as it was so far; else after the
  mean time between arrivals. What is late by so much is believed to be late by as much again.
- *How many hosts will it need?* As many as one of the latest arrivals, or as the very latest, grown
  or shrunk as arrivals did from one to the next: each as likely as the others.
- One guess at a time: while hosts that were asked for are on their way, none is asked for ahead of
  work.
- For work that is there only as many are asked for as will still find some when they have come.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from vgrads.pool.acquire import Pace, toward
from vgrads.pool.release import before_the_end
from vgrads.pool.view import Decide, HostView, PoolDecision, PoolView, together

_KEPT = 9  # arrivals that are remembered: work changes its ways


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What work has done so far: the last arrivals with their sizes and whether all before had
    ended then, and how long it took from there."""

    sizes: tuple[int, ...] = ()
    at_s: tuple[float, ...] = ()
    ended_before: tuple[bool, ...] = ()
    pauses_s: tuple[float, ...] = ()
    arrived: int = 0
    ended: int = 0
    done_s: float | None = None


def learn(seen: Seen, view: PoolView) -> Seen:
    """What is known after a look. Work that comes before any of the latest has ended belongs to
    it."""
    ended = view.arrived - view.queued - view.running
    more = view.arrived - seen.arrived
    if more <= 0:
        done_s = seen.done_s
        if ended == view.arrived and ended > seen.ended:
            done_s = view.now_s
        return replace(seen, ended=ended, done_s=done_s)
    if seen.sizes and ended == seen.ended and seen.done_s is None:
        sizes = (*seen.sizes[:-1], seen.sizes[-1] + more)
        return replace(seen, sizes=sizes, arrived=view.arrived)
    after_all = ended >= seen.arrived
    since_s = view.now_s if seen.done_s is None else seen.done_s
    pauses_s = (*seen.pauses_s, view.now_s - since_s) if after_all and seen.sizes else seen.pauses_s
    return Seen(
        sizes=(*seen.sizes, more)[-_KEPT:],
        at_s=(*seen.at_s, view.now_s)[-_KEPT:],
        ended_before=(*seen.ended_before, after_all)[-_KEPT:],
        pauses_s=pauses_s[-_KEPT:],
        arrived=view.arrived,
        ended=ended,
        done_s=None,
    )


def next_work_s(seen: Seen, view: PoolView) -> float:
    """Seconds until more work is expected; ``inf`` before any has come."""
    if not seen.sizes:
        return math.inf
    barriers = sum(seen.ended_before[1:])
    if 2 * (barriers + 1) >= len(seen.ended_before) + 1:
        pause_s = fmean(seen.pauses_s) if seen.pauses_s else 0.0
        if seen.done_s is None:
            return _until_done_s(view) + pause_s
        return _going_on(view.now_s - seen.done_s, pause_s)
    between_s = (seen.at_s[-1] - seen.at_s[0]) / (len(seen.at_s) - 1)
    return _going_on(view.now_s - seen.at_s[-1], between_s)


def chances(seen: Seen, most: int) -> tuple[float, ...]:
    """How likely the next work needs at least 1, 2, … ``most`` hosts; never rising."""
    if not seen.sizes:
        return (0.0,) * most
    growth = [1.0, *(later / earlier for earlier, later in pairwise(seen.sizes))]
    sizes = [*seen.sizes, *(seen.sizes[-1] * rate for rate in growth)]
    return tuple(sum(size >= j - 1e-9 for size in sizes) / len(sizes) for j in range(1, most + 1))


def worth_having(seen: Seen, view: PoolView, patience: float) -> int:
    """How many hosts are worth having for the next work, by the rule above."""
    until_s = next_work_s(seen, view)
    found = chances(seen, view.limits.most)
    return sum(p > 0 and until_s <= patience * view.wait_s * p for p in found)


def look_ahead(
    seen: Seen,
    view: PoolView,
    patience: float = 1.0,
    policy: str = "all-at-once",
    pace: Pace = "at_once",
) -> PoolDecision:
    """What to ask for, take back and give back now; ``seen`` includes this look."""
    limits = view.limits
    ahead = worth_having(seen, view, patience)
    if view.asked:  # one guess at a time: what it was right about shows when its hosts have come
        ahead = min(ahead, len(view.staying) + view.coming)
    target = max(limits.least, min(limits.most, max(ahead, _useful(view))))
    spare = view.idle[: max(0, len(view.staying) - max(target, view.wanted))]
    given_back = PoolDecision()
    if spare:
        until_s = next_work_s(seen, view)
        reason = (
            f"gave back {len(spare)} hosts: more work is expected in {until_s:.0f} s, to "
            "get a host back takes "
            f"{view.wait_s:.0f} s, and {ahead} are worth keeping for it"
        )
        given_back = PoolDecision(drain=tuple(host.id for host in spare), reasons=(reason,))
    asked = toward(view, max(target, len(view.staying) - len(spare)), policy, pace)
    return together((asked, given_back, before_the_end(view)))


def _useful(view: PoolView) -> int:
    """Hosts that the work there is keeps busy, of new ones only those that will still find some
    when they come."""
    hosts = len(view.staying)
    over = view.queued + view.running - hosts  # what the hosts there are have not begun
    waves = math.floor(min(view.wait_s / view.task_s, max(over, 0))) if view.task_s > 0 else 0
    return hosts + max(0, over - waves * hosts) if over > 0 else view.running


def _until_done_s(view: PoolView) -> float:
    """Until all that is queued and runs has ended, on the hosts there are."""
    left_s = [_left_s(host, view) for host in view.hosts if host.busy_since_s is not None]
    if not view.queued:
        return max(left_s, default=0.0)
    waves = math.ceil(view.queued / max(1, len(view.staying)))
    return min(left_s, default=view.wait_s) + waves * view.task_s


def _left_s(host: HostView, view: PoolView) -> float:
    ran_s = view.now_s - (host.busy_since_s or 0.0)
    return _going_on(ran_s, view.task_s)


def _going_on(passed_s: float, expected_s: float) -> float:
    """What is left of something; what is late is believed to be late by as much again."""
    return abs(expected_s - passed_s)


def looking_ahead(patience: float = 3.0, policy: str = "all-at-once") -> Decide:
    """Look-ahead that learns from look to look; one for each site."""
    seen = Seen()

    def decide(view: PoolView) -> PoolDecision:
        nonlocal seen
        seen = learn(seen, view)
        return look_ahead(seen, view, patience, policy)

    return decide
