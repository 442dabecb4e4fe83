"""The integer programme of procurement, and the greedy choice as a substitute.

Binary variables: a slot is requested; a cluster is used at a width. Constraints: expected nodes
reach the target; slots of a cluster have one width and are taken in order; tight groups get
clusters that hold them whole; money, node-hours and jobs stay within the remaining limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pulp

from vgrads.vgrid.catalog import Catalog
from vgrads.vgrid.request import GridRequest, NodeGroup
from vgrads.vgrid.shapes import SlotOption
from vgrads.vgrid.solver import Highs

_SECONDS = 2.0
_GAP = 0.01
_NODE_HOUR = 1e-3
"""Penalty of a node-hour: among equals, use less of other people's machines."""

_SLOT = 0.01
"""Penalty of a slot: among equals, request few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSelection:
    """Chosen slots, the solver, and the gap to the best."""

    choices: tuple[SlotOption, ...]
    solver: str
    gap: float | None


@dataclass(frozen=True, kw_only=True)
class RemainingLimits:
    """Remaining money and node-hours of each site; slots used of each cluster, processors of each
    pool."""

    budget_usd: float | None
    node_hours: dict[str, float]
    used: dict[str, int]
    taken: dict[str, int]

    @classmethod
    def of(cls, catalog: Catalog, request: GridRequest) -> RemainingLimits:
        """Return the limits of a request and of the sites' allocations."""
        hours = {s.name: s.node_hours for s in catalog.sites if s.node_hours is not None}
        return cls(budget_usd=request.budget_usd, node_hours=hours, used={}, taken={})

    def jobs_used(self, choice: SlotOption) -> int:
        """Return the slots of the choice's cluster that other groups use."""
        return self.used.get(choice.cluster, 0)

    def room(self, choice: SlotOption) -> int:
        """Return the processors left in the choice's pool."""
        return choice.room - self.taken.get(choice.pool, 0)

    def less(self, taken: Sequence[SlotOption]) -> RemainingLimits:
        """Return the limits that remain after these."""
        budget = self.budget_usd
        if budget is not None:
            # in cents: sums of prices are not exact in binary fractions
            budget = round(budget - sum(c.cost_usd for c in taken), 2)
        hours, used, pools = dict(self.node_hours), dict(self.used), dict(self.taken)
        for choice in taken:
            if choice.slot.site in hours:
                hours[choice.slot.site] -= choice.node_hours
            used[choice.cluster] = max(used.get(choice.cluster, 0), choice.position)
            pools[choice.pool] = pools.get(choice.pool, 0) + choice.slot.procs
        return replace(self, budget_usd=budget, node_hours=hours, used=used, taken=pools)

    def allow(self, taken: Sequence[SlotOption]) -> bool:
        """True if money, node-hours and processors suffice for all of these."""
        left = self.less(taken)
        money = left.budget_usd is None or left.budget_usd >= -1e-9
        hours = all(hours >= -1e-9 for hours in left.node_hours.values())
        return money and hours and all(left.room(choice) >= 0 for choice in taken)


def compute_penalty(choice: SlotOption, group: NodeGroup) -> float:
    """Return the penalty of a slot: dollars, other people's node-hours, and the caller's rank."""
    ranked = {
        "probability": choice.width * (1.0 - choice.probability),
        "speed": choice.width / choice.slot.speed,
        "price": 9.0 * choice.cost_usd,
        "start": choice.width * min(1e3, float(choice.slot.curve.ready_at(0.5)) / 3600.0),
    }[group.rank]
    return choice.cost_usd + _NODE_HOUR * choice.node_hours + _SLOT + 0.1 * ranked


def solve(
    choices: Sequence[SlotOption], group: NodeGroup, target: float, limits: RemainingLimits
) -> SlotSelection | None:
    """Solve the integer programme with HiGHS; None if it is infeasible or the solver stops."""
    model = pulp.LpProblem("procure", pulp.LpMinimize)
    take = [model.add_variable(f"x{n}", cat="Binary") for n in range(len(choices))]
    lanes = sorted({(c.cluster, c.width) for c in choices})
    use = {lane: model.add_variable(f"u{n}", cat="Binary") for n, lane in enumerate(lanes)}
    model += pulp.lpSum(compute_penalty(c, group) * x for c, x in zip(choices, take, strict=True))
    expected = pulp.lpSum(c.width * c.probability * x for c, x in zip(choices, take, strict=True))
    model += expected >= target - 1e-9
    for cluster in sorted({c.cluster for c in choices}):
        model += pulp.lpSum(use[lane] for lane in lanes if lane[0] == cluster) <= 1
    for lane in lanes:
        rows = [n for n, c in enumerate(choices) if (c.cluster, c.width) == lane]
        rows.sort(key=lambda n: choices[n].position)
        for before, after in pairwise(rows):
            # the curve of a slot assumes that those of earlier positions wait before it
            model += take[after] <= take[before]
        model += take[rows[0]] <= use[lane]
        if group.coupling == "tight":
            model += pulp.lpSum(lane[1] * take[n] for n in rows) >= group.least * use[lane]
    _limit(model, take, choices, limits)
    return _run(model, take, choices)


def _limit(
    model: pulp.LpProblem,
    take: Sequence[pulp.LpVariable],
    choices: Sequence[SlotOption],
    limits: RemainingLimits,
) -> None:
    rows = list(zip(choices, take, strict=True))
    if limits.budget_usd is not None:
        model += pulp.lpSum(c.cost_usd * x for c, x in rows) <= limits.budget_usd
    for site, hours in limits.node_hours.items():
        model += pulp.lpSum(c.node_hours * x for c, x in rows if c.slot.site == site) <= hours
    pools = {c.pool: limits.room(c) for c in choices}
    for pool, room in pools.items():
        model += pulp.lpSum(c.slot.procs * x for c, x in rows if c.pool == pool) <= room


def _run(
    model: pulp.LpProblem, take: Sequence[pulp.LpVariable], choices: Sequence[SlotOption]
) -> SlotSelection | None:
    solver = Highs(_SECONDS, _GAP)
    if not choices:
        return None
    model.solve(solver)
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return None
    # solvers return binary variables as floating-point numbers near 0 and 1
    chosen = tuple(c for c, x in zip(choices, take, strict=True) if (x.value() or 0.0) > 0.5)
    gap = solver.gap
    if gap is not None and gap >= 1e9:
        gap = None
    return SlotSelection(choices=chosen, solver="highs", gap=gap)


def greedy(
    choices: Sequence[SlotOption], group: NodeGroup, target: float, limits: RemainingLimits
) -> SlotSelection | None:
    """Take whole lanes (a cluster at a width) by penalty per expected node, until the target is
    reached."""
    lanes: dict[tuple[str, int], list[SlotOption]] = {}
    for choice in sorted(choices, key=lambda c: c.position):
        lanes.setdefault((choice.cluster, choice.width), []).append(choice)
    taken: list[SlotOption] = []
    clusters: set[str] = set()
    for lane in sorted(lanes, key=lambda lane: _compute_price(lanes[lane], group)):
        if lane[0] in clusters:
            continue
        missing = target - sum(c.width * c.probability for c in taken)
        if missing <= 1e-9:
            break
        part = _require_enough(lanes[lane], group, missing)
        while part and not limits.allow([*taken, *part]):
            # from the end, so that the positions of the rest stay without gaps
            part.pop()
        if part and (group.coupling == "loose" or sum(c.width for c in part) >= group.least):
            taken += part
            clusters.add(lane[0])
    met = sum(c.width * c.probability for c in taken) >= target - 1e-9
    return SlotSelection(choices=tuple(taken), solver="greedy", gap=None) if met else None


def _compute_price(lane: Sequence[SlotOption], group: NodeGroup) -> float:
    nodes = sum(c.width * c.probability for c in lane)
    return sum(compute_penalty(c, group) for c in lane) / max(nodes, 1e-9)


def _require_enough(
    lane: Sequence[SlotOption], group: NodeGroup, missing: float
) -> list[SlotOption]:
    """Return the missing number of slots of a lane; a tight group gets its nodes whole."""
    part: list[SlotOption] = []
    for choice in lane:
        whole = group.coupling == "loose" or sum(c.width for c in part) >= group.least
        if whole and sum(c.width * c.probability for c in part) >= missing:
            break
        part.append(choice)
    return part
