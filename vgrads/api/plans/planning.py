"""Planning of a set: forecasts from histories, offers of sites, the plan and its promise."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgrads.api.plans.inputs import doubts
from vgrads.api.plans.runtimes import NOTHING, RunTimes, sped, with_run_times
from vgrads.api.plans.up_to_date import without
from vgrads.api.queues.histories import cached_forecast
from vgrads.api.queues.history_files import Instant, open_history
from vgrads.api.queues.live_queue import forecast_now, jobs_now
from vgrads.api.queues.start_estimate_prior import (
    BASIS,
    StartEstimatePrior,
    refusals,
    start_estimate_priors,
)
from vgrads.api.wiring import is_real
from vgrads.planner.make import STANDARD, Options, make_plan
from vgrads.planner.placement.widths import widened
from vgrads.planner.plan import Done, Plan
from vgrads.planner.relax import relaxations
from vgrads.planner.snapshot import Snapshot
from vgrads.qbets.state_forecast import AnyForecast, aged
from vgrads.traces.records import JobLog
from vgrads.vgrid.acquisition import Acquisition
from vgrads.vgrid.catalog import Catalog
from vgrads.vgrid.offers import Knowledge, OfferRequest, offer_slots
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

QueueKey = tuple[str, str]
Notify = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class GridSnapshot:
    """The catalogue with forecasts of its queues at one instant, and observations of its sites."""

    catalog: Catalog
    logs: Mapping[QueueKey, JobLog]
    instants: Mapping[QueueKey, float]
    forecasts: Mapping[QueueKey, AnyForecast]
    observed: tuple[Acquisition, ...] = ()
    words: Mapping[QueueKey, StartEstimatePrior] = field(default_factory=dict)
    run_times: RunTimes = NOTHING

    @property
    def knowledge(self) -> Knowledge:
        """The basis of offers."""
        return Knowledge(
            oracles={**self.forecasts, **self.words},
            observed=self.observed,
            basis=dict.fromkeys(self.words, BASIS),
        )


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan with all its inputs; ``workflow_set``: the complete request, including completed
    tasks."""

    workflow_set: WorkflowSet
    grid: GridSnapshot
    snapshot: Snapshot
    plan: Plan


def open_grid(
    catalog: Catalog,
    at: Instant = None,
    notify: Notify = lambda _: None,
    observed: Sequence[Acquisition] = (),
    run_times: RunTimes = NOTHING,
) -> GridSnapshot:
    """Read the histories of all queues and learn from them as of ``at``; ``observed``: earlier
    slots; ``run_times``: learned run times of tasks."""
    logs: dict[QueueKey, JobLog] = {}
    instants: dict[QueueKey, float] = {}
    forecasts: dict[QueueKey, AnyForecast] = {}
    jobs: dict[QueueKey, int] = {}
    for site in catalog.sites:
        for queue in site.queues:
            if queue.history is None:
                continue
            key = (site.name, queue.name)
            notify(f"learning from the history of {site.name}/{queue.name}")
            whole = open_history(queue.history)
            logs[key], instants[key] = whole, whole.instant(at)
            jobs[key] = len(whole.only_queue(queue.of_log))
            forecasts[key] = cached_forecast(queue.history, queue.of_log, instants[key])
    grid = GridSnapshot(
        catalog=catalog,
        logs=logs,
        instants=instants,
        forecasts=forecasts,
        observed=tuple(observed),
        run_times=run_times,
        words={} if at is not None else start_estimate_priors(catalog, jobs),
    )
    return grid if at is not None else with_live_queues(grid)


def with_live_queues(grid: GridSnapshot, after_s: float = 0.0) -> GridSnapshot:
    """Return the same grid with its real queues as their sites report them now; forecasts of
    simulated ones are aged accordingly."""
    forecasts: dict[QueueKey, AnyForecast] = {}
    for site in grid.catalog.sites:
        mine = {key: by_queue for key, by_queue in grid.forecasts.items() if key[0] == site.name}
        if mine and is_real(site) and site.kind == "batch":
            jobs = jobs_now(site)
            for key, forecast in mine.items():
                forecasts[key] = forecast_now(forecast, grid.logs[key], key[1], jobs)
        else:
            forecasts |= {key: aged(existing, after_s) for key, existing in mine.items()}
    return replace(grid, forecasts=forecasts)


def plan_set(
    workflow_set: WorkflowSet,
    grid: GridSnapshot,
    seed: int = 0,
    options: Options = STANDARD,
    done: tuple[Done, ...] = (),
) -> Planned:
    """Get offers of all sites, then plan; if the minimum cannot be placed, find relaxations.

    ``done``: tasks that need not run (:mod:`vgrads.api.plans.up_to_date`).
    """
    begin = time.perf_counter()
    left, basis = with_run_times(without(workflow_set, done), grid.run_times, grid.catalog)
    snapshot = take_snapshot(left, grid, seed)
    procure_s = time.perf_counter() - begin
    plan = make_plan(snapshot, options)
    if not plan.feasible:
        changes = relaxations(snapshot, lambda changed: take_snapshot(changed, grid, seed), options)
        reasons = "; ".join((plan.lacking, *refusals(grid.words)))
        plan = replace(plan, relaxations=changes, lacking=reasons)
    plan = replace(
        plan,
        seconds={"procure": procure_s, **plan.seconds},
        run_times=tuple(basis.values()),
        notes=(*_notes(left), *doubts(workflow_set, grid.catalog)),
        done=done,
    )
    return Planned(workflow_set=workflow_set, grid=grid, snapshot=snapshot, plan=plan)


def _notes(workflow_set: WorkflowSet) -> tuple[str, ...]:
    """Return notes on the workflows; once for equal ones."""
    named = {note: w.name for w in reversed(workflow_set.workflows) for note in w.notes}
    return tuple(f"{name}: {note}" for note, name in reversed(named.items()))


def take_snapshot(workflow_set: WorkflowSet, grid: GridSnapshot, seed: int) -> Snapshot:
    """Return the offers of the sites for a set, frozen; task widths are adjusted to their
    resources."""
    workflow_set = widened(workflow_set, grid.catalog)
    slots = take_slots(workflow_set, grid) if workflow_set.workflows else ()
    return Snapshot(workflow_set=workflow_set, slots=slots, links=grid.catalog.links, seed=seed)


def as_planned(added: Sequence[tuple[str, Task]], grid: GridSnapshot) -> list[tuple[str, Task]]:
    """Return tasks that are added to workflows, with run times and widths as for original ones."""
    alone = tuple(
        Workflow(name=name, tasks={task.id: replace(task, parents=())}) for name, task in added
    )
    added_set = WorkflowSet(name="", workflows=alone, deadline_s=math.inf, needed=0)
    timed, _ = with_run_times(added_set, grid.run_times, grid.catalog)
    workflows = widened(timed, grid.catalog).workflows
    return [
        (name, replace(workflow.tasks[task.id], parents=task.parents))
        for (name, task), workflow in zip(added, workflows, strict=True)
    ]


def take_slots(workflow_set: WorkflowSet, grid: GridSnapshot) -> tuple[Slot, ...]:
    """Return the offers of the sites for a set."""
    return sped(
        offer_slots(grid.catalog, grid.knowledge, _request(workflow_set)),
        grid.run_times,
        grid.catalog,
    )


def _request(workflow_set: WorkflowSet) -> OfferRequest:
    """Request slots wide enough for the widest task and for a whole workflow within the
    deadline."""
    work = max(_work_s(workflow_set, w) for w in workflow_set.workflows)
    procs = max(workflow_set.width, math.ceil(work / workflow_set.deadline_s))
    return OfferRequest(
        procs=procs, count=2 * len(workflow_set.workflows), until_s=workflow_set.deadline_s
    )


def _work_s(workflow_set: WorkflowSet, workflow: Workflow) -> float:
    """Return processor-seconds that a workflow does not exceed with the requested probability:
    errors of single tasks average out among many, shared ones do not."""
    tasks = workflow.tasks.values()
    middle_s = sum(t.procs * t.runtime_s for t in tasks)
    spreads = {workflow_set.spread(task) for task in tasks}
    shared = max(
        (replace(s, own=s.own / math.sqrt(len(tasks))) for s in spreads), key=lambda s: s.total
    )
    return middle_s * shared.factor(workflow_set.probability)
