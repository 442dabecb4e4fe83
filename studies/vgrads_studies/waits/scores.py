"""Does a warning appear when bounds are missed, and only then? ``python
-m vgrads_studies.waits.scores LOGS… [--every 12]``

A forecast for each job as it is submitted (the bounds of a backtest), scored every so many hours by
what a history shows then: one with the jobs that wait and run, and one of ended jobs alone. The
truth are the newest 200 bounds whose time has passed, by the whole log; beside them, what was shown
when only started jobs counted. Then, for questions at random instants about shapes of the week
before, the share that no job scores, by the rule of which jobs do.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from vgrads.api.queues.forecast_scores import (
    ALARM,
    WATCHED,
    WatchedBounds,
    has_started_within,
    watch,
)
from vgrads.api.queues.histories import AS_QUESTION
from vgrads.api.queues.start_matching import (
    PROCS_RATIO,
    TIME_RATIO,
    WINDOW_S,
    OpenForecast,
    match_starts,
)
from vgrads.kernel.arrays import Floats, Ints
from vgrads.kernel.streams import stream
from vgrads.qbets.backtest import backtest
from vgrads.traces.history import read_history
from vgrads.traces.records import JobLog, WaitingQueue

_NEWEST = 2500  # forecasts that are looked at
_FIRST_S = 30 * 86400.0
_CALM = 0.93
_QUESTIONS = 6000
_WEEK_S = 7 * 86400.0
_RATIOS = {
    "power of two": (0.0, 0.0),
    "equal": (1.0, 1.0),
    "as scored": (PROCS_RATIO, TIME_RATIO),
    "twice": (2.0, 2.0),
}


@dataclass(frozen=True, slots=True)
class _Issued:
    """A log, the bound of each job at .95, and whether it covered the wait (NaN: never known)."""

    log: JobLog
    bound_s: Floats
    covered: Floats


def _issued(log: JobLog) -> _Issued:
    bound_s = backtest(log, log.name, "*", AS_QUESTION).issued_s
    decided = log.started | (log.wait_s > bound_s)
    covered = np.where(decided, log.wait_s <= bound_s, np.nan)
    return _Issued(log, bound_s, np.where(np.isnan(bound_s), np.nan, covered))


def _with_queue(log: JobLog, at_s: float) -> JobLog:
    """Return the log as a site with its waiting and running jobs has it at an instant."""
    left = log.start_s <= at_s
    part, waits = log.select(left), log.select(~left)
    runs = part.started & (part.start_s + part.run_s > at_s)
    names = ("submit_s", "procs", "request_s", "user", "queue")
    columns = {name: getattr(waits, name) for name in names}
    queue = WaitingQueue(taken_s=at_s, is_listed=True, **columns)
    return replace(part, run_s=np.where(runs, -1.0, part.run_s), waiting=queue)


def _ended(log: JobLog, at_s: float) -> JobLog:
    runs_s = np.where(log.started, np.maximum(log.run_s, 0.0), 0.0)
    return log.select(log.start_s + runs_s <= at_s)


def _watched(issued: _Issued, rows: Ints, history: JobLog) -> WatchedBounds:
    log = issued.log
    observed = match_starts(
        history,
        [
            OpenForecast(
                id=str(row),
                submit_s=log.unix_start_s + float(log.submit_s[row]),
                procs=int(log.procs[row]),
                walltime_s=float(log.request_s[row]),
                longest_s=float(issued.bound_s[row]),
            )
            for row in rows
        ],
    )

    def outcomes() -> Iterator[bool | None]:
        for row in rows[::-1]:
            job, bound_s = observed[str(row)], float(issued.bound_s[row])
            outcome = has_started_within(bound_s, job.wait_s, job.observed_s)
            if job.submit_s is None and job.observed_s >= bound_s:
                yield None
            elif job.submit_s is not None and outcome is not None:
                yield outcome

    return watch(outcomes())


def _count(issued: _Issued, every_s: float) -> Counter[str]:
    log, counts = issued.log, Counter[str]()
    submit_s, start_s = log.submit_s, log.start_s
    first_s = float(submit_s[~np.isnan(issued.bound_s)][0]) + _FIRST_S
    for at_s in np.arange(first_s, submit_s[-1], every_s):
        rows = np.flatnonzero((submit_s <= at_s) & ~np.isnan(issued.bound_s))[-_NEWEST:]
        judged = rows[~np.isnan(issued.covered[rows])]
        passed = judged[submit_s[judged] + issued.bound_s[judged] <= at_s][-WATCHED:]
        true = float(issued.covered[passed].mean())
        kind = "low" if true < ALARM else "calm" if true >= _CALM else "between"
        begun = log.select((submit_s <= at_s) & (submit_s >= submit_s[rows[0]]))
        started = judged[(start_s[judged] <= at_s) & log.started[judged]][-WATCHED:]
        warned = {
            "started alone": float(issued.covered[started].mean()) < ALARM,
            "with the queue": _watched(issued, rows, _with_queue(begun, at_s)).warning is not None,
            "ended alone": _watched(issued, rows, _ended(begun, at_s)).warning is not None,
        }
        counts[kind] += 1
        counts.update(f"{kind}, {name}" for name, warns in warned.items() if warns)
    return counts


def _alike(log: JobLog, ratios: tuple[float, float]) -> Callable[[int, Ints], Ints]:
    """Return the rule by which jobs score a question about the shape of another job."""
    shapes = np.log(np.maximum(np.column_stack([log.procs, log.request_s]), 1.0))
    if not any(ratios):
        classes = np.floor(shapes / np.log(2.0) + 1e-9)
        return lambda row, rows: rows[(classes[rows] == classes[row]).all(axis=1)]
    limits = np.log(np.array(ratios)) + 1e-9
    return lambda row, rows: rows[(np.abs(shapes[rows] - shapes[row]) <= limits).all(axis=1)]


def _unscored(log: JobLog) -> dict[str, float]:
    """Return the share of questions that no job scores, by rule."""
    rng = stream(1, "questions")
    unscored = Counter[str]()
    rules = {name: _alike(log, ratios) for name, ratios in _RATIOS.items()}
    for at_s in rng.uniform(log.submit_s[0] + _WEEK_S, log.submit_s[-1] - WINDOW_S, _QUESTIONS):
        places = np.searchsorted(log.submit_s, [at_s - _WEEK_S, at_s, at_s + WINDOW_S])
        if places[0] == places[1]:
            continue
        row = int(rng.integers(places[0], places[1]))
        after = np.arange(places[1], places[2])
        after = after[log.started[after]]
        unscored.update(name for name, rule in rules.items() if not len(rule(row, after)))
    return {name: unscored[name] / _QUESTIONS for name in rules}


def main() -> None:
    """Print both tables for each log."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+")
    parser.add_argument("--every", type=float, default=12.0, help="hours between looks")
    options = parser.parse_args()
    for path in options.logs:
        log = read_history(path)
        print(path)
        for name, count in sorted(_count(_issued(log), options.every * 3600.0).items()):
            print(f"  {name}: {count}")
        for name, share in _unscored(log).items():
            print(f"  no job scores it, {name}: {share:.3f}")


if __name__ == "__main__":
    main()
