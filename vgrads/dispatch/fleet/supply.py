"""Distribution of the work over the grids that may serve it: the input of the overlay constructor,
and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from vgrads.dispatch.core.state import BagState
from vgrads.pool.overlay import Demand, GridRoom, OverlayPlan, overlay

Fits = Callable[[int, Mapping[str, object]], bool]
"""Is a grid, given as its ad, fit for a bag (its number)? Evaluated at each check."""


def compute_demand(bag: BagState) -> int:
    """Return the processors that a bag's waiting and running tasks would keep busy."""
    return (bag.tasks.pending + len(bag.tasks.where)) * bag.procs


@dataclass(frozen=True, kw_only=True)
class SupplySite:
    """Current state of a site. ``most``: maximum number of nodes; ``ad``: its ad for a bag's
    dispatch policy."""

    site: str
    room: GridRoom
    most: int
    ad: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class SiteDemand:
    """Work at a site, in nodes that it would keep busy: now, and since the start.

    ``task_s``: run time of the longest tasks that may be sent there.
    """

    loads: int
    arrived: int
    task_s: float


@dataclass
class Supply:
    """Caches the last result: it is valid while its inputs are unchanged."""

    _last_demand: object = None
    _plan: OverlayPlan | None = None

    def share(
        self,
        bags: Iterable[BagState],
        serving: Sequence[BagState],
        grids: Sequence[SupplySite],
        fits: Fits,
    ) -> list[SiteDemand]:
        """Return the work of each grid; ``bags``: all bags ever added, ``serving``: those that are
        not terminal.

        Work that no grid has room for is counted where it fits, in proportion to the grids' size:
        it waits there. Requests for nodes that are better placed elsewhere stay until the others
        have joined, so that no position in a queue is lost because of an estimate.
        """
        demand = np.array([compute_demand(bag) for bag in serving], np.int64)
        fit = _fit(serving, grids, fits)
        procs = np.array([grid.room.procs for grid in grids], np.int64)
        size = procs * np.array([grid.most for grid in grids], np.int64)
        plan = self._best(serving, demand, grids, fit)
        # what has no room now waits at the grids that fit, in proportion to their size
        waits = np.maximum(demand - plan.procs.sum(axis=1), 0)
        fitting_size = fit @ size
        by_size = np.divide(waits, fitting_size, out=np.zeros(len(waits)), where=fitting_size > 0)
        there = (
            plan.procs.sum(axis=0)
            + (by_size @ fit) * size
            + _count_requested_procs(plan, grids, fit)
        )
        ever = _sum_all_demand(bags, grids)
        return [
            SiteDemand(
                # rounding of the shares must not request one more node
                loads=ceil(float(there[g]) / procs[g] - 1e-9),
                arrived=ceil(ever[g] / procs[g]),
                task_s=max(
                    (
                        bag.typical_s or 0.0
                        for bag, ok in zip(serving, fit[:, g], strict=True)
                        if ok
                    ),
                    default=0.0,
                ),
            )
            for g in range(len(grids))
        ]

    def _best(
        self,
        serving: Sequence[BagState],
        demand: NDArray[np.int64],
        grids: Sequence[SupplySite],
        fit: NDArray[np.bool_],
    ) -> OverlayPlan:
        """Return the overlay's result. Demand beyond the size of a bag's grids makes no difference:
        so while many tasks wait, completed tasks cause no new computation."""
        rooms = [grid.room for grid in grids]
        reserved = np.minimum(
            demand, fit @ np.array([room.procs * room.room for room in rooms], np.int64)
        )
        state_key = (reserved.tobytes(), tuple(bag.weight for bag in serving), rooms, fit.tobytes())
        if self._plan is None or state_key != self._last_demand:
            demands = [
                Demand(procs=int(d), weight=bag.weight)
                for d, bag in zip(reserved, serving, strict=True)
            ]
            self._last_demand, self._plan = state_key, overlay(demands, rooms, fit)
        return self._plan


def _count_requested_procs(
    plan: OverlayPlan, grids: Sequence[SupplySite], fit: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the requested processors of each grid for work that is assigned to nodes of other
    grids which have not joined."""
    procs = np.array([grid.room.procs for grid in grids], np.int64)
    here = procs * np.array([grid.room.busy + grid.room.idle for grid in grids], np.int64)
    coming = procs * np.array([grid.room.coming for grid in grids], np.int64)
    # rows are bags, columns grids: work on nodes that have not joined, grid by grid,
    used = plan.procs.sum(axis=0)
    absent = plan.procs * (np.maximum(used - here, 0) / np.maximum(used, 1))
    # what of that each grid could do in place of the others,
    elsewhere = ((absent.sum(axis=1, keepdims=True) - absent) * fit).sum(axis=0)
    # and at most the requests there that its own work does not need
    procs_to_keep: NDArray[np.float64] = np.minimum(
        elsewhere, np.maximum(here + coming - np.maximum(used, here), 0)
    )
    return procs_to_keep


def _fit(serving: Sequence[BagState], grids: Sequence[SupplySite], fits: Fits) -> NDArray[np.bool_]:
    """Return which grid may serve which bag: by the sites it names, its tasks' processors, and its
    dispatch policy."""
    allowed = np.zeros((len(serving), len(grids)), np.bool_)
    for b, bag in enumerate(serving):
        for g, grid in enumerate(grids):
            if (not bag.sites or grid.site in bag.sites) and bag.procs <= grid.room.procs:
                allowed[b, g] = fits(bag.number, grid.ad)
    return allowed


def _sum_all_demand(bags: Iterable[BagState], grids: Sequence[SupplySite]) -> list[int]:
    """Return the processors that all tasks ever added would have kept busy, of the bags that may
    use each grid."""
    by_sites: dict[tuple[str, ...], int] = {}
    for bag in bags:
        by_sites[bag.sites] = by_sites.get(bag.sites, 0) + len(bag.tasks) * bag.procs
    return [
        sum(procs for sites, procs in by_sites.items() if not sites or grid.site in sites)
        for grid in grids
    ]
