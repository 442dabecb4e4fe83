"""Who manages the clusters (§2.2): each alone, one above all, or a flock; and what came of a
workload.

``csp`` knows at any instant which processors are free; the paper's monitor tells it periodically,
and does not say how often.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from vgrads.kernel.arrays import Columns, Floats, Ints
from vgrads.kernel.errors import InputError
from vgrads.research.bags.committed import run_earliest, run_flock
from vgrads.research.bags.scheduling import EARLIEST, Assigned, Scheduling, scheduling_named
from vgrads.research.bags.selection import Selection, selection_named
from vgrads.research.bags.simulate import run_manager
from vgrads.research.bags.system import System
from vgrads.research.bags.workload import Bags

_CLOSE_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """A selection and a scheduling policy, by name. ``estimate_s``: run times as the manager is
    told; None: the real ones."""

    selection: str = "S-T"
    scheduling: str = "FPLT"
    architecture: str = "csp"
    estimate_s: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Over tasks: when the first copy began; of the copy that ended first its start, end and
    cluster.

    ``spent_s``: processor time of all copies; ``copies``: how many there were beside the first
    ones.
    """

    bags: Bags
    system: System
    began_s: Floats
    start_s: Floats
    end_s: Floats
    cluster: Ints
    spent_s: float
    copies: int

    def check(self) -> None:
        """InputError where something is not possible: a task too short or early, more tasks than
        processors."""
        lasted = self.end_s - self.start_s
        if not np.isfinite(self.end_s).all():
            raise InputError("a task never ended")
        if (
            np.abs(lasted - self.bags.runtime_s / self.system.speed[self.cluster])
            > _CLOSE_S * (1 + self.end_s)
        ).any():
            raise InputError("a task did not take its time")
        if (self.began_s < self.bags.submit_s[self.bags.bag_of]).any() or (
            self.start_s < self.began_s
        ).any():
            raise InputError("a task began before it came")
        for c in range(len(self.system.procs)):
            mine = self.cluster == c
            if most_at_once(self.start_s[mine], self.end_s[mine]) > self.system.procs[c]:
                raise InputError(f"cluster {c} ran more tasks than it has processors")


def most_at_once(start_s: Floats, end_s: Floats) -> int:
    """The most intervals that overlap; what ends as another begins does not."""
    times = np.concatenate([end_s, start_s])
    steps = np.concatenate([-np.ones(len(end_s), np.int64), np.ones(len(start_s), np.int64)])
    order = np.lexsort((steps, np.round(times, 6)))
    return int(np.cumsum(steps[order]).max(initial=0))


Architecture = Callable[[Bags, System, Algorithm, Scheduling, Selection], Assigned]


def _columns(bags: Bags) -> Columns:
    return bags.submit_s, bags.user, bags.first


def central(
    bags: Bags, system: System, how: Algorithm, scheduling: Scheduling, selection: Selection
) -> Assigned:
    """One manager with a global queue above all clusters (csp)."""
    place = (system.procs, system.speed)
    told = bags.runtime_s if how.estimate_s is None else how.estimate_s
    if scheduling.place == EARLIEST:
        return run_earliest(_columns(bags), (bags.runtime_s, told), place, scheduling.predicts)
    policy = (selection.choose, selection.portion, scheduling.place, scheduling.copies)
    return run_manager(_columns(bags), (bags.runtime_s, scheduling.rank(told)), place, policy)


def separate(
    bags: Bags, system: System, how: Algorithm, scheduling: Scheduling, selection: Selection
) -> Assigned:
    """Every cluster on its own, with the stream of bags that is its own (sep-c)."""
    count = len(bags.runtime_s)
    columns = [np.full(count, np.nan) for _ in range(4)]
    spent, copies = 0.0, 0
    home_of = bags.home[bags.bag_of]
    for c in range(len(system.procs)):
        mine = home_of == c
        if not mine.any():
            continue
        told = None if how.estimate_s is None else how.estimate_s[mine]
        part = Algorithm(selection=how.selection, scheduling=how.scheduling, estimate_s=told)
        began, ended, _, start, took, extra = central(
            bags.only(bags.home == c), system.only(c), part, scheduling, selection
        )
        for column, found in zip(
            columns, (began, ended, np.full(len(began), float(c)), start), strict=True
        ):
            column[mine] = found
        spent, copies = spent + took, copies + extra
    began, ended, where, start = columns
    return began, ended, where.astype(np.int64), start, spent, copies


FLOCKING = ("FPLT", "DFPLT", "FPF")
"""What flocking managers can do: they neither copy tasks nor look at each other's queues."""


def flocking(
    bags: Bags, system: System, how: Algorithm, scheduling: Scheduling, selection: Selection
) -> Assigned:
    """Managers of clusters among which users wander (fcondor); tasks are all eligible where they
    queue."""
    if how.selection != "S-T" or how.scheduling not in FLOCKING:
        raise InputError(
            f"is not simulated with '{how.selection}' and '{how.scheduling}'",
            where="fcondor",
            fix=f"S-T with {', '.join(FLOCKING)}",
        )
    told = bags.runtime_s if how.estimate_s is None else how.estimate_s
    return run_flock(
        _columns(bags), (bags.runtime_s, scheduling.rank(told)), (system.procs, system.speed)
    )


ARCHITECTURES: Mapping[str, Architecture] = {"csp": central, "sep-c": separate, "fcondor": flocking}


def simulate(bags: Bags, system: System, how: Algorithm) -> Outcome:
    """What comes of a workload; InputError for a policy that there is not."""
    bags.check()
    system.check()
    if how.architecture not in ARCHITECTURES:
        raise InputError(
            f"no architecture '{how.architecture}'",
            where="architecture",
            fix=", ".join(ARCHITECTURES),
        )
    if how.architecture == "sep-c" and int(bags.home.max()) >= len(system.procs):
        raise InputError("there are more streams than clusters", where="sep-c")
    scheduling, selection = scheduling_named(how.scheduling), selection_named(how.selection)
    began, ended, where, start, spent, copies = ARCHITECTURES[how.architecture](
        bags, system, how, scheduling, selection
    )
    return Outcome(
        bags=bags,
        system=system,
        began_s=began,
        start_s=start,
        end_s=ended,
        cluster=where,
        spent_s=float(spent),
        copies=int(copies),
    )
