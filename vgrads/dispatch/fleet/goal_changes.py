"""Changes of goals while bags work: each request is applied once, or refused with the reason; both
are journalled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vgrads.bags.bag import BagGoal
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.goal_change import (
    NO_GOAL,
    GoalRequest,
    decode_goal_request,
    explain_goal_refusal,
)
from vgrads.dispatch.storage.goal_requests import read_goal_requests


def apply_goal_requests(
    folder: Path,
    number: int,
    core: Core,
    spent_usd: Callable[[int], float],
    now_s: float,
    instant_of: Callable[[float], float],
) -> bool:
    """Apply the new requests of a bag; return True where there was one.

    ``spent_usd``: of a bag, so far; ``instant_of``: the instant of this dispatcher's clock at which
    a request was made that states this time. A request counts as applied once its event is in the
    journal: after a crash before, it is applied by the next dispatcher.
    """
    if number not in core.bags:
        return False  # it could not be opened
    requests = read_goal_requests(folder, number)
    applied = len(core.state.bags[number].goal_changes)
    for count, stored in enumerate(requests[applied:], applied):
        request = decode_goal_request(stored)
        due_s = instant_of(request.at_unix_s) + (request.within_s or 0.0)
        after, refused = _decide(core, number, request, spent_usd(number), now_s, due_s)
        core.change_goal(number, after, now_s, count, refused)
    return len(requests) > applied


def _decide(
    core: Core, number: int, request: GoalRequest, spent_usd: float, now_s: float, due_s: float
) -> tuple[BagGoal | None, str]:
    """Return the new goal, or why there is none."""
    bag, goal = core.state.bags[number], core.bags[number].goal
    if goal is None:
        return None, NO_GOAL
    refused = explain_goal_refusal(
        request,
        is_over=bag.over,
        spent_usd=spent_usd,
        left_s=None if request.within_s is None else due_s - now_s,
        most=None if bag.open else len(bag.tasks),
    )
    return (None, refused) if refused else (request.applied(goal, due_s - bag.came_s), "")
