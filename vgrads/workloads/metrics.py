"""Metrics of an outcome (§4.1): makespan and normalised schedule length of bags, and the usual ones
of tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.workloads.architectures import WorkloadOutcome
from vgrads.workloads.workload import class_bounds, size_class

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BagMetrics:
    """Averages over bags (makespan, length) and tasks (wait, response, slowdown); shares of the
    system and of tasks.

    ``utilisation``: share of the processors' time up to the last arrival that was used by replicas
    that ended first; ``goodput_s``: total processor time of these replicas; ``finished``: share of
    tasks that had ended when the last bag arrived.
    """

    makespan_s: float
    length: float
    wait_s: float
    response_s: float
    slowdown: float
    utilisation: float
    goodput_s: float
    finished: float
    replicas: int


def makespans(outcome: WorkloadOutcome) -> Floats:
    """Return the makespan of each bag: from its submission to the end of its last task."""
    ends = np.maximum.reduceat(outcome.end_s, outcome.bags.first[:-1])
    return np.asarray(ends - outcome.bags.submit_s)


def lengths(outcome: WorkloadOutcome) -> Floats:
    """Return the length of each bag: its makespan over the sum of its tasks' run times on a
    reference processor (NSL)."""
    return np.asarray(makespans(outcome) / outcome.bags.work_s)


def figures(outcome: WorkloadOutcome) -> BagMetrics:
    """Return all metrics."""
    bags, submit = outcome.bags, outcome.bags.submit_s[outcome.bags.bag_of]
    response = outcome.end_s - submit
    last_s = float(bags.submit_s[-1])
    within = np.minimum(outcome.end_s, last_s) - np.minimum(outcome.start_s, last_s)
    # all bags may arrive at once
    room = max(last_s - float(bags.submit_s[0]), 1e-9) * float(outcome.system.procs.sum())
    return BagMetrics(
        makespan_s=float(makespans(outcome).mean()),
        length=float(lengths(outcome).mean()),
        wait_s=float((outcome.began_s - submit).mean()),
        response_s=float(response.mean()),
        slowdown=float((response / (outcome.end_s - outcome.start_s)).mean()),
        utilisation=float(within.sum()) / room,
        goodput_s=float((outcome.end_s - outcome.start_s).sum()),
        finished=float((outcome.end_s <= bags.submit_s[-1]).mean()),
        replicas=outcome.replicas,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeClass:
    """Averages over the bags of ``low`` to ``high`` tasks (None: no upper limit)."""

    low: int
    high: int | None
    makespan_s: float
    length: float


def by_size(outcome: WorkloadOutcome) -> list[SizeClass]:
    """Return each size class that occurs, including single tasks."""
    classes, spans, relative = size_class(outcome.bags.sizes), makespans(outcome), lengths(outcome)
    results = []
    for k in np.unique(classes).tolist():
        low, high = class_bounds(k)
        mine = classes == k
        results.append(
            SizeClass(
                low=low,
                high=high,
                makespan_s=float(spans[mine].mean()),
                length=float(relative[mine].mean()),
            )
        )
    return results
