"""One stream of similar jobs: its waits, their bound, and its change points.

The bound is the k-th smallest wait and k grows by at most one per wait, so the waits are stored in
two heaps around it: O(log n) per wait, O(1) for the bound. Sorting is deferred until a probability
is requested.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vgrads.kernel.units import format_count
from vgrads.qbets.adaptive_correction import tighten_level
from vgrads.qbets.bounds import (
    ROUNDING,
    compute_highest_level,
    compute_minimum_history,
    find_upper_rank,
    rank_table,
)
from vgrads.qbets.changepoint import WINDOW, change_run

_SHORTEST_RUN = 3  # minimum of run_length(); shorter runs need no correlation


class ObservedWait(NamedTuple):
    """An observed wait: a sequence number, its length, the size of the job."""

    sequence: int
    wait_s: float
    size: float


class WaitStream:
    """Waits of one stream in the order of their observation."""

    def __init__(
        self, quantile: float, confidence: float, observed_waits: Iterable[ObservedWait] = ()
    ) -> None:
        self.quantile, self.confidence = quantile, confidence
        self.minimum = compute_minimum_history(quantile, confidence)
        self.observed: deque[ObservedWait] = deque(observed_waits)
        self.recent: deque[float] = deque((k.wait_s for k in self.observed), maxlen=WINDOW)
        self.old_left = 0  # waits from before the last change still in the history
        self.run = 0  # misses in a row
        self.run_waits = 0  # waits observed since the run of misses began
        self._ranks = rank_table(quantile, confidence, len(self.observed))
        self._low: list[float] = []  # negated: a max-heap of the k smallest waits
        self._high: list[float] = []
        self._sorted: NDArray[np.float64] | None = None
        self._rebuild()

    def __len__(self) -> int:
        return len(self.observed)

    @property
    def bound(self) -> float | None:
        """The upper bound in seconds; None while there are fewer waits than the minimum."""
        return -self._low[0] if len(self.observed) >= self.minimum else None

    def stricter_bound(self, quantile: float) -> float:
        """Return the bound at a higher quantile, or the longest wait if history is too short for
        it."""
        count, rank = (
            len(self.observed),
            find_upper_rank(len(self.observed), quantile, self.confidence),
        )
        above = count - (rank or count) + 1
        # a stricter rank is never below that of the bound, so the upper heap has it
        top = heapq.nlargest(above, self._high)
        return top[-1] if len(top) == above else -self._low[0]

    def add(self, observed_wait: ObservedWait) -> None:
        """Add an observed wait. O(log n)."""
        self.recent.append(observed_wait.wait_s)
        self.observed.append(observed_wait)
        self.run_waits += self.run > 0
        self._sorted = None
        if self.old_left:
            # each new wait replaces one from before the change, so history stays at its minimum;
            # a heap can only remove its first, and so short a history is sorted quickly
            self.old_left -= 1
            self.observed.popleft()
            self._rebuild()
        else:
            self._insert(observed_wait.wait_s)

    def judge(self, missed: bool) -> bool:
        """Record that a bound was kept or missed. Return True if this miss makes a change point:
        history is cut.

        Call it before the wait itself is added, so that all waits of a run are counted in it.
        """
        if not missed:
            self.run = self.run_waits = 0
            return False
        self.run += 1
        if self.run < _SHORTEST_RUN or len(self.observed) < self.minimum:
            return False
        if self.run < change_run(self.quantile, np.array(self.recent)):
            return False
        self._cut()
        return True

    def _cut(self) -> None:
        """Keep the newest minimum history; waits from before the run are removed as new ones
        arrive."""
        while len(self.observed) > self.minimum:
            self.observed.popleft()
        self.old_left = max(0, self.minimum - self.run_waits)
        self.run = self.run_waits = 0
        self._sorted = None
        self._rebuild()

    def _insert(self, wait_s: float) -> None:
        if self._low and wait_s <= -self._low[0]:
            heapq.heappush(self._low, -wait_s)
        else:
            heapq.heappush(self._high, wait_s)
        self._balance()

    def _rank(self) -> int:
        """Number of observed waits at or below the bound."""
        count = len(self.observed)
        if count >= len(self._ranks):
            self._ranks = rank_table(self.quantile, self.confidence, count)
        return min(int(self._ranks[count]), count)

    def _balance(self) -> None:
        rank = self._rank()
        while len(self._low) < rank:
            heapq.heappush(self._low, -heapq.heappop(self._high))
        while len(self._low) > rank:
            heapq.heappush(self._high, -heapq.heappop(self._low))

    def _rebuild(self) -> None:
        """Rebuild both heaps: a sorted list is a heap, and so is the negated rest in reverse
        order."""
        ordered, rank = sorted(k.wait_s for k in self.observed), self._rank()
        self._low = [-wait_s for wait_s in reversed(ordered[:rank])]
        self._high = ordered[rank:]

    @property
    def sorted_waits(self) -> NDArray[np.float64]:
        """The history in ascending order; sorted once after each change."""
        if self._sorted is None:
            self._sorted = np.sort(np.concatenate([np.negative(self._low), self._high]))
        return self._sorted

    def check(self) -> None:
        """Check that both heaps hold the history, the lower its smallest k, and that k is the rank
        for n."""
        low, high = sorted(-w for w in self._low), sorted(self._high)
        count = len(self.observed)
        rank = min(int(rank_table(self.quantile, self.confidence, count)[count]), count)
        if low + high != sorted(k.wait_s for k in self.observed) or len(low) != rank:
            raise AssertionError(f"heaps {low} | {high} for rank {rank} of {list(self.observed)}")
        heaps = all(
            h[(i - 1) // 2] <= h[i] for h in (self._low, self._high) for i in range(1, len(h))
        )
        if not heaps or not 0 <= self.old_left <= self.minimum:
            raise AssertionError(
                f"no heaps, or {format_count(self.old_left, 'old wait')} of {self.minimum}"
            )


def compute_bounds(
    ordered_s: NDArray[np.float64], quantile: ArrayLike, confidence: float
) -> NDArray[np.float64]:
    """Return upper bounds on quantiles of an ascending history; NaN if it is too short. Any
    shape."""
    levels = np.asarray(quantile, dtype=np.float64)
    count = len(ordered_s)
    ranks = [find_upper_rank(count, float(q), confidence) for q in levels.ravel()]
    results = [np.nan if rank is None else ordered_s[rank - 1] for rank in ranks]
    return np.array(results, dtype=np.float64).reshape(levels.shape)


def compute_corrected_bounds(
    ordered_s: NDArray[np.float64],
    levels: ArrayLike,
    confidence: float,
    correction: tuple[float, float],
) -> NDArray[np.float64]:
    """Return bounds at these levels from an ascending history, stricter by an adaptive
    ``correction``, its factor and its quantile; NaN where history is too short. Same shape."""
    (factor, quantile), count = correction, len(ordered_s)
    requested = np.asarray(levels, dtype=np.float64)
    plain = compute_bounds(ordered_s, requested, confidence)
    plain = np.where(requested * (1 - ROUNDING) > compute_highest_level(count), np.nan, plain)
    if factor >= 1.0 or not count:
        return plain
    # NaN if history is too short for the stricter level: then the longest wait of all
    strict = compute_bounds(ordered_s, tighten_level(requested, factor, quantile), confidence)
    return np.where(np.isnan(plain), np.nan, np.where(np.isnan(strict), ordered_s[-1], strict))
