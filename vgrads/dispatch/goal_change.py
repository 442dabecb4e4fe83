"""A change of a bag's goal: as requested, as it changes the goal, and why it is refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from vgrads.bags.bag import BagGoal
from vgrads.kernel.deadline import parse_deadline
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, format_usd, parse_fraction, parse_probability

NO_GOAL = "has no goal that could be changed: no deadline with a probability, share or budget"


@dataclass(frozen=True, kw_only=True)
class GoalRequest:
    """A requested change; None: as it is. ``at_unix_s``: when it was requested; ``within_s``: the
    new deadline from then on. ``fraction`` and ``at_least`` (tasks) replace each other."""

    at_unix_s: float
    within_s: float | None = None
    fraction: float | None = None
    at_least: int | None = None
    probability: float | None = None
    budget_usd: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the storage format."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def applied(self, goal: BagGoal, deadline_s: float) -> BagGoal:
        """Return the goal with the change. ``deadline_s``: the new deadline from the submission of
        the bag on, where the request states one."""
        if self.within_s is not None:
            goal = replace(goal, deadline_s=deadline_s)
        if self.fraction is not None:
            goal = replace(goal, fraction=self.fraction, at_least=None)
        if self.at_least is not None:
            goal = replace(goal, at_least=self.at_least)
        if self.probability is not None:
            goal = replace(goal, probability=self.probability)
        return goal if self.budget_usd is None else replace(goal, budget_usd=self.budget_usd)


def decode_goal_request(stored: Mapping[str, Any]) -> GoalRequest:
    """Decode a stored request. Raise InputError for an invalid one."""
    try:
        return GoalRequest(**stored)
    except TypeError as error:
        raise InputError(f"is not a change of a goal: {error}") from error


def read_request(
    *,
    deadline: str | None,
    at_least: str | None,
    budget: float | None,
    probability: float | None,
    now: datetime,
) -> GoalRequest:
    """Return the request that a user wrote. Raise InputError, with the field, where a value is
    invalid, and where nothing is to be changed."""
    if all(value is None for value in (deadline, at_least, budget, probability)):
        raise InputError(
            "nothing is to be changed", fix="state a deadline, at least, budget or probability"
        )
    if budget is not None and not 0 <= budget < float("inf"):
        raise InputError(f"{budget:g} is no sum of dollars", where="budget")
    tasks = _count_tasks(at_least)
    return GoalRequest(
        at_unix_s=now.timestamp(),
        within_s=None if deadline is None else parse_deadline(deadline, now, "deadline"),
        fraction=None if at_least is None or tasks else parse_fraction(at_least, "at_least"),
        at_least=tasks,
        probability=None if probability is None else parse_probability(probability, "probability"),
        budget_usd=budget,
    )


def _count_tasks(at_least: str | None) -> int | None:
    """Return a number of tasks; None for a share."""
    text = (at_least or "").strip().replace(",", "").replace("_", "")
    return int(text) if text.isdecimal() and int(text) else None


def explain_goal_refusal(
    request: GoalRequest, *, is_over: bool, spent_usd: float, left_s: float | None, most: int | None
) -> str:
    """Return why a bag with a goal does not get another one, in one line; empty where it does.

    ``is_over``: no task is left; ``left_s``: until the new deadline, None without one; ``most``:
    tasks that there can be, None while more may be added."""
    if is_over:
        return "the bag has ended"
    if left_s is not None and left_s <= 0.0:
        return "the deadline is before now"
    if request.budget_usd is not None and request.budget_usd < spent_usd:
        return (
            f"a budget of {format_usd(request.budget_usd)} is below the {format_usd(spent_usd)} "
            "that are spent"
        )
    if most is not None and request.at_least is not None and request.at_least > most:
        return f"{request.at_least:,} are more than its {format_count(most, 'task')}"
    return ""
