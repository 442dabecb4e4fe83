"""Which running tasks get a copy on another host where nobody has written a policy: what is learned
from the ends.

How long attempts take is read off those that ended and those that still run (Kaplan and Meier 1958,
doi:10.1080/01621459.1958.10501452): an attempt that will never end, on a host that vanished, shows
as a curve that stays up. Each is held against its host's own pace, so that a slow host is not taken
for one that vanished. A copy gets a place that nobody needs, where the attempt is not so likely as
:data:`SURE` to end within the time in which nine of ten new ones would; and a place of its bag's
turn where it is less likely than not, which is then no copy but a new start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST_ENDS = 10
"""Before so many attempts have ended nothing is known."""
MOST_HOSTS = 4
"""So many hosts may have a task at once."""
SURE = 0.75
_HALF = 0.5
_MOST = 0.9
_KEPT = 20.0  # a host's pace is that of so many ends, at most


@dataclass(frozen=True, slots=True)
class Attempt:
    """A running attempt, the newest of its task: seconds since it began, how likely its host fails,
    how many hosts have the task, how long its host takes against others."""

    task: int
    age_s: float
    error_rate: float
    hosts: int
    pace: float = 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a host takes against what is typical: the mean of its ends, and of one that is as
    others are."""

    value: float = 1.0
    ends: float = 0.0

    def after(self, share: float) -> Pace:
        """One more end took so many times what is typical."""
        ends = min(self.ends + 1.0, _KEPT)
        return Pace(self.value + (share - self.value) / (ends + 1.0), ends)


class Curve:
    """How many attempts take longer than a time. ``ended`` and ``running``: seconds; of the latter,
    so far."""

    def __init__(self, ended: Sequence[float], running: Sequence[float]) -> None:
        times = np.concatenate([np.asarray(ended, float), np.asarray(running, float)])
        over = np.concatenate([np.ones(len(ended), bool), np.zeros(len(running), bool)])
        order = np.lexsort((~over, times))  # at the same time ends count before what goes on
        self._times, left = times[order], np.arange(len(times), 0, -1)
        self._longer = np.cumprod(1.0 - over[order] / left)

    def longer(self, seconds: float) -> float:
        """The share that takes longer."""
        at = int(np.searchsorted(self._times, seconds, side="right"))
        return 1.0 if at == 0 else float(self._longer[at - 1])

    def over(self, share: float) -> float:
        """So many seconds until this share is over; the longest time where so many were not seen to
        end."""
        below = np.flatnonzero(self._longer <= 1.0 - share)
        return float(self._times[below[0]] if len(below) else self._times[-1])


def stragglers(
    ended: Sequence[float], given_up: Sequence[float], running: Sequence[Attempt], spare: int
) -> list[int]:
    """Tasks to be copied, the worst first. ``spare``: places that nobody needs. ``ended`` and
    ``given_up``: how long attempts ran until they succeeded, and until nobody believed in them any
    more; seconds, divided by the pace that the host was known for."""
    if len(ended) < LEAST_ENDS:
        return []
    curve = Curve(ended, [*given_up, *(attempt.age_s / attempt.pace for attempt in running)])
    again_s = curve.over(_MOST)
    found = []
    for attempt in running:
        if attempt.hosts >= MOST_HOSTS:
            continue
        longer = curve.longer(attempt.age_s / attempt.pace)
        later = curve.longer((attempt.age_s + again_s) / attempt.pace)
        soon = (1.0 - later / longer if longer > 0 else 0.0) * (1.0 - attempt.error_rate)
        if soon < SURE:
            found.append((soon, -attempt.age_s, attempt.task))
    found.sort()
    return [task for n, (soon, _, task) in enumerate(found) if soon < _HALF or n < spare]
