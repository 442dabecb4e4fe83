"""Management of the clusters (§2.2): each alone, one manager for all, or flocking; and the outcome
of a workload.

``csp`` always has current data on free processors; the paper's monitor reports it periodically, at
an unstated interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from vgrads.kernel.arrays import Columns, Floats, Ints
from vgrads.kernel.errors import InputError
from vgrads.workloads.committed import run_earliest, run_flock
from vgrads.workloads.scheduling import EARLIEST, Assigned, Scheduling, scheduling_named
from vgrads.workloads.selection import Selection, selection_named
from vgrads.workloads.simulate import run_manager
from vgrads.workloads.system import System
from vgrads.workloads.workload import BagColumns

_CLOSE_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """A selection and a scheduling policy, by name. ``estimate_s``: run times as reported to the
    manager; None: the real ones."""

    selection: str = "S-T"
    scheduling: str = "FPLT"
    architecture: str = "csp"
    estimate_s: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOutcome:
    """Columns over tasks: start of the first replica; start, end and cluster of the replica that
    ended first.

    ``spent_s``: processor time of all replicas; ``replicas``: number of replicas after the first
    ones.
    """

    bags: BagColumns
    system: System
    began_s: Floats
    start_s: Floats
    end_s: Floats
    cluster: Ints
    spent_s: float
    replicas: int

    def check(self) -> None:
        """Raise InputError for an impossible outcome: a task too short or early, more tasks than
        processors."""
        lasted = self.end_s - self.start_s
        if not np.isfinite(self.end_s).all():
            raise InputError("a task did not end")
        if (
            np.abs(lasted - self.bags.runtime_s / self.system.speed[self.cluster])
            > _CLOSE_S * (1 + self.end_s)
        ).any():
            raise InputError("the duration of a task differs from its run time")
        if (self.began_s < self.bags.submit_s[self.bags.bag_of]).any() or (
            self.start_s < self.began_s
        ).any():
            raise InputError("a task started before it was submitted")
        for c in range(len(self.system.procs)):
            mine = self.cluster == c
            if most_at_once(self.start_s[mine], self.end_s[mine]) > self.system.procs[c]:
                raise InputError(f"cluster {c} ran more tasks than it has processors")


def most_at_once(start_s: Floats, end_s: Floats) -> int:
    """Return the maximum number of overlapping intervals; one that ends as another begins does not
    overlap it."""
    times = np.concatenate([end_s, start_s])
    steps = np.concatenate([-np.ones(len(end_s), np.int64), np.ones(len(start_s), np.int64)])
    # at equal times ends (-1) come before starts (1)
    order = np.lexsort((steps, np.round(times, 6)))
    return int(np.cumsum(steps[order]).max(initial=0))


Architecture = Callable[[BagColumns, System, Algorithm, Scheduling, Selection], Assigned]


def _make_columns(bags: BagColumns) -> Columns:
    return bags.submit_s, bags.user, bags.first


def central(
    bags: BagColumns, system: System, how: Algorithm, scheduling: Scheduling, selection: Selection
) -> Assigned:
    """Simulate one manager with a global queue above all clusters (csp)."""
    place = (system.procs, system.speed)
    message = bags.runtime_s if how.estimate_s is None else how.estimate_s
    if scheduling.place == EARLIEST:
        return run_earliest(
            _make_columns(bags), (bags.runtime_s, message), place, scheduling.predicts
        )
    policy = (selection.choose, selection.portion, scheduling.place, scheduling.replicas)
    return run_manager(
        _make_columns(bags), (bags.runtime_s, scheduling.rank(message)), place, policy
    )


def separate(
    bags: BagColumns, system: System, how: Algorithm, scheduling: Scheduling, selection: Selection
) -> Assigned:
    """Simulate every cluster on its own, with its own stream of bags (sep-c)."""
    count = len(bags.runtime_s)
    columns = [np.full(count, np.nan) for _ in range(4)]
    spent, replicas = 0.0, 0
    home_of = bags.home[bags.bag_of]
    for c in range(len(system.procs)):
        mine = home_of == c
        if not mine.any():
            continue
        message = None if how.estimate_s is None else how.estimate_s[mine]
        part = Algorithm(selection=how.selection, scheduling=how.scheduling, estimate_s=message)
        began, ended, _, start, took, extra = central(
            bags.only(bags.home == c), system.only(c), part, scheduling, selection
        )
        for column, result in zip(
            columns, (began, ended, np.full(len(began), float(c)), start), strict=True
        ):
            column[mine] = result
        spent, replicas = spent + took, replicas + extra
    began, ended, where, start = columns
    return began, ended, where.astype(np.int64), start, spent, replicas


FLOCKING = ("FPLT", "DFPLT", "FPF")
"""Policies of flocking managers: they neither replicate tasks nor read each other's queues."""


def flocking(
    bags: BagColumns, system: System, how: Algorithm, scheduling: Scheduling, selection: Selection
) -> Assigned:
    """Simulate managers of clusters among which users move (fcondor); tasks are all eligible where
    they queue."""
    if how.selection != "S-T" or how.scheduling not in FLOCKING:
        raise InputError(
            f"is not simulated with '{how.selection}' and '{how.scheduling}'",
            where="fcondor",
            fix=f"S-T with {', '.join(FLOCKING)}",
        )
    message = bags.runtime_s if how.estimate_s is None else how.estimate_s
    return run_flock(
        _make_columns(bags),
        (bags.runtime_s, scheduling.rank(message)),
        (system.procs, system.speed),
    )


ARCHITECTURES: Mapping[str, Architecture] = {"csp": central, "sep-c": separate, "fcondor": flocking}


def simulate(bags: BagColumns, system: System, how: Algorithm) -> WorkloadOutcome:
    """Return the outcome of a workload. Raise InputError for an unknown policy."""
    bags.check()
    system.check()
    if how.architecture not in ARCHITECTURES:
        raise InputError(
            f"unknown architecture '{how.architecture}'",
            where="architecture",
            fix=", ".join(ARCHITECTURES),
        )
    if how.architecture == "sep-c" and int(bags.home.max()) >= len(system.procs):
        raise InputError("there are more streams than clusters", where="sep-c")
    scheduling, selection = scheduling_named(how.scheduling), selection_named(how.selection)
    began, ended, where, start, spent, replicas = ARCHITECTURES[how.architecture](
        bags, system, how, scheduling, selection
    )
    return WorkloadOutcome(
        bags=bags,
        system=system,
        began_s=began,
        start_s=start,
        end_s=ended,
        cluster=where,
        spent_s=float(spent),
        replicas=int(replicas),
    )
