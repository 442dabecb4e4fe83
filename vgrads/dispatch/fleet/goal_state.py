"""The state of a bag's promise while it works: pure, and computed here only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from vgrads.bags.bag import BagGoal
from vgrads.dispatch.core.state import BagState
from vgrads.dispatch.core.tasks import ASSIGNED, DONE, DROPPED, FAILED
from vgrads.dispatch.fleet.goal_view import GoalView, count_goal_progress, estimate_mean_error
from vgrads.dispatch.fleet.site_view import FleetSite, SiteInventory
from vgrads.kernel.promise_state import PromiseState, promise_state
from vgrads.kernel.units import format_count, format_duration

_LOW = 1.645
"""Standard deviations below the mean of a 5 % quantile."""
_SPREAD = 0.3
"""Standard deviation of the logarithm of one task's run time around the mean of all."""


@dataclass(frozen=True, kw_only=True)
class GoalState:
    """``state`` of a promise, and its reason with the numbers, empty where there is none to
    state."""

    state: PromiseState
    reason: str = ""


def count_most_workers(
    sources: Iterable[FleetSite], present: Mapping[str, SiteInventory], procs: int
) -> int:
    """Return how many tasks of ``procs`` processors could run at once: on all nodes that the
    sources may give, also those that refuse requests now, and on all that are there."""
    workers = 0
    for where in sources:
        agents = present[where.name].agents if where.name in present else []
        nodes = max(where.limits.most, len(agents))
        # an agent may have more processors than its source states
        widest = max((where.procs, *(agent.procs for agent in agents)))
        workers += nodes * (widest // procs)
    return workers


def estimate_least_left_s(
    view: GoalView, shortest_s: float | None, workers: int | None
) -> float | None:
    """Return the seconds without which the tasks that are left cannot end: on all workers at once,
    each task as short as the shortest that was observed, or as the 5 % quantile of its estimate
    where that is shorter. Tasks that agents have already count as if they ended now.

    None where nothing is certain: without an estimate, or where more nodes may join than are
    requested (``workers`` is None)."""
    if not view.each_s or not workers or (view.sampled and shortest_s is None):
        return None
    quantile_s = view.each_s * math.exp(-_LOW * (estimate_mean_error(view) + _SPREAD))
    each_s = quantile_s if shortest_s is None else min(quantile_s, shortest_s)
    return math.ceil(max(0, view.left - view.running) / workers) * each_s


def find_needed_exit(bag: BagState, goal: BagGoal) -> int | None:
    """Return the exit status with which a command fails without whose tasks the goal cannot be
    reached; None where there is none. A task fails that failed alike on two machines, or that used
    up its retries."""
    tasks, required = bag.tasks, goal.required(len(bag.tasks))
    failing = [
        (task, item.code)
        for task, item in bag.exits
        if item.is_repeated
        or (tasks.status[task] == FAILED and tasks.failures.get(task, 0) > bag.retries)
    ]
    if goal.these:
        needed = [code for task, code in failing if task < required]
    else:
        gone = tasks.counts[FAILED] + tasks.counts[DROPPED]
        gone += sum(tasks.status[task] not in (DONE, FAILED, DROPPED) for task, _ in failing)
        # tasks that are added later could be done instead, unless the goal is a number of tasks
        is_final = not bag.open or goal.at_least is not None
        is_needed = is_final and len(tasks) - gone < required
        needed = [code for _, code in failing] if is_needed else []
    return needed[-1] if needed else None


def judge_goal(
    bag: BagState,
    view: GoalView,
    *,
    promise: float | None,
    reached_s: float | None,
    workers: int | None,
    error_of: Callable[[int], str],
) -> GoalState:
    """Return the state of a bag's promise. ``view``: as of now; ``promise``: the last one of the
    present goal, None before the first; ``reached_s``: when enough was done; ``workers``:
    :func:`count_most_workers`; ``error_of``: the last line of the errors of a command that failed
    with an exit status."""
    least_s = estimate_least_left_s(view, bag.shortest_s, workers)
    is_late = least_s is not None and view.now_s + least_s > view.due_s
    is_lost = bool(view.lost) and (view.goal.these or not bag.open)
    code = find_needed_exit(bag, view.goal)
    state = promise_state(
        promise,
        view.goal.probability,
        possible=not (is_late or is_lost or code is not None),
        failing=code is not None,
        is_met=reached_s is not None and reached_s <= view.due_s,
        past_due=view.now_s > view.due_s or reached_s is not None or bool(bag.cancelled),
    )
    if state == PromiseState.FAILING and code is not None:
        text = error_of(code)
        return GoalState(
            state=state, reason=f"your command fails: exit {code}" + (f", {text}" if text else "")
        )
    if state == PromiseState.CANNOT_BE_MET:
        late = _explain_late(view, least_s, workers) if is_late else ""
        return GoalState(state=state, reason=late or _explain_lost(view.lost))
    if state == PromiseState.MISSED:
        return GoalState(state=state, reason=bag.cancelled or "the deadline has passed")
    if state == PromiseState.AT_RISK:
        return GoalState(state=state, reason=f"{view.goal.probability:g} was requested")
    return GoalState(state=state)


def update_view(bag: BagState, view: GoalView, now_s: float) -> GoalView:
    """Return a view with the present numbers of tasks."""
    required, done, lost = count_goal_progress(bag, view.goal)
    return replace(
        view,
        now_s=now_s,
        left=max(0, required - done - lost),
        lost=lost,
        running=bag.tasks.counts[ASSIGNED],
        tasks=len(bag.tasks),
    )


def _explain_late(view: GoalView, least_s: float | None, workers: int | None) -> str:
    waiting = max(0, view.left - view.running)
    return (
        f"{format_count(waiting, 'task')} that wait need {format_duration(least_s)} at least, on "
        f"all {format_count(workers or 0, 'processor')} that there may be; "
        f"{format_duration(max(0.0, view.due_s - view.now_s))} are left"
    )


def _explain_lost(lost: int) -> str:
    return f"{format_count(lost, 'required task')} can no longer be done"
