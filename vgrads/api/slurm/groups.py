"""Groups of jobs with a deadline, and the probability that they keep it.

Nobody states the graph of a group. Its jobs arrive as the program that submits them goes on, so the
promise comes from earlier runs of the group: how many jobs of each name there were, how long they
ran, and how long each run took from the moment when as much work was left. The backtest is
``studies/vgrads_studies/promises/group_promises.py``.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from vgrads.api.slurm.records import JobRecord
from vgrads.api.slurm.table import JobTable
from vgrads.slurm.job import JobState

Floats = NDArray[np.float64]
_GAP_S = 600.0
"""A group that has had no unfinished job for this long begins a new run with its next job."""
_USUAL_SPREAD = 0.3
"""Standard deviation of the logarithm of a group's duration from run to run, before any is known;
it counts as ``_PRIOR_RUNS`` runs."""
_PRIOR_RUNS = 2
_OVERDUE = 0.3
"""Of the time that a job has run, if all earlier ones took less: how much longer it takes."""
_LEAST_S = 1.0
_MOST_RUNS = 50


@dataclass(frozen=True)
class GroupRun:
    """One run of a group. ``run_s``: run times of its jobs by name, seconds; ``work_left_s``
    and ``time_left_s``: seconds of work that were left, ascending, and the seconds to the last end
    then. The last ones are those of the first submission."""

    run_s: Mapping[str, Sequence[float]]
    work_left_s: Sequence[float]
    time_left_s: Sequence[float]

    @property
    def jobs(self) -> int:
        """Return how many jobs ran."""
        return sum(map(len, self.run_s.values()))

    def time_for(self, work_s: float) -> float:
        """Return how long the last ``work_s`` seconds of work took here, in seconds."""
        # more work than that run ever had takes longer in proportion
        more = max(1.0, work_s / max(self.work_left_s[-1], _LEAST_S))
        return more * float(np.interp(work_s, self.work_left_s, self.time_left_s))


def split_runs(records: Iterable[JobRecord]) -> list[list[JobRecord]]:
    """Return the runs of a group, the last one last: jobs in the order of their submission."""
    runs: list[list[JobRecord]] = []
    last_end_s = -math.inf
    for record in sorted(records, key=lambda r: r.id):
        if not runs or record.submission.submit_s - last_end_s > _GAP_S:
            runs.append([])
        runs[-1].append(record)
        # an unfinished job keeps its run open: later jobs belong to it
        end_s = record.end_s if record.state.is_terminal and record.end_s else math.inf
        last_end_s = max(last_end_s, end_s)
    return runs


def summarize(run: Sequence[JobRecord]) -> GroupRun | None:
    """Return what a run of a group tells about later ones; None unless all its jobs have ended and
    some have run."""
    if not all(record.state.is_terminal for record in run):
        return None
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for record in run:
        if record.start_s is not None and record.end_s is not None:
            seconds[record.submission.name].append(record.end_s - record.start_s)
    if not seconds:
        return None
    begin_s = min(record.submission.submit_s for record in run)
    end_s = max(record.end_s or 0.0 for record in run)
    # backwards from the last end: at each start and end the work and the time that were left
    changes = [(r.start_s, -1) for r in run if r.start_s is not None and r.end_s is not None]
    changes += [(r.end_s, 1) for r in run if r.start_s is not None and r.end_s is not None]
    work_left_s, time_left_s, together, after_s = [0.0], [0.0], 0, end_s
    for at_s, change in [*sorted(changes, reverse=True), (begin_s, 0)]:
        work_left_s.append(work_left_s[-1] + together * (after_s - at_s))
        time_left_s.append(end_s - at_s)
        together, after_s = together + change, at_s
    return GroupRun(dict(seconds), work_left_s, time_left_s)


def promise(
    run: Sequence[JobRecord], earlier: Sequence[GroupRun], deadline_s: float, now_s: float
) -> float | None:
    """Return the probability that all jobs of a run end by the deadline (Unix seconds); None where
    no earlier run tells anything.

    What is left takes as long as each earlier run took from the moment when as much work was left.
    A job that failed counts as one that is submitted again. The logarithm of that time is of
    Student's distribution: few earlier runs say little about the spread.
    """
    if not earlier:
        return None
    running = _estimate_running(run, earlier, now_s)
    work_s = [_sum_waiting_s(run, other) + running.work_s for other in earlier]
    unfinished = any(not record.state.is_terminal for record in run)
    if _is_over(run, now_s) or not (unfinished or any(work_s)):
        end_s = max(record.end_s or 0.0 for record in run)
        return 1.0 if end_s <= deadline_s else 0.0
    if deadline_s <= now_s:
        return 0.0
    rests_s = [other.time_for(work) for other, work in zip(earlier, work_s, strict=True)]
    own = running.variance / max(fmean(work_s), _LEAST_S) ** 2
    return _estimate_probability(deadline_s - now_s, rests_s, own)


def _estimate_probability(seconds: float, rests_s: Sequence[float], own: float) -> float:
    """Return the probability that the next of such durations is not longer; ``own``: variance of
    its logarithm apart from what differs between them."""
    from scipy.special import stdtr  # noqa: PLC0415 late: the service starts without

    logs = [math.log(max(rest_s, _LEAST_S)) for rest_s in rests_s]
    count, mean = len(logs), fmean(logs)
    freedom = _PRIOR_RUNS + count - 1
    squares = _PRIOR_RUNS * _USUAL_SPREAD**2 + sum((log - mean) ** 2 for log in logs)
    spread = math.sqrt(squares / freedom * (1 + 1 / count) + own)
    return float(stdtr(freedom, (math.log(max(seconds, 1e-9)) - mean) / spread))


def _is_over(run: Sequence[JobRecord], now_s: float) -> bool:
    """Return True where the next job of the group begins another run."""
    ended = all(record.state.is_terminal for record in run)
    return ended and now_s - max(record.end_s or 0.0 for record in run) > _GAP_S


def _sum_waiting_s(run: Sequence[JobRecord], like: GroupRun) -> float:
    """Return the work of the jobs that have not started, in seconds, if they are as in an earlier
    run."""
    completed = Counter(r.submission.name for r in run if r.state is JobState.COMPLETED)
    running = Counter(r.submission.name for r in run if r.state is JobState.RUNNING)
    present = Counter(r.submission.name for r in run if not r.state.is_terminal)
    usual_s = fmean(map(fmean, like.run_s.values()))
    work_s = 0.0
    for name in {*like.run_s, *present}:
        values = like.run_s.get(name, ())
        left = max(len(values) - completed[name], present[name]) - running[name]
        work_s += left * (fmean(values) if values else usual_s)
    return work_s


@dataclass(frozen=True)
class _Running:
    """The work that is left of the jobs that run, in seconds, and its variance in seconds²."""

    work_s: float
    variance: float


def _estimate_running(
    run: Sequence[JobRecord], earlier: Sequence[GroupRun], now_s: float
) -> _Running:
    """Return what is left of the jobs that run: how much longer earlier jobs of their names took
    that ran as long."""
    ran_s: defaultdict[str, list[float]] = defaultdict(list)
    for record in run:
        if record.state is JobState.RUNNING:
            ran_s[record.submission.name].append(max(0.0, now_s - (record.start_s or now_s)))
    work_s = variance = 0.0
    for name, spent_s in ran_s.items():
        values = [v for other in earlier for v in other.run_s.get(name, ())]
        values = values or [v for other in earlier for vs in other.run_s.values() for v in vs]
        mean_s, square = _compute_residuals(np.sort(values), np.array(spent_s))
        work_s += float(mean_s.sum())
        variance += float(square.sum())
    return _Running(work_s, variance)


def _compute_residuals(values: Floats, spent: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of ``values - spent`` over the larger ones of sorted values. A
    single one deviates by a usual share; where there is none, the mean is a share of what was
    spent, and the deviation as large."""
    at = np.searchsorted(values, spent, side="right")
    count = np.maximum(len(values) - at, 1)
    # sums over all values from each place on, 0 behind the last
    above, squares = (np.append(np.cumsum(x[::-1])[::-1], 0.0) for x in (values, values**2))
    mean = above[at] / count
    left = np.where(at < len(values), mean - spent, np.maximum(_OVERDUE * spent, _LEAST_S))
    variance = np.maximum(squares[at] / count - mean**2, 0.0)
    few = np.where(at < len(values), _USUAL_SPREAD * mean, left) ** 2
    return left, np.where(len(values) - at > 1, variance, few)


@dataclass(frozen=True)
class GroupStatus:
    """The current run of a group: its deadline (Unix seconds), the probability to keep it (None:
    no earlier run tells anything), how many jobs have ended, and how many earlier runs had.
    ``began_s``: its first submission, Unix seconds; ``is_over``: no more jobs of it will come."""

    name: str
    began_s: float
    is_over: bool
    deadline_s: float
    promise: float | None
    ended: int
    jobs: int
    expected: float | None


class GroupPromises:
    """The groups of a table of jobs."""

    def __init__(self, table: JobTable, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock

    def runs(self, name: str) -> list[list[JobRecord]]:
        """Return the runs of a group, the current one last; one without jobs for none."""
        numbers = self._table.groups.get(name, ())
        records = [r for number in numbers for r in self._table.submissions.get(number, ())]
        return split_runs(records) or [[]]

    def status(self, name: str) -> GroupStatus | None:
        """Return the current run of a group; None where it has no deadline."""
        *past, run = self.runs(name)
        deadlines = [d for r in run if (d := r.submission.deadline_s) is not None]
        if not deadlines:
            return None
        earlier = [summary for jobs in past if (summary := summarize(jobs)) is not None]
        earlier = earlier[-_MOST_RUNS:]
        expected = fmean(other.jobs for other in earlier) if earlier else None
        now_s = self._clock()
        return GroupStatus(
            name=name,
            began_s=run[0].submission.submit_s,
            is_over=_is_over(run, now_s),
            deadline_s=min(deadlines),
            promise=promise(run, earlier, min(deadlines), now_s),
            ended=sum(record.state.is_terminal for record in run),
            jobs=len(run),
            expected=expected,
        )

    def unfinished_names(self) -> set[str]:
        """Return the names of the groups that have unfinished jobs."""
        unfinished = self._table.unfinished
        names = {self._table.submissions[n][0].submission.promise_group for n in unfinished}
        return names - {""}

    def unfinished(self) -> list[GroupStatus]:
        """Return the groups with a deadline that have unfinished jobs."""
        rows = [self.status(name) for name in sorted(self.unfinished_names())]
        return [status for status in rows if status is not None]
