"""History of a node: failure rate, run times, and the odds that it is a black hole.

A black hole fails every task at once, and so draws all the work (GridBot, section 2.2 and 7). It is
distinguished from a bag, or a task, that fails everywhere by the results of other nodes on the same
work.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp2, log
from struct import Struct
from typing import NamedTuple

from vgrads.kernel.backoff import Backoff

_SINGLES = Struct("<2f")
DAY_S = 86400.0
_PRIOR_WRONG, _PRIOR_DONE = 0.1, 1.9  # Beta: one in twenty, weight of two results
_KEEP = 1.0 - 1.0 / 200.0  # decay of earlier results per new one
_HALF_S = 2 * DAY_S  # and time
_BLACK_HOLE_PRIOR = log(0.05 / 0.95)  # one node in twenty, before any results
_FAILS = 0.95  # failure probability of a black hole
_LEAST = 0.05  # least failure probability of a healthy node
QUARANTINE_AT = log(50.0)
"""Black-hole odds at which a node is quarantined: never before its third consecutive failure."""
MAX_QUICK_FAILURES = 8
_QUARANTINES = Backoff(30.0, 300.0)
NEVER = float("-inf")

QuickFailure = tuple[int, int]
"""A task that failed quickly: its bag's number and its own."""


class NodeHistory(NamedTuple):
    """History of a machine over all its slots. ``done`` and ``wrong``: aged counts of results;
    ``quick_failures``: quick failures since its last success, the longest of which took
    ``longest_s``; ``pauses``: how often it was quarantined since; times in seconds of the
    dispatcher's clock."""

    done: float = 0.0
    wrong: float = 0.0
    at_s: float = 0.0
    turnaround_s: float = 0.0
    day: int = -1
    today: int = 0
    last_done_s: float = NEVER
    quick_failures: tuple[QuickFailure, ...] = ()
    longest_s: float = 0.0
    pauses: int = 0
    quarantined_until_s: float = NEVER

    @property
    def credible(self) -> bool:
        """Return True where its failures are evidence about the work: it does not fail all
        tasks."""
        return self.done > 0.0 and len(self.quick_failures) < 2

    @property
    def error_rate(self) -> float:
        """Return the estimated share of failed attempts: the mean of a Beta posterior, aged."""
        wrong = self.wrong + _PRIOR_WRONG
        return wrong / (wrong + self.done + _PRIOR_DONE)

    def jobs_today(self, now_s: float) -> int:
        """Return the number of attempts that succeeded since the dispatcher's day began."""
        return self.today if int(now_s // DAY_S) == self.day else 0

    def lately(self, now_s: float) -> bool:
        """Return True where an attempt succeeded within a day."""
        return now_s - self.last_done_s <= DAY_S


def record_success(record: NodeHistory, at_s: float, turnaround_s: float) -> NodeHistory:
    """Return the record after a success, which clears all suspicion."""
    # by position, and without _replace() and min(): it runs for every result of every node
    done, wrong, last_s, before_s, before, today = record[:6]
    keep = _KEEP if last_s == at_s else _KEEP * exp2(min(0.0, last_s - at_s) / _HALF_S)
    day = int(at_s // DAY_S)
    before_s += (turnaround_s - before_s) / (1.0 + (done if done < 20.0 else 20.0))
    today = today + 1 if day == before else 1
    return NodeHistory(done * keep + 1.0, wrong * keep, at_s, before_s, day, today, at_s)


def record_failure(
    record: NodeHistory, at_s: float, quick_failure: QuickFailure | None, ran_s: float
) -> NodeHistory:
    """Return the record after a failure. ``quick_failure``: set for a quick one. An agent that
    leaves or is preempted has not failed."""
    keep = _KEEP * exp2(min(0.0, record.at_s - at_s) / _HALF_S)
    quick_failures = (
        record.quick_failures
        if quick_failure is None or quick_failure in record.quick_failures
        else (*record.quick_failures, quick_failure)
    )
    return record._replace(
        done=record.done * keep,
        wrong=record.wrong * keep + 1.0,
        at_s=at_s,
        quick_failures=quick_failures[-MAX_QUICK_FAILURES:],
        longest_s=max(record.longest_s, ran_s) if quick_failure else record.longest_s,
    )


def is_quick(ran_s: float, typical_s: float | None) -> bool:
    """Return True for a failure long before the work could have been done.

    Compared in single precision, as stored in a journal: a replay must give the same result.
    """
    if typical_s is None:
        return True
    ran, half = _SINGLES.unpack(_SINGLES.pack(ran_s, max(1.0, typical_s / 2)))
    return bool(ran < half)


def estimate_probability_healthy(elsewhere: float, wrong: float, same_task: int) -> float:
    """Return the probability that a healthy node fails on a task. ``elsewhere``: attempts at the
    bag's tasks that succeeded, or have run longer than they took to fail here; ``wrong``: attempts
    that failed on other nodes which do not fail all tasks; ``same_task``: failures of this task on
    such nodes."""
    bag = (wrong + 0.25) / (wrong + elsewhere + 0.5)
    return max(_LEAST, bag, same_task / (same_task + 1.0))


def estimate_black_hole_odds(chances: Sequence[float]) -> float:
    """Return the log odds that a node is a black hole, from the probability of each of its failures
    on a healthy node (Bayes)."""
    return _BLACK_HOLE_PRIOR + sum(log(_FAILS / chance) for chance in chances)


def record_quarantine(record: NodeHistory, at_s: float) -> NodeHistory:
    """Return the record after a quarantine: longer each time, until a probe succeeds."""
    until_s = at_s + _QUARANTINES.pause_s(record.pauses)
    return record._replace(pauses=record.pauses + 1, quarantined_until_s=until_s)
