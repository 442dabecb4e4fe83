"""What can be asked of vgrads, free of terminal and HTTP: look into queues, plan, run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from kernel.errors import InputError
from planner.make import STANDARD, Options, make_plan
from planner.plan import Plan
from planner.relax import relaxations
from planner.snapshot import Snapshot
from qbets.forecast import QueueForecast, forecast
from qbets.predictor import Settings
from traces.history import read_history
from traces.records import JobLog
from vgrid.binding import Acquisition, Binding, learn_binding
from vgrid.catalog import Catalog
from vgrid.offers import Knowledge, OfferRequest, offer_slots
from vgrid.slot import Slot
from vgrid.varq import WaitOracle
from workflows.sets import WorkflowSet

Instant = float | datetime | None
QueueKey = tuple[str, str]
Notify = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The catalogue with what the histories of its queues say at one instant, and what was seen of its sites."""

    catalog: Catalog
    bindings: Mapping[str, Binding]
    logs: Mapping[QueueKey, JobLog]
    instants: Mapping[QueueKey, float]
    forecasts: Mapping[QueueKey, WaitOracle]

    @property
    def known(self) -> Knowledge:
        """What offers are made from."""
        return Knowledge(oracles=self.forecasts, bindings=self.bindings)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan with everything that it was made from."""

    wanted: WorkflowSet
    grid: Grid
    snapshot: Snapshot
    plan: Plan


@lru_cache(maxsize=64)
def _cached_log(path: str, _changed_ns: int, format_name: str | None) -> JobLog:
    return read_history(path, format_name)


def open_history(path: str | Path, format_name: str | None = None) -> JobLog:
    """A history, read once as long as its file does not change."""
    file = Path(path)
    if not file.is_file():
        raise InputError("no such file", where=str(path))
    return _cached_log(str(file), file.stat().st_mtime_ns, format_name)


@lru_cache(maxsize=256)
def _cached_forecast(
    path: str, _changed_ns: int, queue: str | int | None, at_s: float, settings: Settings
) -> QueueForecast:
    return forecast(open_history(path).only_queue(queue), at_s, settings)


def cached_forecast(
    path: str, queue: str | int | None, at_s: float, settings: Settings | None = None
) -> QueueForecast:
    """What a history says at an instant, learned once as long as its file does not change."""
    changed_ns = Path(path).stat().st_mtime_ns
    return _cached_forecast(path, changed_ns, queue, at_s, settings or Settings())


def open_grid(
    catalog: Catalog,
    at: Instant = None,
    notify: Notify = lambda _: None,
    seen: Sequence[Acquisition] = (),
) -> Grid:
    """Read the histories of all queues and learn from them what was known at ``at``; ``seen``: earlier slots."""
    logs: dict[QueueKey, JobLog] = {}
    instants: dict[QueueKey, float] = {}
    forecasts: dict[QueueKey, QueueForecast] = {}
    for site in catalog.sites:
        for queue in site.queues:
            if queue.history is None:
                continue
            key = (site.name, queue.name)
            notify(f"reading the history of {site.name}/{queue.name}")
            whole = open_history(queue.history)
            logs[key], instants[key] = whole, whole.instant(at)
            forecasts[key] = cached_forecast(queue.history, queue.log_queue, instants[key])
    bindings = {site.name: learn_binding(site, seen) for site in catalog.sites}
    return Grid(
        catalog=catalog, logs=logs, instants=instants, forecasts=forecasts, bindings=bindings
    )


def plan_set(
    wanted: WorkflowSet, grid: Grid, seed: int = 0, options: Options = STANDARD
) -> Planned:
    """Ask all sites for slots, then plan; where the minimum cannot be placed, find what would do."""
    begin = time.perf_counter()
    snapshot = take_snapshot(wanted, grid, seed)
    procure_s = time.perf_counter() - begin
    plan = make_plan(snapshot, options)
    if not plan.feasible:
        found = relaxations(snapshot, lambda changed: take_snapshot(changed, grid, seed), options)
        plan = replace(plan, relaxations=found)
    plan = replace(plan, seconds={"procure": procure_s, **plan.seconds})
    return Planned(wanted=wanted, grid=grid, snapshot=snapshot, plan=plan)


def take_snapshot(wanted: WorkflowSet, grid: Grid, seed: int) -> Snapshot:
    """What the sites offer for a set, frozen."""
    slots = take_slots(wanted, grid)
    return Snapshot(wanted=wanted, slots=slots, links=grid.catalog.links, seed=seed)


def take_slots(wanted: WorkflowSet, grid: Grid) -> tuple[Slot, ...]:
    """What the sites offer for a set."""
    return offer_slots(grid.catalog, grid.known, _request(wanted))


def _request(wanted: WorkflowSet) -> OfferRequest:
    """Slots wide enough for the widest task and for a whole workflow within the deadline."""
    work = max(sum(t.procs * t.runtime_s for t in w.tasks.values()) for w in wanted.workflows)
    procs = max(wanted.width, math.ceil(work / wanted.deadline_s))
    return OfferRequest(procs=procs, count=2 * len(wanted.workflows), until_s=wanted.deadline_s)
