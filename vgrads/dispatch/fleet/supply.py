"""The work there is, brought to the grids that may serve it: what the overlay constructor is asked,
and its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from vgrads.dispatch.core.bag_state import BagState
from vgrads.pool.overlay import Demand, GridRoom, Plan, overlay

Fits = Callable[[int, Mapping[str, object]], bool]
"""Is a grid, told as its ad, fit for a bag (its number)? Asked at each look."""


def demand_of(bag: BagState) -> int:
    """Processors that a bag's tasks would keep busy, those that wait and those that run."""
    return (bag.tasks.pending + len(bag.tasks.where)) * bag.procs


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A site as it stands. ``most``: hosts it may ever have; ``ad``: what a bag's policy sees of
    it."""

    site: str
    room: GridRoom
    most: int
    ad: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What there is to do at a site, in hosts that it would keep busy: now, and ever since the
    beginning.

    ``task_s``: how long the longest tasks run that may come there.
    """

    loads: int
    arrived: int
    task_s: float


@dataclass
class Supply:
    """Remembers the last answer: it stands while nothing has changed that it rests on."""

    _asked: object = None
    _plan: Plan | None = None

    def share(
        self,
        bags: Iterable[BagState],
        serving: Sequence[BagState],
        grids: Sequence[Grid],
        fits: Fits,
    ) -> list[Work]:
        """The work of each grid; ``bags``: all that ever came, ``serving``: those that are not
        over.

        What no grid has room for counts where it fits, by how much these hold: it waits there.
        Requests for hosts that are better had elsewhere stay until these have come, so that no
        place in a queue is lost for a belief.
        """
        demand = np.array([demand_of(bag) for bag in serving], np.int64)
        fit = _fit(serving, grids, fits)
        procs = np.array([grid.room.procs for grid in grids], np.int64)
        size = procs * np.array([grid.most for grid in grids], np.int64)
        plan = self._best(serving, demand, grids, fit)
        waits = np.maximum(demand - plan.procs.sum(axis=1), 0)
        reach = fit @ size
        by_size = np.divide(waits, reach, out=np.zeros(len(waits)), where=reach > 0)
        there = plan.procs.sum(axis=0) + (by_size @ fit) * size + _kept(plan, grids, fit)
        ever = _ever(bags, grids)
        return [
            Work(
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
        grids: Sequence[Grid],
        fit: NDArray[np.bool_],
    ) -> Plan:
        """The overlay's answer. More demand than a bag's grids hold is all the same to it: so while
        much waits, tasks that end ask nothing new."""
        rooms = [grid.room for grid in grids]
        held = np.minimum(
            demand, fit @ np.array([room.procs * room.room for room in rooms], np.int64)
        )
        asked = (held.tobytes(), tuple(bag.weight for bag in serving), rooms, fit.tobytes())
        if self._plan is None or asked != self._asked:
            demands = [
                Demand(procs=int(d), weight=bag.weight)
                for d, bag in zip(held, serving, strict=True)
            ]
            self._asked, self._plan = asked, overlay(demands, rooms, fit)
        return self._plan


def _kept(plan: Plan, grids: Sequence[Grid], fit: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Processors that are on their way to each grid, for work that is to go to hosts of others that
    have not come."""
    procs = np.array([grid.room.procs for grid in grids], np.int64)
    here = procs * np.array([grid.room.busy + grid.room.idle for grid in grids], np.int64)
    coming = procs * np.array([grid.room.coming for grid in grids], np.int64)
    used = plan.procs.sum(axis=0)
    absent = plan.procs * (np.maximum(used - here, 0) / np.maximum(used, 1))
    elsewhere = ((absent.sum(axis=1, keepdims=True) - absent) * fit).sum(axis=0)
    kept: NDArray[np.float64] = np.minimum(
        elsewhere, np.maximum(here + coming - np.maximum(used, here), 0)
    )
    return kept


def _fit(serving: Sequence[BagState], grids: Sequence[Grid], fits: Fits) -> NDArray[np.bool_]:
    """Which grid may serve which bag: by the sites it names, its tasks' processors, and its
    policy."""
    found = np.zeros((len(serving), len(grids)), np.bool_)
    for b, bag in enumerate(serving):
        for g, grid in enumerate(grids):
            if (not bag.sites or grid.site in bag.sites) and bag.procs <= grid.room.procs:
                found[b, g] = fits(bag.number, grid.ad)
    return found


def _ever(bags: Iterable[BagState], grids: Sequence[Grid]) -> list[int]:
    """Processors that all tasks which ever came would have kept busy, of the bags that may use each
    grid."""
    by_sites: dict[tuple[str, ...], int] = {}
    for bag in bags:
        by_sites[bag.sites] = by_sites.get(bag.sites, 0) + len(bag.tasks) * bag.procs
    return [
        sum(procs for sites, procs in by_sites.items() if not sites or grid.site in sites)
        for grid in grids
    ]
