"""Planning of a set: forecasts from histories, offers of sites, the plan and its promise."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from types import MappingProxyType

from vgrads.api.plans.inputs import describe_doubts
from vgrads.api.plans.runtimes import (
    NOTHING,
    RunTimes,
    add_run_times,
    apply_speeds,
    describe_promise_basis,
)
from vgrads.api.plans.unit_mistakes import ask_for_unit
from vgrads.api.plans.up_to_date import remove_done
from vgrads.api.queues.histories import AS_QUESTION, cached_forecast
from vgrads.api.queues.history_files import Instant, open_history
from vgrads.api.queues.live_queue import learn_present, learned_unix_s, make_present_forecast
from vgrads.api.queues.site_snapshots import SiteSnapshot, refresh_snapshots
from vgrads.api.queues.start_estimate_prior import (
    BASIS,
    StartEstimatePrior,
    list_refusals,
    start_estimate_priors,
)
from vgrads.api.wiring import is_batch_system, is_real
from vgrads.kernel.closures import WEEK_S
from vgrads.kernel.progress import report_progress
from vgrads.kernel.units import format_count
from vgrads.planner.effort import Effort
from vgrads.planner.evidence import add_evidence
from vgrads.planner.make import STANDARD, Options, first_plan, plan_again, searched
from vgrads.planner.obstacles import explain_shortfall
from vgrads.planner.placement.widths import widen
from vgrads.planner.plan import Done, Plan
from vgrads.planner.relax import relaxations
from vgrads.planner.snapshot import Snapshot
from vgrads.qbets.state_forecast import AnyForecast, age_forecast
from vgrads.traces.records import JobLog
from vgrads.vgrid.acquisition import Acquisition
from vgrads.vgrid.catalog import Catalog, Queue, Site
from vgrads.vgrid.closures import Availability, Reported, find_availability
from vgrads.vgrid.offers import Knowledge, OfferRequest, OwnJobs, offer_slots
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

QueueKey = tuple[str, str]
Notify = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class GridSnapshot:
    """The catalogue with forecasts of its queues at one instant, and observations of its sites.

    ``now_s``: site → that instant in seconds since 1970 (0: without closures); ``reported``:
    closures that sites reported.
    """

    catalog: Catalog
    logs: Mapping[QueueKey, JobLog]
    instants: Mapping[QueueKey, float]
    forecasts: Mapping[QueueKey, AnyForecast]
    observed: tuple[Acquisition, ...] = ()
    words: Mapping[QueueKey, StartEstimatePrior] = field(default_factory=dict)
    run_times: RunTimes = NOTHING
    own: Mapping[QueueKey, OwnJobs] = field(default_factory=dict)
    now_s: Mapping[str, float] = field(default_factory=dict)
    reported: Reported = field(default_factory=dict)

    @cached_property
    def availabilities(self) -> Mapping[QueueKey, Availability]:
        """When jobs of each queue can start, and of each site without queues (under ``""``)."""
        return {
            (site.name, name): find_availability(site, name, self.now_s[site.name], self.reported)
            for site in self.catalog.sites
            if site.name in self.now_s
            for name in [queue.name for queue in site.queues] or [""]
        }

    @property
    def knowledge(self) -> Knowledge:
        """The basis of offers."""
        return Knowledge(
            oracles={**self.forecasts, **self.words},
            observed=self.observed,
            basis=dict.fromkeys(self.words, BASIS),
            own=self.own,
            availabilities=self.availabilities,
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
    reported: Reported = MappingProxyType({}),
) -> GridSnapshot:
    """Read the histories of all queues and learn from them as of ``at``; ``observed``: earlier
    slots; ``run_times``: learned run times of tasks; ``reported``: closures that sites reported."""
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
            # the present of a real queue is learned below, in the view that fits what its site
            # lists
            if at is not None or not is_batch_system(site):
                at_s = None if at is None else instants[key]
                forecasts[key] = cached_forecast(queue.history, queue.of_log, at_s)
    grid = GridSnapshot(
        catalog=catalog,
        logs=logs,
        instants=instants,
        forecasts=forecasts,
        observed=tuple(observed),
        run_times=run_times,
        words={} if at is not None else start_estimate_priors(catalog, jobs),
        now_s={site.name: _find_present(site, at, logs, instants) for site in catalog.sites},
        reported=reported,
    )
    return grid if at is not None else add_live_queues(grid)


def _find_present(
    site: Site,
    at: Instant,
    logs: Mapping[QueueKey, JobLog],
    instants: Mapping[QueueKey, float],
) -> float:
    """Return the instant that a plan is made for, in seconds since 1970: of the clock of a site's
    histories where it is stated in seconds of that."""
    if isinstance(at, datetime):
        return at.timestamp()
    if at is not None:
        for queue in site.queues:
            if (log := logs.get((site.name, queue.name))) is not None:
                return log.unix_start_s + instants[site.name, queue.name]
    return time.time()


def add_live_queues(grid: GridSnapshot, after_s: float = 0.0) -> GridSnapshot:
    """Return the same grid with its real queues, and the closures of their sites, as these report
    them now, learned in the view that fits; forecasts of simulated ones are aged accordingly."""
    forecasts: dict[QueueKey, AnyForecast] = {}
    snapshots = refresh_snapshots(grid.catalog.sites)
    for site in grid.catalog.sites:
        for queue in site.queues:
            key = (site.name, queue.name)
            if key not in grid.logs:
                continue
            if site.name in snapshots:
                forecasts[key] = _make_live_forecast(queue, grid.logs[key], snapshots[site.name])
            else:
                forecasts[key] = age_forecast(grid.forecasts[key], after_s)
    now_s = {
        site.name: time.time() if is_real(site) else grid.now_s[site.name] + after_s
        for site in grid.catalog.sites
        if site.name in grid.now_s
    }
    reported = {name: snapshot.closures for name, snapshot in snapshots.items()}
    return replace(grid, forecasts=forecasts, now_s=now_s, reported={**grid.reported, **reported})


def _make_live_forecast(queue: Queue, log: JobLog, snapshot: SiteSnapshot) -> AnyForecast:
    """Return the forecast of a queue of a real site as it is now."""

    def learn(view: str) -> AnyForecast:
        settings = replace(AS_QUESTION, view=view)
        return cached_forecast(str(queue.history), queue.of_log, None, settings)

    forecast = learn_present(learn, snapshot, lambda learned: learned_unix_s(learned, log))
    return make_present_forecast(forecast, log, queue.name, snapshot)[0]


def plan_set(
    workflow_set: WorkflowSet,
    grid: GridSnapshot,
    seed: int = 0,
    options: Options = STANDARD,
    done: tuple[Done, ...] = (),
    others: Sequence[Plan] = (),
) -> Planned:
    """Get offers of all sites, then plan; if the request cannot be met, find relaxations.

    ``done``: tasks that need not run (:mod:`vgrads.api.plans.up_to_date`); ``others``: plans of
    similar requests, with which the search begins too: a plan of a harder one promises as much.
    """
    begin = time.perf_counter()
    report_progress("collecting the slots that sites offer")
    left, basis = add_run_times(remove_done(workflow_set, done), grid.run_times, grid.catalog)
    snapshot = take_snapshot(left, grid, seed)
    procure_s = time.perf_counter() - begin
    effort = options.begin()
    part = effort.part(_PLANNING)
    snapshot, plan = _find_best_plan(snapshot, grid, options, part, others)
    effort.take_back(part)
    if options.relax and not plan.meets_request:
        changes = relaxations(
            snapshot, plan, lambda changed: take_snapshot(changed, grid, seed), effort
        )
        plan = replace(plan, relaxations=changes)
        question = ask_for_unit(left, changes) if plan.lacking else ""
        reasons = "; ".join((plan.lacking, *list_refusals(grid.words))) if plan.lacking else ""
        lacking = " ".join(filter(None, (question, reasons))) or explain_shortfall(snapshot, plan)
        plan = replace(plan, lacking=lacking)
    if options.relax:
        plan = add_evidence(snapshot, plan)
    plan = replace(
        plan,
        seconds={"procure": procure_s, **plan.seconds},
        run_times=tuple(basis.values()),
        notes=(
            *list_notes(left),
            *describe_promise_basis(basis.values()),
            *describe_doubts(workflow_set, grid.catalog),
            *list_closure_notes(grid, workflow_set.deadline_s),
        ),
        done=done,
    )
    return Planned(workflow_set=workflow_set, grid=grid, snapshot=snapshot, plan=plan)


def _find_best_plan(
    snapshot: Snapshot,
    grid: GridSnapshot,
    options: Options,
    effort: Effort,
    others: Sequence[Plan],
) -> tuple[Snapshot, Plan]:
    """Return the best plan with its snapshot: for the slots on offer, and if the first plan falls
    short of the request, also for more and for wider ones."""
    first = first_plan(snapshot, options)
    if first.meets_request or not options.standard or effort.left <= 0:
        return snapshot, searched(snapshot, first, options, effort, others)
    report_progress("comparing other plans")
    # the rest of the effort is for other offers
    half = effort.part(0.5)
    best = snapshot, searched(snapshot, first, options, half, others)
    effort.take_back(half)
    wider = list(_widen_offers(snapshot, grid))
    for n, other in enumerate(wider):
        if best[1].meets_request:
            break
        report_progress("planning with more and wider slots")
        part = effort.part(1.0 / (len(wider) - n))
        plan = plan_again(other, best[1], options, part)
        effort.take_back(part)
        # better by more than the error of its simulation, or feasible where the best is not
        if (plan.feasible, plan.promise.probability) > (
            best[1].feasible,
            best[1].promise.probability + plan.promise.standard_error,
        ):
            best = other, plan
    return best


def _widen_offers(snapshot: Snapshot, grid: GridSnapshot) -> Iterator[Snapshot]:
    """Return the snapshot with more slots, and with wider ones, if sites offer any."""
    # a site at its limits offers the same again: no second plan for that
    offered = {tuple((s.id, s.procs) for s in snapshot.slots)}
    for size in _OTHER_SIZES:
        slots = take_slots(snapshot.workflow_set, grid, size)
        now = tuple((s.id, s.procs) for s in slots)
        if now not in offered:
            offered.add(now)
            yield replace(snapshot, slots=slots)


def list_notes(workflow_set: WorkflowSet) -> tuple[str, ...]:
    """Return notes on the workflows, such as what was read of a file; once for equal ones."""
    # reversed twice: the first of equal workflows names its note, in the order of the set
    named = {
        (w.name.rpartition("-")[0], note): w.name
        for w in reversed(workflow_set.workflows)
        for note in reversed(w.notes)
    }
    return tuple(f"{name}: {note}" for (_, note), name in reversed(named.items()))


def list_closure_notes(grid: GridSnapshot, until_s: float) -> tuple[str, ...]:
    """Return a note for each closure of a site before an instant, the earliest first; of those of
    every week, for the first. Many are counted."""
    notes: dict[str, dict[str, None]] = {}
    weekly: set[tuple[str, str, float]] = set()
    for (site, queue), availability in grid.availabilities.items():
        of_site = notes.setdefault(site, {})
        for closure in availability.during(0.0, until_s):
            week = (site, queue, closure.begin_s % WEEK_S)
            if not (closure.weekly and week in weekly):
                weekly.add(week)
                place = f"{site}/{queue}" if closure.queues else site
                of_site[f"{place}: {availability.describe(closure)}"] = None
    results: list[str] = []
    for site, of_site in notes.items():
        results += list(of_site)[:_MOST_NOTES]
        if len(of_site) > _MOST_NOTES:
            more = format_count(len(of_site) - _MOST_NOTES, "more time")
            results.append(f"{site}: closed {more}")
    return tuple(results)


def take_snapshot(workflow_set: WorkflowSet, grid: GridSnapshot, seed: int) -> Snapshot:
    """Return the offers of the sites for a set, frozen; task widths are adjusted to their
    resources."""
    workflow_set = widen(workflow_set, grid.catalog)
    slots = take_slots(workflow_set, grid) if workflow_set.workflows else ()
    return Snapshot(workflow_set=workflow_set, slots=slots, links=grid.catalog.links, seed=seed)


def prepare_added_tasks(
    added: Sequence[tuple[str, Task]], grid: GridSnapshot
) -> list[tuple[str, Task]]:
    """Return tasks that are added to workflows, with run times and widths as for original ones."""
    # parents may be tasks that are not added, and have no effect on a run time: restored below
    alone = tuple(
        Workflow(name=name, tasks={task.id: replace(task, parents=())}) for name, task in added
    )
    added_set = WorkflowSet(name="", workflows=alone, deadline_s=math.inf, needed=0)
    timed, _ = add_run_times(added_set, grid.run_times, grid.catalog)
    workflows = widen(timed, grid.catalog).workflows
    return [
        (name, replace(workflow.tasks[task.id], parents=task.parents))
        for (name, task), workflow in zip(added, workflows, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferSize:
    """Factors of the number of slots requested from each site, and of their processors."""

    count: int = 1
    procs: int = 1


USUAL = OfferSize()
_PLANNING = 0.6  # share of the effort for the plan; the rest is for sufficient changes
_OTHER_SIZES = (OfferSize(procs=2), OfferSize(count=4), OfferSize(procs=4))
_MOST_NOTES = 5  # on closures of a site
_USUAL_SLOTS = 500  # requested from each site


def take_slots(
    workflow_set: WorkflowSet, grid: GridSnapshot, size: OfferSize = USUAL
) -> tuple[Slot, ...]:
    """Return the offers of the sites for a set."""
    return apply_speeds(
        offer_slots(grid.catalog, grid.knowledge, _request(workflow_set, size)),
        grid.run_times,
        grid.catalog,
    )


def _request(workflow_set: WorkflowSet, size: OfferSize) -> OfferRequest:
    """Request slots wide enough for the widest task and for a whole workflow within the deadline,
    as many as hold all workflows twice, between a usual number and two for each workflow."""
    works_s = [_bound_work_s(workflow_set, w) for w in workflow_set.workflows]
    procs = max(workflow_set.width, math.ceil(max(works_s) / workflow_set.deadline_s)) * size.procs
    twice = math.ceil(2 * sum(works_s) / (procs * workflow_set.deadline_s))
    # the middle of three: the number between its bounds
    usual = sorted((2 * len(workflow_set.workflows), twice, _USUAL_SLOTS))[1]
    return OfferRequest(procs=procs, count=usual * size.count, until_s=workflow_set.deadline_s)


def _bound_work_s(workflow_set: WorkflowSet, workflow: Workflow) -> float:
    """Return processor-seconds that a workflow does not exceed with the requested probability:
    errors of single tasks average out among many, shared ones do not."""
    tasks = workflow.tasks.values()
    middle_s = sum(t.procs * t.runtime_s for t in tasks)
    spreads = {workflow_set.spread(task) for task in tasks}
    shared = max(
        (replace(s, own=s.own / math.sqrt(len(tasks))) for s in spreads), key=lambda s: s.total
    )
    return middle_s * shared.factor(workflow_set.probability)
