"""One stream of like jobs: its waits, the bound that they give, and its change points.

The bound is the k-th smallest wait and k grows by at most one a wait, so the waits are kept in two
heaps around it: O(log n) a wait, O(1) for the bound. Sorting everything is put off until somebody
asks for a probability.
"""

from __future__ import annotations

import heapq
from collections import deque

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qbets.bounds import minimum_history, probability_within, rank_table
from qbets.changepoint import WINDOW, change_run

_SHORTEST_RUN = 3  # run_length() is never below this, so shorter runs need no autocorrelation


class WaitStream:
    """Waits of one stream in the order in which they became known."""

    def __init__(self, quantile: float, confidence: float) -> None:
        self.quantile, self.confidence = quantile, confidence
        self.minimum = minimum_history(quantile, confidence)
        self.changes = 0
        self._ranks = rank_table(quantile, confidence, 0)
        self._waits: deque[float] = deque()
        self._recent: deque[float] = deque(maxlen=WINDOW)
        self._low: list[float] = []  # negated: a max-heap of the k smallest waits
        self._high: list[float] = []
        self._old_left = 0  # waits from before the last change that are still in the history
        self._run = 0
        self._run_waits = 0  # waits that became known since the run of misses began
        self._sorted: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self._waits)

    @property
    def bound(self) -> float | None:
        """The upper bound in seconds; None while there are fewer waits than the minimum."""
        return -self._low[0] if len(self._waits) >= self.minimum else None

    def add(self, wait_s: float) -> None:
        """One more wait became known. O(log n)."""
        self._recent.append(wait_s)
        self._waits.append(wait_s)
        self._run_waits += self._run > 0
        self._sorted = None
        if self._old_left:
            self._old_left -= 1
            self._waits.popleft()
            self._rebuild()
        else:
            self._insert(wait_s)

    def judge(self, missed: bool) -> bool:
        """A bound was kept or missed. True when this miss makes a change point: history is cut.

        To be told before the wait itself is added, so that a run's waits are all counted to it.
        """
        if not missed:
            self._run = self._run_waits = 0
            return False
        self._run += 1
        if self._run < _SHORTEST_RUN or len(self._waits) < self.minimum:
            return False
        if self._run < change_run(self.quantile, np.array(self._recent)):
            return False
        self._cut()
        return True

    def _cut(self) -> None:
        """Keep the newest minimum history; what is older than the run slides out as news comes."""
        while len(self._waits) > self.minimum:
            self._waits.popleft()
        self._old_left = max(0, self.minimum - self._run_waits)
        self._run = self._run_waits = 0
        self.changes += 1
        self._sorted = None
        self._rebuild()

    def _insert(self, wait_s: float) -> None:
        if self._low and wait_s <= -self._low[0]:
            heapq.heappush(self._low, -wait_s)
        else:
            heapq.heappush(self._high, wait_s)
        self._balance()

    def _balance(self) -> None:
        count = len(self._waits)
        if count >= len(self._ranks):
            self._ranks = rank_table(self.quantile, self.confidence, count)
        rank = min(int(self._ranks[count]), count)
        while len(self._low) < rank:
            heapq.heappush(self._low, -heapq.heappop(self._high))
        while len(self._low) > rank:
            heapq.heappush(self._high, -heapq.heappop(self._low))

    def _rebuild(self) -> None:
        self._low, self._high = [], list(self._waits)
        heapq.heapify(self._high)
        self._balance()

    @property
    def sorted_waits(self) -> NDArray[np.float64]:
        """The history in ascending order; sorted once after each change of it."""
        if self._sorted is None:
            self._sorted = np.sort(np.array(self._waits, dtype=np.float64))
        return self._sorted

    def bound_at(self, quantile: float, confidence: float | None = None) -> float | None:
        """The upper bound on another quantile, from the same history."""
        level = self.confidence if confidence is None else confidence
        rank = int(rank_table(quantile, level, len(self))[len(self)])
        return float(self.sorted_waits[rank - 1]) if rank <= len(self) else None

    def probability(self, within_s: ArrayLike) -> NDArray[np.float64]:
        """Lower confidence limit on P(wait ≤ d) for every d; any shape, same shape back."""
        known = np.searchsorted(
            self.sorted_waits, np.asarray(within_s, dtype=np.float64), side="right"
        )
        return probability_within(known, len(self), self.confidence)

    def check(self) -> None:
        """Both heaps hold the history, the lower its smallest k, and k is the rank for n."""
        low, high = sorted(-w for w in self._low), sorted(self._high)
        count = len(self._waits)
        rank = min(int(rank_table(self.quantile, self.confidence, count)[count]), count)
        if low + high != sorted(self._waits) or len(low) != rank:
            raise AssertionError(f"heaps {low} | {high} for rank {rank} of {list(self._waits)}")
        if not 0 <= self._old_left <= self.minimum:
            raise AssertionError(f"{self._old_left} old waits of {self.minimum}")
