"""Which running tasks get a copy on another host where nobody has written a policy: what is learned from the ends.

How long attempts take is read off those that ended and those that still run (Kaplan and Meier 1958,
doi:10.1080/01621459.1958.10501452): an attempt that will never end, on a host that vanished, shows as a curve that
stays up. A copy is worth its place where the attempt is less likely than not to end before a new one would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST_ENDS = 10
"""Before so many attempts have ended nothing is known."""
MOST_HOSTS = 4
"""So many hosts may have a task at once."""
_HALF = 0.5


@dataclass(frozen=True, slots=True)
class Attempt:
    """A running attempt, the newest of its task: seconds since it began, how likely its host fails, how many hosts have
    the task."""

    task: int
    age_s: float
    error_rate: float
    hosts: int


class Curve:
    """How many attempts take longer than a time. ``ended`` and ``running``: seconds; of the latter, so far."""

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

    @property
    def median_s(self) -> float:
        """Half of them take longer; the longest time where more than half were not seen to end."""
        below = np.flatnonzero(self._longer <= _HALF)
        return float(self._times[below[0]] if len(below) else self._times[-1])


def stragglers(ended: Sequence[float], running: Sequence[Attempt], spare: int) -> list[int]:
    """Tasks to be copied, the worst first: at most as many as there are places that nobody needs."""
    if spare <= 0 or len(ended) < LEAST_ENDS:
        return []
    curve = Curve(ended, [attempt.age_s for attempt in running])
    again_s = curve.median_s
    found = []
    for attempt in running:
        if attempt.hosts >= MOST_HOSTS:
            continue
        longer = curve.longer(attempt.age_s)
        soon = 1.0 - curve.longer(attempt.age_s + again_s) / longer if longer > 0 else 0.0
        soon *= 1.0 - attempt.error_rate
        if soon < _HALF:
            found.append((soon, -attempt.age_s, attempt.task))
    return [task for _, _, task in sorted(found)[:spare]]
