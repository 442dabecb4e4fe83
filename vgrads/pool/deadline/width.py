"""How many tasks may run at once, where tasks wait for others: of a Wavefront, for example."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
_LEAST_WORKERS = 1e-6


@dataclass(frozen=True, slots=True)
class Width:
    """``levels``: how many tasks are left on each level, the first one first. Those of a level may
    run at the same time when the level before is done; at least one of them waits for one of the
    level before, so that the levels are a chain."""

    levels: tuple[int, ...]

    @property
    def tasks(self) -> int:
        """Return the number of tasks."""
        return sum(self.levels)

    @property
    def last(self) -> int:
        """Return how many tasks may run at once at the end."""
        return self.levels[-1] if self.levels else 0

    def most(self, rounds: float) -> int:
        """Return how many tasks may run at once, at most, from now until so many run times of a
        task have passed."""
        return max(self.levels[: 1 + math.ceil(max(0.0, rounds))], default=0)

    def stretch(self, spread: float) -> float:
        """Return by which factor the chain takes longer than its mean run times, because each task
        waits for the later of two. ``spread``: standard deviation of the logarithms of run times.

        Last-passage percolation on a grid of R × C takes R + C + 2 s √(RC) means near the edges,
        whatever the distribution is, with s the relative standard deviation (Martin 2004,
        doi:10.1214/009117904000000838), and everywhere where it is exponential. Fitted to simulated
        grids: (R - 1)(C - 1) for RC, which is the number of tasks less that of the levels, and the
        last factor, for small grids.
        """
        chain = len(self.levels)
        if not chain:
            return 1.0
        deviation = math.sqrt(math.expm1(spread**2))
        small = max(0.0, 1.0 - 2.0 * math.pow(chain, -2.0 / 3.0))
        return 1.0 + 2.0 * deviation * math.sqrt(self.tasks - chain) * small / chain


class LevelPace:
    """Progress of tasks with a width, for many numbers of workers at once, level by level. A round
    is the run time of a task; numbers of tasks may be fractions."""

    def __init__(self, width: Width, spread: float) -> None:
        sizes = np.array(width.levels, np.float64)
        stretch = width.stretch(spread)
        self._done: _Floats = np.concatenate(([0.0], np.cumsum(sizes)))
        self._at: _Floats = np.arange(len(sizes) + 1, dtype=np.float64) * stretch
        # running maxima from both ends: ascending, as searchsorted needs them
        self._rising: _Floats = np.maximum.accumulate(sizes / stretch)
        self._falling: _Floats = np.maximum.accumulate(sizes[::-1] / stretch)

    def rounds_left(self, left: _Floats, workers: _Floats) -> _Floats:
        """Return the rounds that the last ``left`` tasks take on so many workers."""
        busy = self._busy(workers)
        return busy.whole - self._elapsed(self._done[-1] - left, busy)

    def rounds_lost(self, left: _Floats, workers: _Floats) -> _Floats:
        """Return how many rounds more the last ``left`` tasks take than without a width."""
        workers = np.maximum(workers, _LEAST_WORKERS)
        return np.maximum(0.0, self.rounds_left(left, workers) - left / workers)

    def progress(self, left: _Floats, workers: _Floats, rounds: _Floats) -> tuple[_Floats, _Floats]:
        """Return how many of the last ``left`` tasks so many workers do in so many rounds: all of
        them at most, and then in which share of the rounds."""
        busy, begun = self._busy(workers), self._done[-1] - left
        elapsed = self._elapsed(begun, busy)
        share = (busy.whole - elapsed) / rounds
        done = np.clip(self._done_at(elapsed + rounds, busy) - begun, 0.0, left)
        return np.where(share <= 1.0, left, done), np.clip(share, 0.0, 1.0)

    def _busy(self, workers: _Floats) -> _Busy:
        # plans without workers are in the same arrays: no division by zero
        workers = np.maximum(workers, _LEAST_WORKERS)
        first = np.searchsorted(self._rising, workers, side="right")
        last = len(self._rising) - np.searchsorted(self._falling, workers, side="right")
        # no level is wider than the workers: the chain alone decides
        last = np.maximum(first, last)
        begin, end, begin_at = self._done[first], self._done[last], self._at[first]
        rounds = (end - begin) / workers
        saved = self._at[last] - begin_at - rounds
        return _Busy(workers, begin, end, begin_at, begin_at + rounds, saved, self._at[-1] - saved)

    def _elapsed(self, done: _Floats, busy: _Busy) -> _Floats:
        """Return the rounds after which so many tasks are done."""
        chain = np.interp(done, self._done, self._at)
        among = busy.begin_at + (done - busy.begin) / busy.workers
        later = np.where(done < busy.end, among, chain - busy.saved)
        return np.where(done < busy.begin, chain, later)

    def _done_at(self, rounds: _Floats, busy: _Busy) -> _Floats:
        """Return how many tasks are done after so many rounds."""
        chain = np.where(rounds < busy.begin_at, rounds, rounds + busy.saved)
        done = np.interp(chain, self._at, self._done)
        among = (rounds >= busy.begin_at) & (rounds < busy.end_at)
        return np.where(among, busy.begin + (rounds - busy.begin_at) * busy.workers, done)


class _Busy(NamedTuple):
    """While levels are wider than the ``workers``: from ``begin`` to ``end`` done tasks, from
    ``begin_at`` to ``end_at`` rounds. ``saved``: by how much the chain alone takes longer for them
    (negative: less long); ``whole``: rounds of all tasks."""

    workers: _Floats
    begin: _Floats
    end: _Floats
    begin_at: _Floats
    end_at: _Floats
    saved: _Floats
    whole: _Floats
