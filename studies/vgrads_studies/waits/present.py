"""Forecasts that see the queue as its site lists it, against full knowledge of the log.

    python -m vgrads_studies.waits.present LOG.swf.gz [LOG…] [--questions 200] [--seed 1]

At random instants of a log a job asks for its wait. *full*: by the whole log until then, in which
also the jobs that wait are history, as in backtests. *snapshot*: by a history of the jobs that had
started by then, and the waiting and running jobs as ``squeue`` would list them. *ended*: by that
history alone, learned in the view that it permits, without the jobs that wait, and aged. Printed
are, for each, the shares of waits within the bounds at .5, .75, .9 and .95, and the mean pinball
loss at .95, with its ratio to *full*.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from vgrads.api.queues.forecast_scores import pinball
from vgrads.api.queues.histories import AS_QUESTION, learned_forecast
from vgrads.api.queues.live_queue import make_present_forecast
from vgrads.api.queues.site_snapshots import SiteSnapshot
from vgrads.drivers.api import QueuedJob
from vgrads.kernel.text_table import pad
from vgrads.qbets.state_forecast import AnyForecast, make_forecast
from vgrads.qbets.views import BEST
from vgrads.traces.history import read_history
from vgrads.traces.records import JobLog

LEVELS = (0.5, 0.75, 0.9, 0.95)
_NEWEST = 12_000  # jobs of a log: what a question learns from, and its answers


def listed(log: JobLog, at_s: float) -> tuple[JobLog, tuple[QueuedJob, ...]]:
    """Return what a history has at an instant, without the jobs that wait, and the queue then."""
    submitted = log.submit_s < at_s
    left = log.start_s <= at_s
    end_s = log.start_s + np.maximum(log.run_s, 0.0)
    history = log.select(submitted & left)
    left_end_s = end_s[submitted & left]
    runs = history.started & (left_end_s > at_s)
    history = replace(history, run_s=np.where(runs, -1.0, history.run_s))
    jobs = []
    for row in np.flatnonzero(submitted & ~left):
        jobs.append(_job(log, int(row), waited_s=float(at_s - log.submit_s[row])))
    for row in np.flatnonzero(submitted & left & log.started & (end_s > at_s)):
        ran_s = float(at_s - log.start_s[row])
        jobs.append(_job(log, int(row), left_s=max(0.0, float(log.request_s[row]) - ran_s)))
    return history, tuple(jobs)


def _job(log: JobLog, row: int, **times: float) -> QueuedJob:
    return QueuedJob(
        queue="",
        user=str(log.user[row]),
        procs=int(log.procs[row]),
        requested_s=float(log.request_s[row]),
        **times,  # type: ignore[arg-type]
    )


def views(log: JobLog, row: int) -> Iterator[tuple[str, AnyForecast]]:
    """Return the three forecasts for a job that is submitted now."""
    at_s = float(log.submit_s[row])
    yield "full", make_forecast(log.select(log.submit_s <= at_s + 86_400.0), at_s, AS_QUESTION)
    history, jobs = listed(log, at_s)
    learned = learned_forecast(history, history.end_s, AS_QUESTION)
    now_unix_s = history.unix_start_s + at_s
    snapshot = SiteSnapshot(taken_unix_s=now_unix_s, jobs=jobs)
    yield "snapshot", make_present_forecast(learned, history, "", snapshot, now_unix_s)[0]
    alone = learned_forecast(history, None, replace(AS_QUESTION, view=BEST))
    yield "ended", make_present_forecast(alone, history, "", None, now_unix_s)[0]


def measure(path: Path, questions: int, seed: int) -> None:
    """Print the table of one log."""
    log = read_history(path)
    log = log.select(np.arange(len(log)) < _NEWEST)
    draws = np.random.default_rng(seed)
    rows = np.sort(draws.choice(np.arange(len(log) // 2, len(log) - 200), questions, replace=False))
    covered: dict[str, list[list[bool]]] = {}
    losses: dict[str, list[float]] = {}
    for row in rows.tolist():
        shape, wait_s = (int(log.procs[row]), float(log.request_s[row])), float(log.wait_s[row])
        for name, forecast in views(log, row):
            bounds_s = forecast.bounds(*shape, LEVELS)
            covered.setdefault(name, []).append((wait_s <= bounds_s).tolist())
            losses.setdefault(name, []).append(pinball(LEVELS[-1], float(bounds_s[-1]), wait_s))
    print(f"{path.name}: {questions} questions")
    full = float(np.mean(losses["full"]))
    for name, loss in losses.items():
        shares = "/".join(f"{share:.3f}" for share in np.mean(covered[name], axis=0))
        mean = float(np.mean(loss))
        print(f"  {pad(name, 9)} {shares}  pinball {mean:.0f} s  {mean / full:.3f} × full")


def main() -> None:
    """Measure each log."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("logs", type=Path, nargs="+")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vgrads-bench-") as name:
        os.environ["VGRADS_HOME"] = name
        for path in options.logs:
            measure(path, options.questions, options.seed)


if __name__ == "__main__":
    main()
