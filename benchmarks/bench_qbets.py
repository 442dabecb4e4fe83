"""Backtest speed: ours against a plain reference that gives the same answers.

The reference does what the papers describe, plainly: a sorted list with bisect, the index of the
bound and the autocorrelation computed anew at every update. Usage: ``bench_qbets.py [LOG...]``;
without logs a generated one is used. Prints jobs/s, the ratio, and how both grow.
"""

from __future__ import annotations

import heapq
import resource
import sys
import time
from bisect import bisect_left, insort

import numpy as np
from scipy.special import bdtr, ndtri
from scipy.stats import rankdata

from vgrads.kernel.streams import stream
from vgrads.qbets.backtest import backtest
from vgrads.qbets.bounds import compute_minimum_history
from vgrads.qbets.changepoint import WINDOW, run_length
from vgrads.qbets.events import make_events
from vgrads.qbets.forecast import forecast
from vgrads.qbets.predictor import Settings
from vgrads.traces.history import history_name, read_history
from vgrads.traces.records import JobLog
from vgrads.vgrid.varq import Reservation, evaluate_trajectory

QUANTILE = CONFIDENCE = 0.95


class PlainStream:
    """Sorted list, everything recomputed at every update."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.order: list[float] = []
        self.recent: list[float] = []
        self.minimum = compute_minimum_history(QUANTILE, CONFIDENCE)
        self.run = self.run_waits = self.old_left = 0
        self.bound: float | None = None
        self.threshold = 3

    def add(self, wait_s: float) -> None:
        insort(self.waits, wait_s)
        self.order.append(wait_s)
        self.recent = [*self.recent[-WINDOW + 1 :], wait_s]
        self.run_waits += self.run > 0
        if self.old_left:
            self.old_left -= 1
            self._drop()
        self._update()

    def judge(self, missed: bool) -> None:
        if not missed:
            self.run = self.run_waits = 0
            return
        self.run += 1
        if len(self.waits) >= self.minimum and self.run >= self.threshold:
            while len(self.order) > self.minimum:
                self._drop()
            self.old_left = max(0, self.minimum - self.run_waits)
            self.run = self.run_waits = 0
            self._update()

    def _drop(self) -> None:
        del self.waits[bisect_left(self.waits, self.order.pop(0))]

    def _update(self) -> None:
        count = len(self.waits)
        self.bound = None
        if count >= self.minimum:
            rank = (
                int(np.searchsorted(bdtr(np.arange(count), count, QUANTILE), CONFIDENCE - 1e-12))
                + 1
            )
            self.bound = self.waits[rank - 1]
        self.threshold = run_length(
            QUANTILE, round(min(max(self._autocorrelation(), 0.0), 0.95), 2)
        )

    def _autocorrelation(self) -> float:
        if len(self.recent) < 3:
            return 0.0
        scores = ndtri((rankdata(self.recent) - 0.5) / len(self.recent))
        centred = scores - scores.mean()
        power = float(centred @ centred)
        return float(centred[1:] @ centred[:-1]) / power if power > 0 else 0.0


def plain_backtest(log: JobLog) -> np.ndarray:
    """Bounds issued by one plain stream, misses judged early as ours are."""
    plain_stream, issued, waiting, expiries = PlainStream(), np.full(len(log), np.nan), {}, []
    for at_s, kind, row in make_events(log):
        while expiries and expiries[0][0] < at_s:
            _, late = heapq.heappop(expiries)
            if late in waiting:
                waiting[late][1] = True
                plain_stream.judge(True)
        if kind == 0:
            waiting[row] = [at_s, False]
            if plain_stream.bound is not None:
                issued[row] = plain_stream.bound
                heapq.heappush(expiries, (at_s + plain_stream.bound, row))
            continue
        submit_s, judged = waiting.pop(row)
        if log.started[row]:
            if not np.isnan(issued[row]) and not judged:
                plain_stream.judge(False)
            plain_stream.add(at_s - submit_s)
    return issued


def synthetic(count: int) -> JobLog:
    """A generated log with correlated waits."""
    draws = stream(1, "bench")
    level = np.cumsum(draws.standard_normal(count)) * 0.02
    return JobLog(
        name="generated",
        submit_s=np.cumsum(draws.exponential(60.0, count)).round(),
        wait_s=np.exp(6 + np.sin(level) + 1.3 * draws.standard_normal(count)).round(),
        run_s=np.full(count, 600.0),
        procs=2 ** draws.integers(0, 8, count),
        request_s=3600.0 * draws.integers(1, 24, count),
        user=draws.integers(0, 200, count),
        queue=np.ones(count, dtype=np.int64),
        started=np.ones(count, dtype=bool),
        max_procs=256,
    )


def compare(log: JobLog, name: str) -> None:
    """Same answers, and how much faster; then the clustered method alone."""
    begin = time.perf_counter()
    plain = plain_backtest(log)
    plain_s = time.perf_counter() - begin
    ours = backtest(log, name, settings=Settings(method="bmbp", arrays=False))
    same = np.array_equal(plain, ours.issued_s, equal_nan=True)
    clustered = backtest(log, name)
    print(
        f"{name}: {len(log):,} jobs; plain {len(log) / plain_s:,.0f} jobs/s, ours "
        f"{len(log) / ours.seconds:,.0f} jobs/s, "
        f"ratio {plain_s / ours.seconds:.1f}x, identical answers: {same}; "
        f"with clusters {len(log) / clustered.seconds:,.0f} jobs/s ({clustered.seconds:.1f} s)"
    )


def growth() -> None:
    """Exponent of time against the number of jobs, clusters on."""
    sizes = (20_000, 200_000)
    seconds = [backtest(synthetic(n), "grow").seconds for n in sizes]
    exponent = np.log(seconds[1] / seconds[0]) / np.log(sizes[1] / sizes[0])
    print(
        f"growth: {sizes[0]:,} jobs {seconds[0]:.2f} s, {sizes[1]:,} jobs {seconds[1]:.2f} "
        f"s, exponent {exponent:.2f}"
    )


def answers() -> None:
    """One question to a warm forecast, and a trajectory."""
    existing = forecast(synthetic(50_000), 1e12)
    rounds = 5000
    begin = time.perf_counter()
    for _ in range(rounds):
        existing.bound(16, 7200.0, 0.95)
    bound_s = (time.perf_counter() - begin) / rounds
    begin = time.perf_counter()
    for n in range(rounds):
        existing.probability(16, 7200.0, float(n))
    chance_s = (time.perf_counter() - begin) / rounds
    begin = time.perf_counter()
    for _ in range(20):
        evaluate_trajectory(
            existing, Reservation(procs=16, walltime_s=7200.0, start_by_s=21600.0, probability=0.9)
        )
    path_s = (time.perf_counter() - begin) / 20
    print(
        f"warm GETBOUND {bound_s * 1e6:.0f} us, GETPROB {chance_s * 1e6:.0f} us, "
        f"trajectory 6 h / 30 s {path_s * 1e3:.2f} ms"
    )


def main() -> None:
    logs = [(history_name(path), read_history(path)) for path in sys.argv[1:]] or [
        ("generated", synthetic(30_000))
    ]
    for name, log in logs:
        compare(log, name)
    growth()
    answers()
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
