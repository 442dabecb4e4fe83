"""Possible futures of a queue, simulated from its current state.

A scenario draws the real run times of running and waiting jobs, from earlier jobs with similar
requests and given the time that they have already run, and future arrivals, from those of an
earlier day at the same hour. Then the scheduler's own rule determines when a job of ours would
start. History alone describes queues of this kind; this describes the current state of this one. It
assumes that the site schedules by ``policy``, which backtests must justify.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.compiled import compiled
from vgrads.simulator.replay import replay_compiled

_DAY_S = 86_400.0
_LIKE = 1.25  # requests within this factor are similar
_RECORD = 50  # surprises needed before corrections are made
_NEAR = 200  # of the record, those most similar to the job in question
_ENOUGH = 60  # run times to draw from, at least


@dataclass(frozen=True, kw_only=True)
class QueueSnapshot:
    """A queue at one instant: running jobs and how long they have run, waiting jobs in order."""

    running_procs: Ints
    running_request_s: Floats
    running_elapsed_s: Floats
    waiting_procs: Ints
    waiting_request_s: Floats


@dataclass(frozen=True, kw_only=True)
class LoadMemory:
    """Observed jobs: ``run_s`` of ended ones, by ascending ``request_s``, and past arrivals,
    ``age_s`` before now in ascending order of their instants."""

    request_s: Floats
    run_s: Floats
    arrival_age_s: Floats
    arrival_procs: Ints
    arrival_request_s: Floats


def remember(
    ended: tuple[ArrayLike, ArrayLike], arrivals: tuple[ArrayLike, ArrayLike, ArrayLike]
) -> LoadMemory:
    """Build it from columns in any order: ``(request, run)`` of ended jobs; ``(age, processors,
    request)`` of arrivals."""
    request, run = (np.asarray(column, dtype=np.float64) for column in ended)
    order = np.argsort(request, kind="stable")
    age, procs, requested = (np.asarray(column) for column in arrivals)
    turn = np.argsort(-age.astype(np.float64), kind="stable")
    return LoadMemory(
        request_s=request[order],
        run_s=run[order],
        arrival_age_s=age[turn].astype(np.float64),
        arrival_procs=procs[turn].astype(np.int64),
        arrival_request_s=requested[turn].astype(np.float64),
    )


@dataclass(frozen=True, kw_only=True)
class Lookahead:
    """A queue's possible futures; the same seed gives the same futures for every query."""

    procs: int
    state: QueueSnapshot
    memory: LoadMemory
    record: Floats = field(default_factory=lambda: np.empty((0, 2)))
    scenarios: int = 200
    seed: int = 0
    policy: str = "easy"

    def starts(self, procs: int, walltime_s: float, submit_in_s: float, by_s: float) -> Floats:
        """Return when a job submitted in ``submit_in_s`` starts, from now, in each scenario;
        ``inf`` after ``by_s``."""
        job = (min(procs, self.procs), float(walltime_s), float(submit_in_s), float(by_s))
        state, memory = self.state, self.memory
        return np.asarray(
            _futures(
                (self.seed, self.scenarios, self.procs, self.policy == "easy"),
                job,
                (state.running_procs, state.running_request_s, state.running_elapsed_s),
                (state.waiting_procs, state.waiting_request_s),
                (memory.request_s, memory.run_s),
                (memory.arrival_age_s, memory.arrival_procs, memory.arrival_request_s),
            )
        )

    def chance(self, procs: int, walltime_s: float, submit_in_s: float, by_s: float) -> float:
        """Return P(it has started by ``by_s``): the share of futures, corrected by the record.

        The record has a row for each of some earlier jobs: its processors, and the share of its
        futures that started before it really did (:func:`surprise`). Among the n most similar to
        this one, k below the share promise k / (n + 1): distributional conformal prediction
        (Chernozhukov, Wüthrich, Zhu 2021, doi:10.1073/pnas.2107794118), localised by width.
        """
        share = float(
            (self.starts(procs, walltime_s, submit_in_s, by_s) <= by_s).sum() / (self.scenarios + 1)
        )
        if len(self.record) < _RECORD:
            return share
        newest = self.record[::-1]
        distance = np.abs(np.log2(newest[:, 0] / max(1, procs)))
        near = newest[np.argsort(distance, kind="stable")[:_NEAR], 1]
        return float(np.count_nonzero(near < share) / (len(near) + 1))


def surprise(starts_s: Floats, started_s: float) -> float:
    """Return the share of the futures in which the job started before it really did; both from its
    submission."""
    return float(np.mean(starts_s < started_s - 1e-6))


@compiled
def _futures(
    how: tuple[int, int, int, bool],
    job: tuple[int, float, float, float],
    running: tuple[Ints, Floats, Floats],
    waiting: tuple[Ints, Floats],
    ended_jobs: tuple[Floats, Floats],
    past: tuple[Floats, Ints, Floats],
) -> Floats:
    seed, scenarios, procs, backfill = how
    size, walltime, submit_in, by = job
    result = np.empty(scenarios)
    reserved, queued = len(running[0]), len(waiting[0])
    ends, message = np.empty(reserved), np.empty(reserved)
    first_day = max(1, int(np.ceil(by / _DAY_S)))  # until the whole interval has been observed
    last_day = max(first_day, int((past[0][0] if len(past[0]) else 0.0) / _DAY_S))
    for scenario in range(scenarios):
        np.random.seed(seed * 100_003 + scenario)
        for n in range(reserved):
            elapsed = running[2][n]
            ends[n] = _run_time(ended_jobs, running[1][n], elapsed) - elapsed
            message[n] = max(running[1][n] - elapsed, ends[n])
        order = np.argsort(message)
        placed = (ends[order], message[order], running[0][order])
        back = _DAY_S * np.random.randint(first_day, last_day + 1)
        first = int(np.searchsorted(-past[0], -back, side="right"))
        last = int(np.searchsorted(-past[0], by - back, side="right"))
        before = np.searchsorted(-past[0][first:last], submit_in - back, side="left")
        ours = queued + int(before)
        count = queued + max(0, last - first) + 1
        submit, width = np.zeros(count), np.empty(count, dtype=np.int64)
        request, run = np.empty(count), np.empty(count)
        for n in range(count):
            if n == ours:
                submit[n], width[n], request[n], run[n] = submit_in, size, walltime, walltime
                continue
            if n < queued:
                width[n], request[n] = waiting[0][n], waiting[1][n]
            else:
                row = first + n - queued - (1 if n > ours else 0)
                submit[n] = back - past[0][row]
                width[n], request[n] = min(past[1][row], procs), past[2][row]
            run[n] = _run_time(ended_jobs, request[n], 0.0)
        jobs = (submit, width, request, run, np.maximum(request, run))
        result[scenario] = replay_compiled(jobs, placed, procs, backfill, (ours, by))[ours]
    return result


@compiled
def _run_time(ended_jobs: tuple[Floats, Floats], request: float, elapsed: float) -> float:
    """Draw the run time of a job with a similar request that ran at least as long as this one
    already did."""
    requested, runs = ended_jobs
    low = int(np.searchsorted(requested, request / _LIKE, side="left"))
    high = int(np.searchsorted(requested, request * _LIKE, side="right"))
    if high - low < _ENOUGH:
        middle = int(np.searchsorted(requested, request))
        low = max(0, min(low, middle - _ENOUGH // 2))
        high = min(len(requested), max(high, middle + _ENOUGH // 2))
    for _ in range(12 if high > low else 0):
        row = np.random.randint(low, high)
        run = min(runs[row], request)
        if run > elapsed:
            return float(run)
    return float(elapsed + np.random.random() * max(request - elapsed, 1.0))
