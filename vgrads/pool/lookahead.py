"""Look-ahead: nodes are kept, released and requested by the history of the work, without knowledge
of future work.

One rule, that of renting against buying: a node is worth keeping until the next work arrives if the
time until then costs less than the wait to get it back, times the probability that it will be
needed, times ``patience``. With patience 1 an idle second of a node weighs as much as a second that
work waits for it; more patience buys speed with idle nodes. The same rule determines which nodes to
keep and which to request ahead.

- *When does the next work arrive?* Where work arrived when all before it had ended (stages with
  barriers), once all current work has ended, and as long afterwards as before; else after the mean
  time between arrivals. Late arrivals are expected to be late by as much again.
- *How many nodes will it need?* As many as one of the latest arrivals, or as the very latest, grown
  or shrunk as arrivals did from one to the next: each equally probable.
- One prediction at a time: while requested nodes have not joined, none is requested ahead of work.
- For current work only as many nodes are requested as will still find some when they have joined.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from vgrads.kernel.units import format_count
from vgrads.pool.acquire import Pace, toward
from vgrads.pool.release import before_the_end
from vgrads.pool.view import Decide, NodeView, PoolDecision, PoolView, merge_decisions

_MAX_ARRIVALS = 9  # arrivals that are remembered: the pattern may change


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalHistory:
    """History of the work: the last arrivals with their sizes, whether all earlier work had ended
    then, and the delay after that."""

    sizes: tuple[int, ...] = ()
    at_s: tuple[float, ...] = ()
    ended_before: tuple[bool, ...] = ()
    pauses_s: tuple[float, ...] = ()
    arrived: int = 0
    ended: int = 0
    done_s: float | None = None


def learn(history: ArrivalHistory, view: PoolView) -> ArrivalHistory:
    """Return the history after a check. Work that arrives before any of the latest has ended
    belongs to it."""
    ended = view.arrived - view.queued - view.running
    more = view.arrived - history.arrived
    if more <= 0:
        done_s = history.done_s
        if ended == view.arrived and ended > history.ended:
            done_s = view.now_s
        return replace(history, ended=ended, done_s=done_s)
    if history.sizes and ended == history.ended and history.done_s is None:
        sizes = (*history.sizes[:-1], history.sizes[-1] + more)
        return replace(history, sizes=sizes, arrived=view.arrived)
    after_all = ended >= history.arrived
    since_s = view.now_s if history.done_s is None else history.done_s
    pauses_s = (
        (*history.pauses_s, view.now_s - since_s)
        if after_all and history.sizes
        else history.pauses_s
    )
    return ArrivalHistory(
        sizes=(*history.sizes, more)[-_MAX_ARRIVALS:],
        at_s=(*history.at_s, view.now_s)[-_MAX_ARRIVALS:],
        ended_before=(*history.ended_before, after_all)[-_MAX_ARRIVALS:],
        pauses_s=pauses_s[-_MAX_ARRIVALS:],
        arrived=view.arrived,
        ended=ended,
        done_s=None,
    )


def estimate_next_work_s(history: ArrivalHistory, view: PoolView) -> float:
    """Return the seconds until more work is expected; ``inf`` before the first arrival."""
    if not history.sizes:
        return math.inf
    barriers = sum(history.ended_before[1:])
    # at least half of the arrivals after the first followed the end of all earlier work
    if 2 * (barriers + 1) >= len(history.ended_before) + 1:
        pause_s = fmean(history.pauses_s) if history.pauses_s else 0.0
        if history.done_s is None:
            return _estimate_until_done_s(view) + pause_s
        return _estimate_remaining(view.now_s - history.done_s, pause_s)
    between_s = (history.at_s[-1] - history.at_s[0]) / (len(history.at_s) - 1)
    return _estimate_remaining(view.now_s - history.at_s[-1], between_s)


def estimate_chances(history: ArrivalHistory, most: int) -> tuple[float, ...]:
    """Return the probability that the next work needs at least 1, 2, … ``most`` nodes; never
    rising."""
    if not history.sizes:
        return (0.0,) * most
    growth = [1.0, *(later / earlier for earlier, later in pairwise(history.sizes))]
    # the next size may be any earlier one, or differ from the last as others did before
    sizes = [*history.sizes, *(history.sizes[-1] * rate for rate in growth)]
    return tuple(sum(size >= j - 1e-9 for size in sizes) / len(sizes) for j in range(1, most + 1))


def count_worth_having(history: ArrivalHistory, view: PoolView, patience: float) -> int:
    """Return how many nodes are worth keeping for the next work, by the rule above."""
    until_s = estimate_next_work_s(history, view)
    values = estimate_chances(history, view.limits.most)
    return sum(p > 0 and until_s <= patience * view.wait_s * p for p in values)


def look_ahead(
    history: ArrivalHistory,
    view: PoolView,
    patience: float = 1.0,
    policy: str = "all-at-once",
    pace: Pace = "at_once",
) -> PoolDecision:
    """Return the nodes to request, the requests to cancel and the nodes to release; ``history``
    includes this check."""
    limits = view.limits
    ahead = count_worth_having(history, view, patience)
    if view.requests:  # one prediction at a time, until its nodes have joined
        ahead = min(ahead, len(view.staying) + view.coming)
    target = max(limits.least, min(limits.most, max(ahead, _count_useful(view))))
    spare = view.idle[: max(0, len(view.staying) - max(target, view.demand))]
    released = PoolDecision()
    if spare:
        until_s = estimate_next_work_s(history, view)
        reason = (
            f"released {format_count(len(spare), 'agent')}: more work is expected in "
            f"{until_s:.0f} s, a new "
            "agent takes "
            f"{view.wait_s:.0f} s to start, and {ahead} are worth keeping for it"
        )
        released = PoolDecision(drain=tuple(node.id for node in spare), reasons=(reason,))
    requested = toward(view, max(target, len(view.staying) - len(spare)), policy, pace)
    return merge_decisions((requested, released, before_the_end(view)))


def _count_useful(view: PoolView) -> int:
    """Return the nodes that the current work keeps busy; of new ones only those that will still
    find some when they join."""
    nodes = len(view.staying)
    over = view.queued + view.running - nodes  # work not started on the current nodes
    waves = math.floor(min(view.wait_s / view.task_s, max(over, 0))) if view.task_s > 0 else 0
    return nodes + max(0, over - waves * nodes) if over > 0 else view.running


def _estimate_until_done_s(view: PoolView) -> float:
    """Return the time until all queued and running work has ended, on the current nodes."""
    left_s = [_estimate_left_s(node, view) for node in view.nodes if node.busy_since_s is not None]
    if not view.queued:
        return max(left_s, default=0.0)
    waves = math.ceil(view.queued / max(1, len(view.staying)))
    return min(left_s, default=view.wait_s) + waves * view.task_s


def _estimate_left_s(node: NodeView, view: PoolView) -> float:
    ran_s = view.now_s - (node.busy_since_s or 0.0)
    return _estimate_remaining(ran_s, view.task_s)


def _estimate_remaining(elapsed_s: float, expected_s: float) -> float:
    """Return the remaining time; a late event is expected to be late by as much again."""
    return abs(expected_s - elapsed_s)


def make_look_ahead(patience: float = 3.0, policy: str = "all-at-once") -> Decide:
    """Return a look-ahead decider that learns from check to check; one for each site."""
    history = ArrivalHistory()

    def decide(view: PoolView) -> PoolDecision:
        nonlocal history
        history = learn(history, view)
        return look_ahead(history, view, patience, policy)

    return decide
