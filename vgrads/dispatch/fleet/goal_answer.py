"""What a dispatcher states of a bag's goal in its status: state, promise, spending, changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from vgrads.bags.bag import BagGoal
from vgrads.dispatch.core.events import GoalChanged
from vgrads.dispatch.core.state import BagState
from vgrads.dispatch.fleet.goal_fleet import GoalFleet
from vgrads.dispatch.fleet.goal_state import count_most_workers, judge_goal, update_view
from vgrads.dispatch.fleet.goal_view import GoalDecision, GoalView, decide_without_work, make_view

_MOST_PROMISES = 200
_WAITS = GoalDecision(nodes={}, promise=None, reason="no decision was needed yet")


def goal_json(
    goals: GoalFleet, number: int, now_s: float, error_of: Callable[[int], str] = lambda _: ""
) -> dict[str, Any]:
    """Return the goal of a bag, its state and how its promise developed; empty without a goal.
    ``error_of``: the last line of the errors of a command that failed with an exit status."""
    bag = goals.core.state.bags[number]
    goal = goals.goal_of(bag)
    if goal is None:
        return {}
    view, decision = _find_last_decision(goals, bag, goal, now_s)
    control = goals.control_of(bag)
    promises = control.present_promises
    promise, promised_s = decision.promise, view.now_s
    if promises and promise in (None, promises[-1][1]):
        promised_s, promise = promises[-1]
    reached_s = view.now_s if decision.reached and not view.lost else None
    now = update_view(bag, view, now_s)
    state = judge_goal(
        bag,
        now,
        promise=promise,
        reached_s=reached_s,
        workers=_count_workers(goals, bag),
        error_of=error_of,
    )
    return {
        "state": state.state.value,
        "state_reason": state.reason,
        "due_s": now.due_s,
        "required": goal.required(now.tasks),
        "left": now.left,
        "requested": goal.probability,
        "promise": promise,
        "promised_s": None if promise is None else promised_s,
        "why": decision.reason,
        "nodes": dict(decision.nodes),
        "spent_usd": round(goals.spent_usd(number, goals.core.state.now_s), 4),
        "budget_usd": goal.budget_usd,
        "reached_s": reached_s,
        "promises": [list(pair) for pair in _find_newest(control.promises, promises)],
        "nodes_over_time": [[at_s, nodes] for at_s, nodes in goals.nodes_over_time[number]],
        "changes": [_change_json(change) for change in bag.goal_changes],
    }


def _find_last_decision(
    goals: GoalFleet, bag: BagState, goal: BagGoal, now_s: float
) -> tuple[GoalView, GoalDecision]:
    """Return the last decision for the present goal, and what it was made for."""
    view = goals.views.get(bag.number)
    decision = goals.decisions.get(bag.number, _WAITS)
    if view is None or not goals.is_decided(bag):
        view, decision = make_view(bag, goal, 0.0, now_s), _WAITS
    view = replace(view, goal=goal, due_s=bag.came_s + goal.deadline_s)
    is_whole = goal.required(view.tasks) == view.tasks
    if bag.ended_s is not None and bag.over and (is_whole or not decision.reached):
        view = make_view(bag, goal, goals.spent_usd(bag.number, bag.ended_s), bag.ended_s)
        decision = replace(decide_without_work(view), reached=True)
    return view, decision


def _count_workers(goals: GoalFleet, bag: BagState) -> int | None:
    """Return how many of a bag's tasks could run at once; None where others may join than those
    that are requested, or where that is not known yet."""
    sites = (*bag.sites, *bag.failover) if bag.sites else ()
    sources = [where for where in goals.sources if not sites or where.site in sites]
    names = {where.site for where in goals.sources}
    others = any(a.here and a.site not in names for a in goals.core.state.agents.values())
    if goals.ad_hoc_agents or others or not goals.inventory:
        return None
    return count_most_workers(sources, goals.inventory, bag.procs)


def _find_newest(
    promises: Sequence[tuple[float, float]], present: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return the first promise and the first of the present goal, which are scored, and the newest
    ones."""
    newest = promises[-_MOST_PROMISES:]
    return sorted({*promises[:1], *present[:1], *newest})


def _change_json(change: GoalChanged) -> dict[str, Any]:
    return {
        "at_s": change.at_s,
        "before": dict(change.before),
        "after": None if change.after is None else dict(change.after),
        "refused": change.refused,
    }
