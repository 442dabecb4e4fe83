"""Number of nodes for each grid for the current work: the overlay constructor of GridBot
(Silberstein et al., SC 2009, doi:10.1145/1654059.1654071, §5, which states the problem and omits
its solution).

The programme, in processors, since nodes serve any bag that fits them, and small bags share one::

    y[b, g] ≥ 0, whole, and 0 where demand b does not fit grid g
    Σ_g y[b, g] ≤ demand[b]
    Σ_b y[b, g] ≤ room[g] · processors of a host of g
    1. serve as much as can be served, the demands of most weight first;
    2. of what serves that, use hosts in this order: those that work, those that idle, and then,
       on their way or new, the cheapest by processor, of equal price those that come soonest
    hosts[g] = ⌈Σ_b y[b, g] / processors of a host of g⌉, the fewest that hold it

Both orders have proven optima in whole numbers, without a solver. The sets of demand that can be
served at once are the independent sets of a transversal matroid, and so are the sets of processors
that serve it; in a matroid the greedy choice is best for every sum of weights and for the order
itself (Edmonds 1971, doi:10.1007/BF01584082), so the distance between weights does not matter. The
two do not conflict: a flow that serves the best demands and one that uses the best nodes yield one
that does both (Mendelsohn and Dulmage 1958, doi:10.4153/CJM-1958-027-8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.compiled import compiled


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Waiting or running work: the number of processors that it would keep busy at once."""

    procs: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRoom:
    """A grid: ``procs`` of one node; ``room``: maximum number of nodes, working, idle, requested
    and new.

    ``coming_s``, ``wait_s``: expected seconds until requested nodes, and new ones, join; ``price``:
    of a node per hour; ``error_rate``: the share of requests that fail.
    """

    procs: int
    room: int
    busy: int = 0
    idle: int = 0
    coming: int = 0
    coming_s: float = 0.0
    wait_s: float = 0.0
    price: float = 0.0
    error_rate: float = 0.0

    @property
    def parts(self) -> tuple[tuple[tuple[float, ...], int], ...]:
        """Return its nodes as (order of use, number), within its room."""
        # a grid whose requests all fail stays in the order, far behind the others
        again = 1.0 / max(1.0 - self.error_rate, 1e-3)  # requests until one succeeds
        new_s = max(self.wait_s * again, self.coming_s)  # not before earlier requests
        price, left, result = self.price / self.procs, self.room, []
        for order, nodes in (
            ((0.0, price, 0.0), self.busy),
            ((1.0, price, 0.0), self.idle),
            ((2.0, price, self.coming_s), self.coming),
            ((2.0, price, new_s), left),
        ):
            taken = min(left, nodes)
            left -= taken
            result.append((order, taken))
        return tuple(result)


@dataclass(frozen=True, slots=True)
class OverlayPlan:
    """``procs[b, g]``: processors of grid g for demand b; ``nodes[g]``: nodes that this needs
    there."""

    procs: NDArray[np.int64]
    nodes: tuple[int, ...]


def overlay(
    demands: Sequence[Demand], grids: Sequence[GridRoom], fits: NDArray[np.bool_]
) -> OverlayPlan:
    """Return the best nodes for the demands; ``fits[b, g]``: may grid g serve demand b?

    Demands of equal weight that fit the same grids are merged; the result is divided among them in
    their order.
    """
    requested = np.array([demand.procs for demand in demands], np.int64)
    weights = np.array([demand.weight for demand in demands], np.float64)
    kinds: dict[bytes, int] = {}
    rows = np.column_stack((-weights, fits)) if len(demands) else np.zeros((0, 1 + len(grids)))
    kind = np.array([kinds.setdefault(row.tobytes(), len(kinds)) for row in rows], np.int64)
    first = np.unique(kind, return_index=True)[1]
    total = np.bincount(kind, requested, len(kinds)).astype(np.int64)
    flow = _find_best(total, weights[first], grids, np.ascontiguousarray(fits[first], np.bool_))
    order = np.argsort(kind, kind="stable")
    until, ends = np.cumsum(requested[order]), np.cumsum(flow, axis=1)
    until -= (np.cumsum(total) - total)[kind[order]]  # within its kind
    begun, until = (until - requested[order])[:, None], until[:, None]
    to, since = ends[kind[order]], (ends - flow)[kind[order]]
    procs = np.zeros((len(demands), len(grids)), np.int64)
    procs[order] = np.maximum(0, np.minimum(until, to) - np.maximum(begun, since))
    used = procs.sum(axis=0)
    nodes = tuple(-(-int(u) // grid.procs) for u, grid in zip(used, grids, strict=True))
    return OverlayPlan(procs, nodes)


def _find_best(
    requested: NDArray[np.int64],
    weights: NDArray[np.float64],
    grids: Sequence[GridRoom],
    fits: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Return the processors of each grid for each kind of demand."""
    flow, left = np.zeros((len(requested), len(grids)), np.int64), requested.copy()
    parts = sorted(
        (order, g, nodes * grid.procs)
        for g, grid in enumerate(grids)
        for order, nodes in grid.parts
        if nodes
    )
    if not len(requested) or not parts:
        return flow
    where = np.array([g for _, g, _ in parts], np.int64)
    room = np.array([procs for _, _, procs in parts], np.int64)
    fill = _fill.after(flow.size + len(parts) * len(requested))
    fill(fits, left, where, room, flow)
    if not left.any():
        return flow
    heaviest = np.argsort(-weights, kind="stable")  # not all can be served: by weight
    # the same with exchanged roles: what the grids give is divided among demands, heaviest first
    used, turned = flow.sum(axis=0), np.zeros(flow.T.shape, np.int64)
    fill(np.ascontiguousarray(fits.T), used, heaviest, requested[heaviest], turned)
    return np.ascontiguousarray(turned.T)


@compiled
def _fill(fits, left, where, room, flow):  # type: ignore[no-untyped-def]
    """Fill the columns, part after part: each with as much of the remaining demand as the earlier
    ones allow.

    Demand in a column leaves it only in exchange for as much from elsewhere: so earlier columns
    stay optimal. ``fits``, ``flow``: rows × columns; ``left``: remaining demand of each row.
    ``left`` and ``flow`` are changed.
    """
    columns = flow.shape[1]
    dead = np.zeros(columns, np.bool_)  # no more demand can be moved there
    queue, to, by = (
        np.empty(columns, np.int64),
        np.empty(columns, np.int64),
        np.empty(columns, np.int64),
    )
    for part in range(len(where)):
        goal, more = where[part], room[part]
        while more > 0 and not dead[goal]:
            gained, reached, all_records = _improve_goal(
                fits, left, flow, dead, goal, more, queue, to, by
            )
            more -= gained
            if more > 0 and all_records:
                for k in range(reached):
                    dead[queue[k]] = True


@compiled
def _improve_goal(fits, left, flow, dead, goal, most, queue, to, by):  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917
    """Move remaining demand of rows to the goal, also by moving on demand in its way, until a path
    is used up.

    From column q the demand of row ``by[q]`` may move on to column ``to[q]``. Returns how much was
    gained, how many columns were reached (they are in ``queue``), and whether these were all
    reachable ones.
    """
    rows, columns = flow.shape
    visited, closed = np.zeros(rows, np.bool_), dead.copy()
    queue[0], closed[goal] = goal, True
    begun, reached, gained = 0, 1, 0
    while begun < reached:
        column = queue[begun]
        begun += 1
        for row in range(rows):
            while fits[row, column] and left[row] > 0:
                if gained == most:
                    return gained, reached, False
                gained += _push(left, flow, goal, row, column, to, by, most - gained)
                if not _repair(fits, flow, goal, column, to, by):
                    return gained, reached, False
        for row in range(rows):
            if fits[row, column] and not visited[row]:
                visited[row] = True
                for other in range(columns):
                    if flow[row, other] > 0 and not closed[other]:
                        closed[other], to[other], by[other] = True, column, row
                        queue[reached] = other
                        reached += 1
    return gained, reached, True


@compiled
def _push(left, flow, goal, row, column, to, by, most):  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917
    """Move as much of a row to the goal as the path allows; return how much."""
    amount = min(most, left[row])
    at = column
    while at != goal:
        amount = min(amount, flow[by[at], at])
        at = to[at]
    left[row] -= amount
    flow[row, column] += amount
    at = column
    while at != goal:
        flow[by[at], at] -= amount
        flow[by[at], to[at]] += amount
        at = to[at]
    return amount


@compiled
def _repair(fits, flow, goal, column, to, by):  # type: ignore[no-untyped-def]
    """Find other rows that may move on where one has no more; return False where there is none."""
    at = column
    while at != goal:
        if not flow[by[at], at]:
            progress = False
            for row in range(flow.shape[0]):
                if flow[row, at] > 0 and fits[row, to[at]]:
                    by[at], progress = row, True
                    break
            if not progress:
                return False
        at = to[at]
    return True
