"""Plan a set: what the histories say, what the sites offer, what can be promised with it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgrads.api.plans.inputs import doubts
from vgrads.api.plans.runtimes import NOTHING, RunTimes, sped, with_run_times
from vgrads.api.plans.up_to_date import without
from vgrads.api.queues.first_words import BASIS, SiteWord, first_words, refusals
from vgrads.api.queues.histories import Instant, cached_forecast, open_history
from vgrads.api.queues.live_queue import jobs_now, known_now
from vgrads.api.wiring import is_real
from vgrads.planner.make import STANDARD, Options, make_plan
from vgrads.planner.placement.widths import widened
from vgrads.planner.plan import Done, Plan
from vgrads.planner.relax import relaxations
from vgrads.planner.snapshot import Snapshot
from vgrads.qbets.state_forecast import Known, aged
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
class Grid:
    """The catalogue with what the histories of its queues say at one instant, and what was seen of
    its sites."""

    catalog: Catalog
    logs: Mapping[QueueKey, JobLog]
    instants: Mapping[QueueKey, float]
    forecasts: Mapping[QueueKey, Known]
    seen: tuple[Acquisition, ...] = ()
    words: Mapping[QueueKey, SiteWord] = field(default_factory=dict)
    run_times: RunTimes = NOTHING

    @property
    def known(self) -> Knowledge:
        """What offers are made from."""
        return Knowledge(
            oracles={**self.forecasts, **self.words},
            seen=self.seen,
            basis=dict.fromkeys(self.words, BASIS),
        )


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan with everything that it was made from; ``wanted``: all that was asked for, also what
    is done already."""

    wanted: WorkflowSet
    grid: Grid
    snapshot: Snapshot
    plan: Plan


def open_grid(
    catalog: Catalog,
    at: Instant = None,
    notify: Notify = lambda _: None,
    seen: Sequence[Acquisition] = (),
    run_times: RunTimes = NOTHING,
) -> Grid:
    """Read the histories of all queues and learn from them what was known at ``at``; ``seen``:
    earlier slots; ``run_times``: what was learned of tasks."""
    logs: dict[QueueKey, JobLog] = {}
    instants: dict[QueueKey, float] = {}
    forecasts: dict[QueueKey, Known] = {}
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
    grid = Grid(
        catalog=catalog,
        logs=logs,
        instants=instants,
        forecasts=forecasts,
        seen=tuple(seen),
        run_times=run_times,
        words={} if at is not None else first_words(catalog, jobs),
    )
    return grid if at is not None else as_it_stands(grid)


def as_it_stands(grid: Grid, after_s: float = 0.0) -> Grid:
    """The same grid, with its real queues as their sites tell of them at this moment; what was
    known of simulated ones is so much older."""
    found: dict[QueueKey, Known] = {}
    for site in grid.catalog.sites:
        mine = {key: known for key, known in grid.forecasts.items() if key[0] == site.name}
        if mine and is_real(site) and site.kind == "batch":
            jobs = jobs_now(site)
            for key, known in mine.items():
                found[key] = known_now(known, grid.logs[key], key[1], jobs)
        else:
            found |= {key: aged(known, after_s) for key, known in mine.items()}
    return replace(grid, forecasts=found)


def plan_set(
    wanted: WorkflowSet,
    grid: Grid,
    seed: int = 0,
    options: Options = STANDARD,
    done: tuple[Done, ...] = (),
) -> Planned:
    """Ask all sites for slots, then plan; where the minimum cannot be placed, find what would do.

    ``done``: tasks that need not run (:mod:`vgrads.api.plans.up_to_date`).
    """
    begin = time.perf_counter()
    left, basis = with_run_times(without(wanted, done), grid.run_times, grid.catalog)
    snapshot = take_snapshot(left, grid, seed)
    procure_s = time.perf_counter() - begin
    plan = make_plan(snapshot, options)
    if not plan.feasible:
        found = relaxations(snapshot, lambda changed: take_snapshot(changed, grid, seed), options)
        said = "; ".join((plan.lacking, *refusals(grid.words)))
        plan = replace(plan, relaxations=found, lacking=said)
    plan = replace(
        plan,
        seconds={"procure": procure_s, **plan.seconds},
        run_times=tuple(basis.values()),
        notes=(*_notes(left), *doubts(wanted, grid.catalog)),
        done=done,
    )
    return Planned(wanted=wanted, grid=grid, snapshot=snapshot, plan=plan)


def _notes(wanted: WorkflowSet) -> tuple[str, ...]:
    """What is to be known of the workflows; of equal ones once."""
    named = {note: w.name for w in reversed(wanted.workflows) for note in w.notes}
    return tuple(f"{name}: {note}" for note, name in reversed(named.items()))


def take_snapshot(wanted: WorkflowSet, grid: Grid, seed: int) -> Snapshot:
    """What the sites offer for a set, frozen; its tasks as wide as their resources make them."""
    wanted = widened(wanted, grid.catalog)
    slots = take_slots(wanted, grid) if wanted.workflows else ()
    return Snapshot(wanted=wanted, slots=slots, links=grid.catalog.links, seed=seed)


def as_planned(added: Sequence[tuple[str, Task]], grid: Grid) -> list[tuple[str, Task]]:
    """Tasks that are added to workflows, with run times and widths as if they had been there from
    the first."""
    alone = tuple(
        Workflow(name=name, tasks={task.id: replace(task, parents=())}) for name, task in added
    )
    asked = WorkflowSet(name="", workflows=alone, deadline_s=math.inf, needed=0)
    timed, _ = with_run_times(asked, grid.run_times, grid.catalog)
    found = widened(timed, grid.catalog).workflows
    return [
        (name, replace(given.tasks[task.id], parents=task.parents))
        for (name, task), given in zip(added, found, strict=True)
    ]


def take_slots(wanted: WorkflowSet, grid: Grid) -> tuple[Slot, ...]:
    """What the sites offer for a set."""
    return sped(
        offer_slots(grid.catalog, grid.known, _request(wanted)), grid.run_times, grid.catalog
    )


def _request(wanted: WorkflowSet) -> OfferRequest:
    """Slots wide enough for the widest task and for a whole workflow within the deadline."""
    work = max(_work_s(wanted, w) for w in wanted.workflows)
    procs = max(wanted.width, math.ceil(work / wanted.deadline_s))
    return OfferRequest(procs=procs, count=2 * len(wanted.workflows), until_s=wanted.deadline_s)


def _work_s(wanted: WorkflowSet, workflow: Workflow) -> float:
    """Processor-seconds that a workflow stays below with the asked probability: errors of single
    tasks even out among many, shared ones do not."""
    tasks = workflow.tasks.values()
    middle_s = sum(t.procs * t.runtime_s for t in tasks)
    spreads = {wanted.spread(task) for task in tasks}
    shared = max(
        (replace(s, own=s.own / math.sqrt(len(tasks))) for s in spreads), key=lambda s: s.total
    )
    return middle_s * shared.factor(wanted.probability)
