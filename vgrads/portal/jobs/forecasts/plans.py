"""Promises of plans and runs as issued: of each slot, and of the whole set."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vgrads.api.plans.planning import GridSnapshot, Planned
from vgrads.api.queues.backtests import find_kept_backtest
from vgrads.api.queues.forecast_scores import ALARM, ALARM_LEVEL, NO_RECORD, WATCHED
from vgrads.api.queues.issued import LEVELS, IssuedForecast
from vgrads.api.queues.log_queues import ENOUGH
from vgrads.api.queues.start_estimate_prior import BASIS
from vgrads.bags.bag import BagGoal
from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.states import SlotRecord
from vgrads.kernel.errors import SiteError
from vgrads.kernel.units import format_count
from vgrads.planner.plan import SlotUse
from vgrads.portal.records.forecasts.journal import ForecastJournal
from vgrads.portal.records.reading.forecast_scores import read_records, records_in
from vgrads.vgrid.catalog import Queue
from vgrads.vgrid.slot import Slot

if TYPE_CHECKING:  # loaded by runs alone
    from sqlalchemy import Engine

    from vgrads.api.plans.execution import RunOutcome
    from vgrads.execmgr.core.states import RequestRecord
    from vgrads.planner.plan import Plan
    from vgrads.portal.records.forecasts.rows import ForecastRecords
    from vgrads.portal.records.store import Store

QueueKey = tuple[str, str]
ON_DEMAND = "on demand"
"""In records, the queue of slots of a cloud."""
_log = logging.getLogger("vgrads.forecasts")


def issue_plan(planned: Planned, store: Store | None = None, owner: str = "") -> Planned:
    """Record what a plan promises; return it with its :func:`queue_notes`."""
    notes = queue_notes(planned, store)
    instants = {
        key: planned.grid.logs[key].unix_start_s + at_s
        for key, at_s in planned.grid.instants.items()
    }
    forecasts = _make_forecasts(planned, instants, lambda _: "", owner)
    ForecastJournal(store.url if store else None).append(forecasts)
    return replace(planned, plan=replace(planned.plan, notes=(*planned.plan.notes, *notes)))


def queue_notes(planned: Planned, store: Store | None = None) -> list[str]:
    """Return a line for each queue of a plan whose forecasts fail their score, whose waits were
    often longer than forecast in its history, or whose history is short. ``store``: of a service;
    otherwise the user's database."""
    keys = sorted({(use.slot.site, use.slot.queue or ON_DEMAND) for use in planned.plan.uses})
    records = records_in(store.reader, keys) if store else read_records(keys)
    queues = {
        (site.name, queue.name): queue
        for site in planned.grid.catalog.sites
        for queue in site.queues
        if (site.name, queue.name) in keys
    }
    missed = _list_missed_histories(planned.grid, queues)
    short = _list_short_histories(planned.grid, queues)
    by_queue = {
        key: [
            text
            for text in (records.get(key, NO_RECORD).warning, missed.get(key), short.get(key))
            if text
        ]
        for key in keys  # there are no records where there is no database, or no disk for it
    }
    return [f"{site}/{queue}: {'; '.join(why)}" for (site, queue), why in by_queue.items() if why]


def _list_missed_histories(
    grid: GridSnapshot, queues: Mapping[QueueKey, Queue]
) -> dict[QueueKey, str]:
    """Return a line for each queue with too many waits beyond their bounds: in the last backtest of
    its history, or among the newest bounds of the forecast that the plan uses."""
    result = dict[QueueKey, str]()
    for key, queue in queues.items():
        forecast = grid.forecasts.get(key)
        if forecast is None or key not in grid.logs:
            continue
        reasons, (judged, held) = list[str](), forecast.record
        kept = find_kept_backtest(grid.logs[key], queue.of_log)
        if kept is not None and kept.covered < ALARM * kept.scored:
            reasons.append(
                f"the backtest of its history on {kept.day} covered "
                f"{kept.covered / kept.scored:.1%} of {format_count(kept.scored, 'wait')} at "
                f"probability {ALARM_LEVEL}"
            )
        if judged >= WATCHED and (reasons or held < ALARM * judged):
            reasons.append(
                f"its newest {format_count(judged, 'bound')} covered {held / judged:.1%}"
            )
        if reasons:
            result[key] = f"{', '.join(reasons)}: the promise may be too high"
    return result


def _list_short_histories(
    grid: GridSnapshot, queues: Mapping[QueueKey, Queue]
) -> dict[QueueKey, str]:
    """Return a line for each queue with too few past waits for a bound at .95."""
    result = dict[QueueKey, str]()
    for key, queue in queues.items():
        log = grid.logs.get(key)
        if log is None and key not in grid.words:
            continue  # a queue of which its entry states all
        jobs = 0
        if log is not None:
            own = log.only_queue(queue.of_log)
            jobs = int((own.started & (own.start_s <= grid.instants[key])).sum())
        if jobs <= ENOUGH:
            basis = BASIS if key in grid.words else "so few waits"
            result[key] = (
                f"{format_count(jobs, 'job', 'have')} started in its history, fewer than "
                f"{ENOUGH + 1}: its promise rests on {basis}"
            )
    return result


def _make_forecasts(
    planned: Planned,
    instants: Mapping[QueueKey, float],
    job: Callable[[str], str],
    owner: str = "",
) -> list[IssuedForecast]:
    """Return the promise of a plan, and those of its slots. ``job``: of a slot; of the promise, by
    the empty name."""
    plan, now_s = planned.plan, time.time()
    promise = IssuedForecast(
        site="",
        queue="",
        procs=0,
        walltime_s=plan.deadline_s,
        instant_s=now_s,
        kind="promise",
        method=plan.policy,
        probabilities=((plan.deadline_s, plan.promise.probability),),
        owner=owner,
        job=job(""),
    )
    slots = [
        replace(
            _forecast_slot(use, instants.get((use.slot.site, use.slot.queue), now_s)),
            view=_find_view(use.slot, planned.grid),
            job=job(use.slot.id),
            owner=owner,
        )
        for use in plan.uses
    ]
    return [promise, *slots] if plan.feasible else []


def _find_view(slot: Slot, grid: GridSnapshot) -> str:
    """Return the view in which the queue of a slot was learned; empty where no history of it
    was."""
    forecast = None if slot.basis else grid.forecasts.get((slot.site, slot.queue))
    return forecast.settings.view if forecast else ""


def _forecast_slot(use: SlotUse, instant_s: float) -> IssuedForecast:
    zero_s = use.submit_s - use.slot.zero_s(use.submit_s)
    ready_s = (use.slot.curve.ready_at(LEVELS) - zero_s).tolist()
    return IssuedForecast(
        site=use.slot.site,
        queue=use.slot.queue or ON_DEMAND,
        procs=use.slot.procs,
        walltime_s=use.end_s - use.start_s,
        instant_s=instant_s,
        submit_in_s=use.submit_s,
        kind="slot",
        method=use.slot.basis or ("state" if use.slot.kind == "batch" else use.slot.kind),
        bounds=tuple(
            (level, at_s if math.isfinite(at_s) else None)
            for level, at_s in zip(LEVELS, ready_s, strict=True)
        ),
        probabilities=((use.start_s - use.submit_s, use.probability),),
    )


def issue_run(store: Store, run_id: str, planned: Planned) -> None:
    """Record what a run promises when it starts; once, whichever manager continues it."""
    _ignore_errors(lambda: _issue_plan(store, run_id, planned))


def score_run(store: Store, run_id: str, outcome: RunOutcome) -> None:
    """Store the outcomes of a run's promise and of its slots."""
    _ignore_errors(lambda: _score(store, run_id, outcome))


def _issue_plan(store: Store, run_id: str, planned: Planned) -> None:
    from vgrads.portal.records.forecasts.rows import ForecastRecords

    records = ForecastRecords(store.engine)
    if not records.is_issued(run_id):
        records.add(
            _make_forecasts(planned, {}, lambda slot: f"{run_id}/{slot}" if slot else run_id)
        )


def _score(store: Store, run_id: str, outcome: RunOutcome) -> None:
    from vgrads.portal.records.forecasts.rows import ForecastRecords
    from vgrads.portal.records.run_record import RunRecord

    records = ForecastRecords(store.engine)
    changes = [record for record in outcome.state.requests if not record.refused]
    over = outcome.verdict in ("kept", "broken")
    covered: bool | None = outcome.kept if over else None
    if changes:
        first = RunRecord(store.engine, run_id).executions()[0].plan
        last, name = changes[-1], f"{run_id}/last"
        if last.promise is not None and not records.is_issued(name):
            within_s = last.deadline_s - last.at_s
            _put_promise(
                records,
                name,
                ScoredPromise(within_s=within_s, probability=last.promise, covered=covered),
                "changed request",
            )
        covered = first_outcome(outcome, first, changes) if over else None
    _put_covered(records, run_id, covered)
    for slot_id, slot in outcome.state.slots.items():
        job = f"{run_id}/{slot_id}"
        if _is_evidence(slot):
            ready_s, requested_s = slot.ready_s, slot.requested_s or 0.0
            records.put_outcome(job, None if ready_s is None else ready_s - requested_s)
        else:
            records.close_job(job)


def score_bags(
    connect: Callable[[], Engine], dispatcher: str, bags: Iterable[Mapping[str, Any]]
) -> None:
    """Record the first promise of each ended bag with a goal, and whether it was kept; once. Where
    its goal was changed, also the first promise of its last goal. ``bags``: their rows in the
    status of a dispatcher."""
    _ignore_errors(lambda: _score_bags(connect(), dispatcher, bags))


def _score_bags(engine: Engine, dispatcher: str, bags: Iterable[Mapping[str, Any]]) -> None:
    from vgrads.portal.records.forecasts.rows import ForecastRecords

    records = ForecastRecords(engine)
    for bag in bags:
        job = f"{dispatcher}/{bag['number']}"
        names = (job, f"{job}/last")
        if any(map(records.is_issued, names)):
            continue
        for name, scored in zip(names, scored_promises(bag), strict=True):
            if scored is None:
                continue
            _put_promise(records, name, scored, "bag")


def _put_promise(records: ForecastRecords, job: str, scored: ScoredPromise, method: str) -> None:
    """Record a promise with its outcome."""
    promise = IssuedForecast(
        site="",
        queue="",
        procs=0,
        walltime_s=scored.within_s,
        instant_s=time.time(),
        kind="promise",
        method=method,
        probabilities=((scored.within_s, scored.probability),),
        job=job,
    )
    records.add([promise])
    _put_covered(records, job, scored.covered)


def _put_covered(records: ForecastRecords, job: str, covered: bool | None) -> None:
    if covered is None:
        records.close_job(job)
    else:
        records.put_outcome(job, None, covered=covered)


def first_outcome(
    outcome: RunOutcome, first: Plan, changes: Sequence[RequestRecord]
) -> bool | None:
    """Return whether the first promise of a run was kept whose request has changed. It is open
    where a change that came in time needed less, so that less was done."""
    if sum(at_s <= first.deadline_s for at_s in outcome.done.values()) >= first.needed:
        return True
    is_relaxed = any(
        change.at_s <= first.deadline_s
        and (change.deadline_s > first.deadline_s or change.needed < first.needed)
        for change in changes
    )
    return None if is_relaxed else False


@dataclass(frozen=True, kw_only=True)
class ScoredPromise:
    """A promise of an ended bag. ``covered``: None where a change of its goal left that open."""

    within_s: float
    probability: float
    covered: bool | None


def scored_promises(
    bag: Mapping[str, Any],
) -> tuple[ScoredPromise | None, ScoredPromise | None]:
    """Return the first promise of a bag, and the first one of its last goal where it was changed;
    None where there was none."""
    goal, came_s = bag["goal"], bag["came_s"]
    changes = [change for change in goal.get("changes", ()) if change["after"] is not None]
    reached_s, due_s = goal["reached_s"], goal["due_s"]
    covered = reached_s is not None and reached_s <= due_s
    if not changes:
        first = goal["promises"][0][1]
        return ScoredPromise(within_s=due_s - came_s, probability=first, covered=covered), None
    first_s, last_s = changes[0]["at_s"], changes[-1]["at_s"]
    before = [share for at_s, share in goal["promises"] if at_s < first_s]
    after = [share for at_s, share in goal["promises"] if at_s >= last_s]
    within_s = changes[0]["before"]["deadline_s"]
    return (
        ScoredPromise(
            within_s=within_s, probability=before[0], covered=_find_first_outcome(bag, changes)
        )
        if before
        else None,
        ScoredPromise(within_s=due_s - last_s, probability=after[0], covered=covered)
        if after
        else None,
    )


def _find_first_outcome(
    bag: Mapping[str, Any], changes: Sequence[Mapping[str, Any]]
) -> bool | None:
    """Return whether the promise for the first goal of a bag was kept. It is open where a later
    goal needed less, so that nodes were released, or more, of which only the end is recorded."""
    goal, first = bag["goal"], BagGoal(**changes[0]["before"])
    due_s, required = bag["came_s"] + first.deadline_s, first.required(bag["tasks"])
    reached_s = goal["reached_s"] if goal["required"] >= required else None
    if bag["done"] == bag["tasks"]:
        reached_s = min(bag["ended_s"], reached_s or bag["ended_s"])
    if reached_s is not None and reached_s <= due_s:
        return True
    goals = [BagGoal(**change["after"]) for change in changes]
    is_relaxed = any(
        later.deadline_s > first.deadline_s or later.required(bag["tasks"]) < required
        for later in goals
    )
    more = goal["required"] > required and bag["done"] >= required
    return None if more or (is_relaxed and changes[0]["at_s"] <= due_s) else False


def _is_evidence(slot: SlotRecord) -> bool:
    """True for a slot that became ready, or failed before, except by an error of configuration. One
    that was released while it waited shows nothing."""
    if slot.requested_s is None or slot.permanent:
        return False
    return slot.ready_s is not None or slot.state == SlotState.FAILED


def _ignore_errors(work: Callable[[], None]) -> None:
    """Do work on records; no run fails because of it."""
    try:
        work()
    except SiteError as error:
        _log.warning("forecasts of a run were not recorded: %s", error)
