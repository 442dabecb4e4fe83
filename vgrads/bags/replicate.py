"""Choice of running tasks that get a replica on another node where there is no dispatch policy:
learned from attempt durations.

The distribution of durations is estimated from completed and running attempts (Kaplan and Meier
1958, doi:10.1080/01621459.1958.10501452): an attempt that never ends, on a node that vanished,
appears as a curve that stays up. Each duration is divided by its node's pace, so that a slow node
is not taken for one that vanished. A replica gets a processor that is otherwise unused where the
attempt has a probability below :data:`SURE` of ending within the time in which nine of ten new ones
would. It gets a processor of its bag's share where that probability is below one half; it is then a
new start rather than a replica. A bag with a deadline needs fewer: none while there is time for
several new attempts one after the other, later one for each attempt that ends by then less probably
than the bag's promise needs of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST_ENDS = 10
"""Minimum number of completed attempts before replicas are started."""
MOST_NODES = 4
"""Maximum number of nodes that have a task at once."""
SURE = 0.75
_HALF = 0.5
_MOST = 0.9
_TRIES = 3.0
_PACE_WINDOW = 20.0  # results that a node's pace is averaged over, at most


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """A running attempt, the newest of its task: seconds since its start, probability that its node
    fails, number of nodes that have the task, pace of its node."""

    task: int
    age_s: float
    error_rate: float
    nodes: int
    pace: float = 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Pace of a node, its time relative to the typical one: the mean over its results and one of
    pace 1."""

    value: float = 1.0
    ends: float = 0.0

    def after(self, share: float) -> Pace:
        """Update the pace with a result that took ``share`` times the typical time."""
        ends = min(self.ends + 1.0, _PACE_WINDOW)
        return Pace(self.value + (share - self.value) / (ends + 1.0), ends)


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """Until the deadline of a bag, in seconds, and the probability with which all its running
    attempts must end by then."""

    seconds: float
    probability: float


class PaceCurve:
    """Survival curve of attempt durations. ``ended`` and ``running``: seconds; of the latter, so
    far."""

    def __init__(self, ended: Sequence[float], running: Sequence[float]) -> None:
        times = np.concatenate([np.asarray(ended, float), np.asarray(running, float)])
        over = np.concatenate([np.ones(len(ended), bool), np.zeros(len(running), bool)])
        order = np.lexsort((~over, times))  # at equal times completed attempts precede running ones
        self._times, left = times[order], np.arange(len(times), 0, -1)
        self._longer = np.cumprod(1.0 - over[order] / left)

    def longer(self, seconds: float) -> float:
        """Return the share of attempts that take longer."""
        at = int(np.searchsorted(self._times, seconds, side="right"))
        return 1.0 if at == 0 else float(self._longer[at - 1])

    def over(self, share: float) -> float:
        """Return the seconds until this share has ended; the longest time where fewer were observed
        to end."""
        below = np.flatnonzero(self._longer <= 1.0 - share)
        return float(self._times[below[0]] if len(below) else self._times[-1])


def stragglers(
    ended: Sequence[float],
    abandoned: Sequence[float],
    running: Sequence[RunningAttempt],
    spare: int,
    left: TimeLeft | None = None,
) -> list[int]:
    """Return the tasks to replicate, the worst first. ``spare``: number of unused processors.
    ``left``: of a bag with a deadline; one that a new attempt probably does not meet does not
    count.
    ``ended`` and ``abandoned``: seconds that attempts ran until they succeeded, and until they were
    given up, divided by the recorded pace of the node."""
    if len(ended) < LEAST_ENDS:
        return []
    curve = PaceCurve(ended, [*abandoned, *(attempt.age_s / attempt.pace for attempt in running)])
    again_s, sure = curve.over(_MOST), SURE
    if left is not None and left.seconds > _TRIES * again_s:
        return []
    if left is not None and curve.longer(left.seconds) < _HALF:
        # all n attempts end in time with this probability if each does with its n-th root
        again_s, sure = left.seconds, left.probability ** (1.0 / max(1, len(running)))
    results = []
    for attempt in running:
        if attempt.nodes >= MOST_NODES:
            continue
        longer = curve.longer(attempt.age_s / attempt.pace)
        later = curve.longer((attempt.age_s + again_s) / attempt.pace)
        soon = (1.0 - later / longer if longer > 0 else 0.0) * (1.0 - attempt.error_rate)
        if soon < sure:
            results.append((soon, -attempt.age_s, attempt.task))
    results.sort()
    return [task for n, (soon, _, task) in enumerate(results) if soon < _HALF or n < spare]
