"""What a host's past says of it: how often it fails, how long it takes, and whether it is a black
hole.

A black hole fails at once whatever it is given, and so draws all the work (GridBot, section 2.2 and
7). It is told from a bag whose tasks fail everywhere, and from a task that fails everywhere, by
what other hosts make of the same work.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp2, log
from struct import Struct
from typing import NamedTuple

_SINGLES = Struct("<2f")
DAY_S = 86400.0
_PRIOR_WRONG, _PRIOR_DONE = 0.1, 1.9  # Beta: one in twenty, worth two ends
_KEEP = 1.0 - 1.0 / 200.0  # what an end leaves of those before it
_HALF_S = 2 * DAY_S  # and time
_BLACK = log(0.05 / 0.95)  # one host in twenty, before anything is known of it
_FAILS = 0.95  # how often a black hole does
_LEAST = 0.05  # and at least how often an honest host may
BARRED_AT = log(50.0)
"""The odds that a host is a black hole from which on it gets nothing: never before its third
failure in a row."""
MOST_BLOWS = 8
FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 300.0
NEVER = float("-inf")

Blow = tuple[int, int]
"""A task that failed quickly: its bag's number and its own."""


class HostRecord(NamedTuple):
    """A machine's past, over all its slots. ``done`` and ``wrong``: aged counts of ends; ``blows``:
    quick failures since its last success, the longest of which took ``longest_s``; ``pauses``: how
    often it was barred since; times in seconds of the dispatcher's clock."""

    done: float = 0.0
    wrong: float = 0.0
    at_s: float = 0.0
    turnaround_s: float = 0.0
    day: int = -1
    today: int = 0
    last_done_s: float = NEVER
    blows: tuple[Blow, ...] = ()
    longest_s: float = 0.0
    pauses: int = 0
    barred_until_s: float = NEVER

    @property
    def credible(self) -> bool:
        """True where its failures say something of the work: it does not fail at everything."""
        return self.done > 0.0 and len(self.blows) < 2

    @property
    def error_rate(self) -> float:
        """The share of attempts that fail, as far as is known: the mean of a Beta posterior,
        aged."""
        wrong = self.wrong + _PRIOR_WRONG
        return wrong / (wrong + self.done + _PRIOR_DONE)

    def jobs_today(self, now_s: float) -> int:
        """Attempts that succeeded since the dispatcher's day began."""
        return self.today if int(now_s // DAY_S) == self.day else 0

    def lately(self, now_s: float) -> bool:
        """True where an attempt succeeded within a day."""
        return now_s - self.last_done_s <= DAY_S


def succeeded(record: HostRecord, at_s: float, turnaround_s: float) -> HostRecord:
    """After a success: whatever it was suspected of is over."""
    done, wrong, last_s, before_s, before, today = record[:6]
    keep = _KEEP if last_s == at_s else _KEEP * exp2(min(0.0, last_s - at_s) / _HALF_S)
    day = int(at_s // DAY_S)
    before_s += (turnaround_s - before_s) / (1.0 + (done if done < 20.0 else 20.0))
    today = today + 1 if day == before else 1
    return HostRecord(done * keep + 1.0, wrong * keep, at_s, before_s, day, today, at_s)


def failed(record: HostRecord, at_s: float, blow: Blow | None, ran_s: float) -> HostRecord:
    """After a failure; ``blow``: where it was a quick one. Who leaves or is preempted has not
    failed."""
    keep = _KEEP * exp2(min(0.0, record.at_s - at_s) / _HALF_S)
    blows = record.blows if blow is None or blow in record.blows else (*record.blows, blow)
    return record._replace(
        done=record.done * keep,
        wrong=record.wrong * keep + 1.0,
        at_s=at_s,
        blows=blows[-MOST_BLOWS:],
        longest_s=max(record.longest_s, ran_s) if blow else record.longest_s,
    )


def is_quick(ran_s: float, typical_s: float | None) -> bool:
    """True for a failure that came long before the work could have been done.

    Held against each other in single precision, as a journal keeps them: it must tell the same when
    it is read again.
    """
    if typical_s is None:
        return True
    ran, half = _SINGLES.unpack(_SINGLES.pack(ran_s, max(1.0, typical_s / 2)))
    return bool(ran < half)


def honest_chance(elsewhere: float, wrong: float, same_task: int) -> float:
    """How likely an honest host fails on a task. ``elsewhere``: attempts at the bag's tasks that
    succeeded, or go on for longer than they took to fail here; ``wrong``: that failed on other
    hosts that do not fail at everything; ``same_task``: failures of this very task on such
    hosts."""
    bag = (wrong + 0.25) / (wrong + elsewhere + 0.5)
    return max(_LEAST, bag, same_task / (same_task + 1.0))


def black_odds(chances: Sequence[float]) -> float:
    """Log odds that a host is a black hole, by the chance that each of its failures had on an
    honest one (Bayes)."""
    return _BLACK + sum(log(_FAILS / chance) for chance in chances)


def barred(record: HostRecord, at_s: float) -> HostRecord:
    """It gets nothing for a while: longer each time, until a probe succeeds."""
    pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**record.pauses)
    return record._replace(pauses=record.pauses + 1, barred_until_s=at_s + pause_s)
