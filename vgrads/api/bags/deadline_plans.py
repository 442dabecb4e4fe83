"""Plans for bags and matrices with a deadline, before they run: how many nodes, where, at which
cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vgrads.api.bags.sites import check_places, find_places
from vgrads.api.plans.unit_mistakes import find_question
from vgrads.bags.bag import BagGoal
from vgrads.dispatch.axes import MOST_TASKS
from vgrads.dispatch.document import BagDocument, build_bag, load_bag
from vgrads.dispatch.fleet.goal_view import source_of
from vgrads.dispatch.fleet.site_view import SiteHealth, SiteInventory
from vgrads.kernel.deadline import as_written
from vgrads.kernel.documents import load_mapping
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, format_seconds
from vgrads.pool.deadline.plan import DeadlinePlan, Goal, PlannedNodes, plan_nodes
from vgrads.pool.deadline.values import NodeSource, Work
from vgrads.pool.deadline.width import Width
from vgrads.pool.spot.history import SpotHistory
from vgrads.vgrid.catalog import Catalog
from vgrads.workflows.generated.blocks import DISPATCH_S, BlockGrid, block_of

_FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
_SCENARIOS, _SCENARIOS_OF_CURVE = 400, 200


@dataclass(frozen=True, kw_only=True)
class GoalOverrides:
    """What the command line states instead of the bag. ``deadline_s``: from now;
    ``deadline_text``: as written."""

    deadline_s: float | None = None
    deadline_text: str = ""
    probability: float | None = None
    budget_usd: float | None = None


def answer_deadline_plan(path: Path, catalog: Catalog, overrides: GoalOverrides) -> dict[str, Any]:
    """Return ``vgrads size BAG --sites SITES --json``: the cheapest plan, the front of cost and
    probability, and the cost by deadline."""
    document, _ = load_bag(path)
    goal = _read_goal(document, str(path), overrides)
    if document.runtime_s is None:
        raise InputError(
            "is not given: no promise is possible before the first tasks have run",
            where=f"{path}: runtime_s",
            fix="give runtime_s",
        )
    check_places(catalog, document)
    tasks = len(build_bag(document, path.resolve().parent).commands)
    work = Work(tasks=goal.required(tasks), mean_s=document.runtime_s)
    text = (
        f"{work.tasks:,} of {format_count(tasks, 'task')} of {format_seconds(document.runtime_s)}"
    )
    stated = overrides.deadline_text or as_written(load_mapping(path).get("deadline", ""))
    return _answer(text, work, goal, _make_sources(catalog, document, goal), stated)


def answer_matrix_plan(
    kind: str, sides: tuple[int, int], cell_s: float, catalog: Catalog, overrides: GoalOverrides
) -> dict[str, Any]:
    """Return the same for ``vgrads size --wavefront N --sites SITES``, in the blocks that ``vgrads
    wavefront`` chooses, one processor each. ``sides``: rows and columns; ``cell_s``: run time of a
    cell."""
    document = BagDocument(name=kind, command="block", runtime_s=cell_s)
    check_places(catalog, document)
    goal = _read_goal(document, f"--{kind}", overrides)
    cells = BlockGrid(kind, *sides, 1, 1)
    workers = sum(site.limits.most * site.procs for site in find_places(catalog, [document]))
    side = block_of(cells, cell_s, max(1, workers))
    grid = replace(cells, high=min(side, cells.rows), wide=min(side, cells.cols))
    blocks = grid.order.size
    if blocks > MOST_TASKS:
        raise InputError(
            f"has {format_count(blocks, 'block')}; at most {MOST_TASKS:,} are accepted",
            where=f"--{kind}",
        )
    levels = grid.order.levels(np.ones(blocks, np.bool_))
    work = Work(
        tasks=blocks,
        mean_s=cell_s * grid.cells / blocks + DISPATCH_S,
        width=None if levels is None else Width(levels),
    )
    text = (
        f"{kind}, {grid.rows} x {format_count(grid.cols, 'cell')} of {format_seconds(cell_s)}, in "
        f"{format_count(blocks, 'block')} of "
        f"{grid.high} x {grid.wide}"
    )
    return _answer(
        text, work, goal, _make_sources(catalog, document, goal), overrides.deadline_text
    )


def _answer(
    text: str, work: Work, goal: BagGoal, nodes: tuple[NodeSource, ...], deadline_text: str
) -> dict[str, Any]:
    chosen = plan_nodes(work, nodes, _scale_goal(goal, 1.0), _SCENARIOS)
    curve = {
        factor: plan_nodes(work, nodes, _scale_goal(goal, factor), _SCENARIOS_OF_CURVE)
        for factor in _FACTORS
        if factor != 1.0
    }
    # plans are simulated: by chance, one for a later deadline may seem less probable
    by_factor = dict(never_falling(sorted((curve | {1.0: chosen}).items()), goal.probability))
    best = by_factor[1.0]
    suffice = [f for f, plan in by_factor.items() if f != 1.0 and plan.enough]
    enough_s = suffice[0] * goal.deadline_s if suffice else None
    return {
        "work": text,
        "question": "" if best.enough else find_question(deadline_text, enough_s),
        "deadline_s": goal.deadline_s,
        "requested": goal.probability,
        "budget_usd": goal.budget_usd,
        "enough": best.enough,
        "promise": best.promise,
        "chosen": _make_row(best.chosen, nodes),
        "front": [_make_row(planned, nodes) for planned in chosen.front],
        "deadlines": [
            {"deadline_s": goal.deadline_s * factor} | _compute_cost(plan, nodes)
            for factor, plan in by_factor.items()
        ],
    }


def never_falling(
    plans: Iterable[tuple[float, DeadlinePlan]], requested: float
) -> Iterator[tuple[float, DeadlinePlan]]:
    """Return plans of ever later deadlines, each at least as probable as those before it, up to the
    requested probability: a plan also keeps a later deadline."""
    best: DeadlinePlan | None = None
    for factor, plan in plans:
        if best is None or _compute_worth(plan, requested) >= _compute_worth(best, requested):
            best = plan
        yield factor, best


def _compute_worth(plan: DeadlinePlan, requested: float) -> tuple[bool, float]:
    return plan.enough, min(plan.chosen.probability, requested)


def _read_goal(document: BagDocument, where: str, overrides: GoalOverrides) -> BagGoal:
    deadline_s = overrides.deadline_s or document.deadline_s
    if deadline_s is None:
        raise InputError("is not given", where=f"{where}: deadline", fix="give --deadline")
    goal = document.goal or BagGoal(deadline_s=deadline_s)
    return replace(
        goal,
        deadline_s=deadline_s,
        probability=overrides.probability or goal.probability,
        budget_usd=goal.budget_usd if overrides.budget_usd is None else overrides.budget_usd,
    )


def _scale_goal(goal: BagGoal, factor: float) -> Goal:
    return Goal(
        deadline_s=goal.deadline_s * factor,
        probability=goal.probability,
        budget_usd=goal.budget_usd,
    )


def _make_sources(catalog: Catalog, document: BagDocument, goal: BagGoal) -> tuple[NodeSource, ...]:
    # with a goal, of whatever probability, spot nodes are listed too
    stated = document.model_copy(update={"deadline": goal.deadline_s, "probability": 0.5})
    places, procs = find_places(catalog, [stated]), document.procs
    spot = {where.site: where for where in places if where.market}
    results = []
    for where in places:
        if where.market or where.procs < procs:
            continue
        source = source_of(where, SiteInventory(), SiteHealth(), procs, 0.0)
        if where.site in spot:
            source = replace(
                source,
                spot_usd_per_hour=spot[where.site].price,
                history=SpotHistory(0.0, first=True),
                observed=False,
            )
        results.append(source)
    return tuple(results)


def _make_row(planned: PlannedNodes, sources: tuple[NodeSource, ...]) -> dict[str, Any]:
    queues = [source.name for source in sources if not source.cloud]
    nodes = dict(zip(queues, planned.plan.queues, strict=True))
    if planned.plan.cloud:
        nodes[planned.cloud] = planned.plan.cloud
    return {
        "nodes": {name: count for name, count in nodes.items() if count},
        "probability": planned.probability,
        "cost_usd": planned.cost_usd,
        "cost_high_usd": planned.cost_high_usd,
        "node_hours": planned.node_hours,
        "end_s": planned.end_s if math.isfinite(planned.end_s) else None,
    }


def _compute_cost(plan: DeadlinePlan, sources: tuple[NodeSource, ...]) -> dict[str, Any]:
    return {"enough": plan.enough, **_make_row(plan.chosen, sources)}
