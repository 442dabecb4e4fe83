"""Planners of a run that is under way: of its remainder, and of added tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from vgrads.api.config import read_planning_effort
from vgrads.api.plans.planning import (
    GridSnapshot,
    QueueKey,
    add_live_queues,
    prepare_added_tasks,
    take_slots,
)
from vgrads.api.wiring import is_real
from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.acquisitions import list_acquisitions
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.remainder import (
    find_sufficient_changes,
    plan_added_tasks,
    plan_remainder,
    plan_request,
)
from vgrads.execmgr.core.states import RequestChange, RunState, SlotRecord
from vgrads.execmgr.runner import ChangedPlan, Grower, Replanner, RequestChanger
from vgrads.kernel.errors import InputError
from vgrads.planner.plan import Relaxation, SlotUse
from vgrads.planner.replan import Offers
from vgrads.vgrid.catalog import Catalog
from vgrads.vgrid.offers import OwnJobs
from vgrads.vgrid.slot import Slot
from vgrads.workflows.task import Task

StorePlan = Callable[[int, ExecutionPlan], object]
"""Stores an execution plan with its version, before it becomes valid."""


def make_replanner(grid: GridSnapshot, names: tuple[str, ...], store: StorePlan) -> Replanner:
    """Return the planner for the remainder, over new offers of the same sites, with the effort that
    the environment states; its execution plans are stored before they become valid.

    Acquisitions of the run's own slots so far count as observations.
    """

    def again(execution: ExecutionPlan, state: RunState) -> tuple[ExecutionPlan | None, str]:
        offers = _make_offers(grid, names, execution, state)
        plan, reason = plan_remainder(execution, state, offers, read_planning_effort())
        if plan is not None:
            store(state.version + 1, plan)
        return plan, reason

    return again


def make_task_adder(grid: GridSnapshot, names: tuple[str, ...], store: StorePlan) -> Grower:
    """The same with added tasks, with run times learned for their kinds."""

    def larger(
        execution: ExecutionPlan, state: RunState, added: Sequence[tuple[str, Task]]
    ) -> tuple[ExecutionPlan | None, str]:
        offers = _make_offers(grid, names, execution, state)
        plan, reason = plan_added_tasks(execution, state, offers, prepare_added_tasks(added, grid))
        if plan is not None:
            store(state.version + 1, plan)
        return plan, reason

    return larger


def make_request_changer(
    grid: GridSnapshot, names: tuple[str, ...], store: StorePlan
) -> RequestChanger:
    """The same for a changed request: over new offers of the sites that are not dropped."""

    def change_request(
        execution: ExecutionPlan, state: RunState, change: RequestChange
    ) -> ChangedPlan:
        for where, sites in (("add-site", change.add_sites), ("drop-site", change.drop_sites)):
            unknown = [site for site in sites if site not in names]
            if unknown:
                raise InputError(
                    f"'{unknown[0]}' is no site of this run", where=where, fix=", ".join(names)
                )
        dropped = (state.dropped - set(change.add_sites)) | set(change.drop_sites)
        offers = _make_offers(grid, names, execution, state._replace(dropped=dropped))
        effort = read_planning_effort()
        plan, promise, lacking = plan_request(execution, state, offers, change, effort)
        if plan is None:
            return ChangedPlan(refused=f"no plan for it: {lacking}")
        store(state.version + 1, plan)
        return ChangedPlan(execution=plan, promise=promise)

    return change_request


def sufficient_changes(
    grid: GridSnapshot, names: tuple[str, ...], execution: ExecutionPlan, state: RunState
) -> tuple[Relaxation, ...] | None:
    """Return the changes of the request, each alone, with which what remains would meet it, over
    new offers of the sites that are not dropped; None for a set that is too large to try them."""
    offers = _make_offers(grid, names, execution, state)
    return find_sufficient_changes(execution, state, offers, read_planning_effort())


def _make_offers(
    grid: GridSnapshot, names: tuple[str, ...], execution: ExecutionPlan, state: RunState
) -> Offers:
    sites = tuple(s for s in grid.catalog.sites if s.name in names and s.name not in state.dropped)
    usable = replace(grid, catalog=replace(grid.catalog, sites=sites))
    real = {site.name for site in sites if is_real(site)}
    wiser = replace(
        add_live_queues(usable, state.now_s),
        observed=(*usable.observed, *list_acquisitions(execution, state)),
        own=count_own_jobs(execution.uses, state.slots, real),
    )
    return lambda rest: drop_beyond_capacity(
        take_slots(rest, wiser), usable.catalog, execution, state
    )


def drop_beyond_capacity(
    slots: Sequence[Slot], catalog: Catalog, execution: ExecutionPlan, state: RunState
) -> tuple[Slot, ...]:
    """Return the offers without those that a site without queues would refuse because the run's own
    open slots are in use there."""
    used: Counter[tuple[str, str]] = Counter()
    for slot_id, record in state.slots.items():
        if record.state is not None and not record.state.ended:
            own = execution.uses[slot_id].slot
            used[own.site, own.queue] += own.procs
    offered: Counter[tuple[str, str, str]] = Counter()
    results = []
    for slot in slots:
        site, market = catalog.site(slot.site), (slot.site, slot.queue)
        offered[*market, slot.node_type] += slot.procs
        taken = offered[*market, slot.node_type] + used[market]
        if site.kind == "batch" or not used[market] or taken <= site.procs:
            results.append(slot)
    return tuple(results)


def count_own_jobs(
    uses: Mapping[str, SlotUse], slots: Mapping[str, SlotRecord], real: Collection[str]
) -> dict[QueueKey, OwnJobs]:
    """Return the run's jobs in each queue, with those that are not requested yet.

    A new job waits behind all that have not started. The forecast of a site of ``real`` is from the
    queue as the site reports it, which has those that wait.
    """
    results: dict[QueueKey, OwnJobs] = {}
    for slot_id, record in slots.items():
        slot = uses[slot_id].slot
        if record.closing or (record.state is not None and record.state.ended):
            continue
        waits = record.state is None or record.state < SlotState.GRANTED
        reported = slot.site in real and record.state is not None
        before = results.get((slot.site, slot.queue), OwnJobs())
        results[slot.site, slot.queue] = OwnJobs(
            ahead=before.ahead + (waits and not reported), total=before.total + 1
        )
    return results
