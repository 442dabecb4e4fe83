"""Relaxations during a run: the smallest change of each kind with which what remains would meet the
request, from the progress now."""

from __future__ import annotations

from dataclasses import replace

from vgrads.planner.make import Options, make_plan
from vgrads.planner.plan import Plan, Relaxation
from vgrads.planner.promise.reported import add_promise
from vgrads.planner.relax import FEWER, SMALL, relaxations
from vgrads.planner.replan import (
    Offers,
    Progress,
    as_paid,
    count_done,
    make_remainder,
    plan_as_it_stays,
)
from vgrads.planner.snapshot import Snapshot
from vgrads.workflows.sets import WorkflowSet

_PLANNING = 0.4  # share of the effort for a plan with which the search for changes begins


def find_relaxations_now(
    plan: Plan, snapshot: Snapshot, progress: Progress, offers: Offers, options: Options
) -> tuple[Relaxation, ...] | None:
    """Return fewer workflows, a later deadline, more money, each alone, with the promise of the run
    and its whole cost; nothing once the deadline has passed, or enough is done. None for a set that
    is too large: each change would take a long plan, whatever the effort."""
    if snapshot.workflow_set.task_count > SMALL:
        return None
    done = count_done(snapshot, progress)
    short = snapshot.workflow_set.needed - done
    if short <= 0 or plan.deadline_s <= progress.now_s:
        return ()
    changes = tuple(
        _convert_to_whole_run(change, snapshot, progress)
        for change in _relax_as_set(plan, snapshot, progress, offers, options)
    )
    if done == 0 or any(change.change == FEWER for change in changes):
        return changes
    # a request of no more workflows than are done is met already
    enough = Relaxation(
        change=FEWER,
        amount=float(short),
        unit="workflows",
        probability=1.0,
        cost_usd=round(progress.spent_usd, 2),
    )
    return (enough, *changes)


def _relax_as_set(
    plan: Plan, snapshot: Snapshot, progress: Progress, offers: Offers, options: Options
) -> tuple[Relaxation, ...]:
    """Return relaxations of the remainder as a set of its own."""

    def ask(changed: WorkflowSet) -> Snapshot:
        deadline_s = changed.deadline_s + progress.now_s
        request = replace(snapshot.workflow_set, deadline_s=deadline_s)
        left = make_remainder(
            replace(plan, deadline_s=deadline_s),
            replace(snapshot, workflow_set=request),
            progress,
            offers,
        )
        if left is None:  # it is one with the present deadline
            raise AssertionError("a later deadline leaves nothing to be planned")
        return as_paid(left.snapshot, progress)

    left = make_remainder(plan, snapshot, progress, offers)
    if left is None:
        return ()
    remainder = as_paid(left.snapshot, progress)
    current = add_promise(left.snapshot, plan_as_it_stays(plan, left, progress))
    effort = options.begin()
    part = effort.part(_PLANNING)
    fresh = make_plan(remainder, options, part, others=(current,))
    effort.take_back(part)
    return relaxations(remainder, fresh, ask, effort, widens=False)


def _convert_to_whole_run(change: Relaxation, snapshot: Snapshot, progress: Progress) -> Relaxation:
    """Return a relaxation of the remainder, which has what is left of the budget, as one of the
    run."""
    cost_usd = round(change.cost_usd + progress.spent_usd, 2)
    budget, amount = snapshot.workflow_set.budget_usd, change.amount
    if change.unit == "USD" and budget is not None:
        amount = round(amount + max(0.0, progress.spent_usd - budget), 2)
    return replace(change, amount=amount, cost_usd=cost_usd)
