"""How many hosts each grid should have for the work there is: the overlay constructor of GridBot
(Silberstein et al., SC 2009, doi:10.1145/1654059.1654071, §5, which names the problem and leaves
out how it is solved).

The programme, in processors, since hosts serve whatever bag fits them, and small bags share one::

    y[b, g] ≥ 0, whole, and 0 where demand b does not fit grid g
    Σ_g y[b, g] ≤ demand[b]
    Σ_b y[b, g] ≤ room[g] · processors of a host of g
    1. serve as much as can be served, the demands of most weight first;
    2. of what serves that, use hosts in this order: those that work, those that idle, and then,
       on their way or new, the cheapest by processor, of equal price those that come soonest
    hosts[g] = ⌈Σ_b y[b, g] / processors of a host of g⌉, the fewest that hold it

Both orders have proven optima that are whole numbers, without a solver. What can be served at once
are the independent sets of a transversal matroid, and so is what serves it; in a matroid the greedy
choice is best for every sum of weights and for the order itself (Edmonds 1971,
doi:10.1007/BF01584082), so that it does not matter by how much one weight is above another. And the
two do not hinder each other: a flow that serves the best demands and one that uses the best hosts
give one that does both (Mendelsohn and Dulmage 1958, doi:10.4153/CJM-1958-027-8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.compiled import compiled


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Work that waits or runs: so many processors would be kept busy at once."""

    procs: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRoom:
    """A grid: ``procs`` of one host; ``room``: hosts it may have in all, working, idle, on their
    way and new.

    ``coming_s``, ``wait_s``: seconds until hosts that were asked for, and new ones, are believed to
    come; ``price``: of a host by the hour; ``error_rate``: the share of requests that come to
    nothing.
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
        """Its hosts as (in which order to use them, how many of them), within its room."""
        again = 1.0 / max(1.0 - self.error_rate, 1e-3)  # requests until one succeeds
        new_s = max(self.wait_s * again, self.coming_s)  # not before what was asked for before
        price, left, found = self.price / self.procs, self.room, []
        for order, hosts in (
            ((0.0, price, 0.0), self.busy),
            ((1.0, price, 0.0), self.idle),
            ((2.0, price, self.coming_s), self.coming),
            ((2.0, price, new_s), left),
        ):
            taken = min(left, hosts)
            left -= taken
            found.append((order, taken))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Plan:
    """``procs[b, g]``: processors of grid g for demand b; ``hosts[g]``: hosts that this needs
    there."""

    procs: NDArray[np.int64]
    hosts: tuple[int, ...]


def overlay(demands: Sequence[Demand], grids: Sequence[GridRoom], fits: NDArray[np.bool_]) -> Plan:
    """The best hosts for the demands; ``fits[b, g]``: may grid g serve demand b?

    Demands of one weight that fit the same grids are one; it is divided among them in their order.
    """
    asked = np.array([demand.procs for demand in demands], np.int64)
    weights = np.array([demand.weight for demand in demands], np.float64)
    kinds: dict[bytes, int] = {}
    rows = np.column_stack((-weights, fits)) if len(demands) else np.zeros((0, 1 + len(grids)))
    kind = np.array([kinds.setdefault(row.tobytes(), len(kinds)) for row in rows], np.int64)
    first = np.unique(kind, return_index=True)[1]
    total = np.bincount(kind, asked, len(kinds)).astype(np.int64)
    flow = _best(total, weights[first], grids, np.ascontiguousarray(fits[first], np.bool_))
    order = np.argsort(kind, kind="stable")
    until, ends = np.cumsum(asked[order]), np.cumsum(flow, axis=1)
    until -= (np.cumsum(total) - total)[kind[order]]  # within its kind
    begun, until = (until - asked[order])[:, None], until[:, None]
    to, since = ends[kind[order]], (ends - flow)[kind[order]]
    procs = np.zeros((len(demands), len(grids)), np.int64)
    procs[order] = np.maximum(0, np.minimum(until, to) - np.maximum(begun, since))
    used = procs.sum(axis=0)
    hosts = tuple(-(-int(u) // grid.procs) for u, grid in zip(used, grids, strict=True))
    return Plan(procs, hosts)


def _best(
    asked: NDArray[np.int64],
    weights: NDArray[np.float64],
    grids: Sequence[GridRoom],
    fits: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Processors of each grid for each kind of demand."""
    flow, left = np.zeros((len(asked), len(grids)), np.int64), asked.copy()
    parts = sorted(
        (order, g, hosts * grid.procs)
        for g, grid in enumerate(grids)
        for order, hosts in grid.parts
        if hosts
    )
    if not len(asked) or not parts:
        return flow
    where = np.array([g for _, g, _ in parts], np.int64)
    room = np.array([procs for _, _, procs in parts], np.int64)
    fill = _fill.after(flow.size + len(parts) * len(asked))
    fill(fits, left, where, room, flow)
    if not left.any():
        return flow
    heaviest = np.argsort(-weights, kind="stable")  # not all is served: the weights say what is
    used, turned = flow.sum(axis=0), np.zeros(flow.T.shape, np.int64)
    fill(np.ascontiguousarray(fits.T), used, heaviest, asked[heaviest], turned)
    return np.ascontiguousarray(turned.T)


@compiled
def _fill(fits, left, where, room, flow):  # type: ignore[no-untyped-def]
    """Fill the columns, part after part: each with as much of what is left as all before it allow.

    What fills a column never leaves it but for as much from elsewhere: so what came earlier stays
    best. ``fits``, ``flow``: rows × columns; ``left``: what each row has still to give. ``left``
    and ``flow`` are changed.
    """
    columns = flow.shape[1]
    dead = np.zeros(columns, np.bool_)  # nothing can be brought there any more
    queue, to, by = (
        np.empty(columns, np.int64),
        np.empty(columns, np.int64),
        np.empty(columns, np.int64),
    )
    for part in range(len(where)):
        goal, more = where[part], room[part]
        while more > 0 and not dead[goal]:
            gained, reached, all_seen = _gain(fits, left, flow, dead, goal, more, queue, to, by)
            more -= gained
            if more > 0 and all_seen:
                for k in range(reached):
                    dead[queue[k]] = True


@compiled
def _gain(fits, left, flow, dead, goal, most, queue, to, by):  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917
    """Bring what is left of rows to the goal, also by moving on what is in its way, until a way is
    used up.

    From column q what row ``by[q]`` has there may move on to column ``to[q]``. How much was gained,
    how many columns were reached (they are in ``queue``), and whether these were all there are.
    """
    rows, columns = flow.shape
    seen, known = np.zeros(rows, np.bool_), dead.copy()
    queue[0], known[goal] = goal, True
    begun, reached, gained = 0, 1, 0
    while begun < reached:
        column = queue[begun]
        begun += 1
        for row in range(rows):
            while fits[row, column] and left[row] > 0:
                if gained == most:
                    return gained, reached, False
                gained += _push(left, flow, goal, row, column, to, by, most - gained)
                if not _mend(fits, flow, goal, column, to, by):
                    return gained, reached, False
        for row in range(rows):
            if fits[row, column] and not seen[row]:
                seen[row] = True
                for other in range(columns):
                    if flow[row, other] > 0 and not known[other]:
                        known[other], to[other], by[other] = True, column, row
                        queue[reached] = other
                        reached += 1
    return gained, reached, True


@compiled
def _push(left, flow, goal, row, column, to, by, most):  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917
    """Bring as much of a row to the goal as the way allows; how much it was."""
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
def _mend(fits, flow, goal, column, to, by):  # type: ignore[no-untyped-def]
    """Other rows that may move on where one has no more; False where there is none."""
    at = column
    while at != goal:
        if not flow[by[at], at]:
            found = False
            for row in range(flow.shape[0]):
                if flow[row, at] > 0 and fits[row, to[at]]:
                    by[at], found = row, True
                    break
            if not found:
                return False
        at = to[at]
    return True
