"""Background load of other users: running, waiting and future jobs of a queue history."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.simulator.backfill import BatchJob
from vgrads.simulator.cluster import BatchCluster, Outage
from vgrads.traces.records import JobLog

WEEK_S = 7 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """``count`` equal nodes that break independently, each ``mtbf_s`` after its last repair on
    average."""

    count: int
    cores: int
    mtbf_s: float
    repair_s: float


def draw_outages(nodes: Nodes, until_s: float, draws: np.random.Generator) -> list[Outage]:
    """Sample failures of single nodes up to an instant, as a Poisson process of the whole
    cluster."""
    rate = nodes.count / nodes.mtbf_s
    # given their number, the instants of a Poisson process are uniform
    times = np.sort(draws.uniform(0.0, until_s, draws.poisson(rate * until_s)))
    spots = draws.random(len(times))
    return [
        Outage(at_s=float(t), procs=nodes.cores, length_s=nodes.repair_s, position=float(spot))
        for t, spot in zip(times, spots, strict=True)
    ]


def load_background(cluster: BatchCluster, log: JobLog, at_s: float, horizon_s: float) -> None:
    """Put the state of ``log`` at ``at_s`` into a cluster whose zero is that instant.

    Jobs running then keep running, jobs waiting then wait, jobs of the next ``horizon_s`` arrive.
    If the log ends earlier, its last week is repeated, hour by hour and day by day.
    """
    _place_running(cluster, log, at_s)
    waiting = np.flatnonzero((log.submit_s <= at_s) & (log.start_s > at_s) & log.started)
    for row in waiting.tolist():
        cluster.submit(_make_job(log, row, "w"), 0.0)
    _add_arrivals(cluster, log, at_s, horizon_s)


def row_of_arrival(job: str) -> int | None:
    """Return the row of the log whose job arrived in a cluster under this name; None for any other
    job there."""
    kind, _, row = job.partition(":")
    return int(row) if kind == "a0" else None


def _place_running(cluster: BatchCluster, log: JobLog, at_s: float) -> None:
    """Add running jobs, earliest start first; those beyond the cluster's size are omitted."""
    rows = np.flatnonzero(log.started & (log.start_s <= at_s) & (log.start_s + log.run_s > at_s))
    used = 0
    for row in rows[np.argsort(log.start_s[rows], kind="stable")].tolist():
        job = _make_job(log, row, "r")
        if used + job.procs <= cluster.procs:
            used += job.procs
            cluster.place(job, float(log.start_s[row]) - at_s)


def _add_arrivals(cluster: BatchCluster, log: JobLog, at_s: float, horizon_s: float) -> None:
    """Add the log's own arrivals, then its last week repeatedly until the horizon."""
    last = float(log.submit_s[-1])
    _submit_rows(cluster, log, np.flatnonzero(log.started), 0, (at_s, at_s + horizon_s))
    last_week = np.flatnonzero(log.started & (log.submit_s > last - WEEK_S))
    # repetitions that end before the instant have nothing to submit
    repeat = max(1, math.ceil((at_s - last) / WEEK_S))
    while last + (repeat - 1) * WEEK_S < at_s + horizon_s:
        _submit_rows(cluster, log, last_week, repeat, (at_s, at_s + horizon_s))
        repeat += 1


def _submit_rows(
    cluster: BatchCluster,
    log: JobLog,
    rows: NDArray[np.intp],
    repeat: int,
    window: tuple[float, float],
) -> None:
    """Submit these rows, ``repeat`` weeks later, if they are in the window."""
    times = log.submit_s[rows] + repeat * WEEK_S
    inside = (times > window[0]) & (times <= window[1])
    for row, time_s in zip(rows[inside].tolist(), times[inside].tolist(), strict=True):
        cluster.submit(_make_job(log, row, f"a{repeat}"), time_s - window[0])


def _make_job(log: JobLog, row: int, prefix: str) -> BatchJob:
    run = max(0.0, float(log.run_s[row]))
    requested = float(log.request_s[row])
    return BatchJob(
        f"{prefix}:{row}", max(1, int(log.procs[row])), requested if requested > 0 else run, run
    )
