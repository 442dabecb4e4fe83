"""Validity of a simulated future: the log's own jobs must wait in it as they did, or results in it
prove nothing.

A history made by one rule and a future simulated by another contradict each other: recorded jobs of
KTH-SP2 that started within half an hour in .54 of cases do so in .19 when the recorded backlog is
simulated with FCFS and EASY backfilling.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vgrads.kernel.streams import stream
from vgrads.simulator.cluster import BatchCluster
from vgrads.simulator.load import load_background, row_of_arrival
from vgrads.traces.history import history_name
from vgrads.traces.records import JobLog
from vgrads_studies.promises.arena import WARM

SOON_S = 1800.0
ALLOWED = 0.05
"""Maximum difference between the shares of jobs that start within :data:`SOON_S`, in the history
and in its simulated future."""
_INSTANTS, _WATCHED_S = 40, 6 * 3600.0


def started_soon(log: JobLog, procs: int, instants: Sequence[float]) -> tuple[float, float]:
    """Return, for jobs that arrived within six hours of these instants, the share that started
    within half an hour: in the log, and when its load at that instant is put into a simulated
    cluster; two NaN where none arrived."""
    recorded: list[bool] = []
    simulated: list[bool] = []
    for at_s in instants:
        cluster = BatchCluster(procs)
        load_background(cluster, log, at_s, _WATCHED_S)
        begun = {
            row_of_arrival(happening.job): at_s + happening.time_s
            for happening in cluster.advance(_WATCHED_S + SOON_S)
            if happening.kind == "started"
        }
        came = (log.submit_s > at_s) & (log.submit_s <= at_s + _WATCHED_S) & log.started
        for row in np.flatnonzero(came).tolist():
            latest_s = log.submit_s[row] + SOON_S
            recorded.append(bool(log.start_s[row] <= latest_s))
            simulated.append(begun.get(row, np.inf) <= latest_s)
    if not recorded:
        return float("nan"), float("nan")
    return float(np.mean(recorded)), float(np.mean(simulated))


def contradiction(log: JobLog, procs: int, seed: int = 0) -> str:
    """Return why no future of this history may be simulated; empty where it may."""
    first, last = float(log.submit_s[0]), float(log.submit_s[-1]) - _WATCHED_S
    draws = stream(seed, "future", history_name(log.name))
    instants = draws.uniform(first + WARM * (last - first), last, _INSTANTS)
    recorded, simulated = started_soon(log, procs, instants.tolist())
    if abs(recorded - simulated) <= ALLOWED:
        return ""
    return (
        f"its jobs start within half an hour in {recorded:.2f} of cases, in {simulated:.2f} in "
        "the simulated future: not simulated"
    )
