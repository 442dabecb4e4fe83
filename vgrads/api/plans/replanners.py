"""Planners of a run that is under way: of its remainder, and of added tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from vgrads.api.plans.planning import GridSnapshot, as_planned, take_slots, with_live_queues
from vgrads.execmgr.core.acquisitions import acquisitions
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.remainder import plan_added_tasks, plan_remainder
from vgrads.execmgr.core.states import RunState
from vgrads.execmgr.runner import Grower, Replanner
from vgrads.planner.replan import Offers
from vgrads.workflows.task import Task

StorePlan = Callable[[int, ExecutionPlan], object]
"""Stores an execution plan with its version, before it becomes valid."""


def replanner(grid: GridSnapshot, names: tuple[str, ...], store: StorePlan) -> Replanner:
    """Return the planner for the remainder, over new offers of the same sites; its execution plans
    are stored before they become valid.

    Acquisitions of the run's own slots so far count as observations.
    """

    def again(execution: ExecutionPlan, state: RunState) -> tuple[ExecutionPlan | None, str]:
        plan, reason = plan_remainder(execution, state, _offers(grid, names, execution, state))
        if plan is not None:
            store(state.version + 1, plan)
        return plan, reason

    return again


def task_adder(grid: GridSnapshot, names: tuple[str, ...], store: StorePlan) -> Grower:
    """The same with added tasks, with run times learned for their kinds."""

    def larger(
        execution: ExecutionPlan, state: RunState, added: Sequence[tuple[str, Task]]
    ) -> tuple[ExecutionPlan | None, str]:
        offers = _offers(grid, names, execution, state)
        plan, reason = plan_added_tasks(execution, state, offers, as_planned(added, grid))
        if plan is not None:
            store(state.version + 1, plan)
        return plan, reason

    return larger


def _offers(
    grid: GridSnapshot, names: tuple[str, ...], execution: ExecutionPlan, state: RunState
) -> Offers:
    sites = tuple(site for site in grid.catalog.sites if site.name in names)
    usable = replace(grid, catalog=replace(grid.catalog, sites=sites))
    wiser = replace(
        with_live_queues(usable, state.now_s),
        observed=(*usable.observed, *acquisitions(execution, state)),
    )
    return lambda rest: take_slots(rest, wiser)
