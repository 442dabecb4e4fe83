"""The goal of a bag as its readers see it: the last status of its dispatcher may be old. Few
imports."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from vgrads.kernel.promise_state import PromiseState
from vgrads.kernel.units import format_duration, format_usd

_FINAL = (PromiseState.MET, PromiseState.MISSED)


def age_goal(
    goal: Mapping[str, Any], status: Mapping[str, Any], now_unix_s: float
) -> dict[str, Any]:
    """Return a goal with ``promise_age_s``, how old its promise is, and ``due``, RFC 3339 (None at
    simulated sites); it is missed where its deadline has passed since, whether or not a dispatcher
    works.

    ``status``: of the dispatcher, whose simulated sites have a time of their own."""
    if "state" not in goal:  # as written by an earlier version
        return dict(goal)
    now_s = status.get("now_s")
    # the status is as old as the last work of its dispatcher: now follows from the calendar
    if not status.get("virtual") and status.get("began_unix_s") is not None:
        now_s = now_unix_s - status["began_unix_s"]
    result = {**goal, "promise_age_s": None, "due": None}
    if not status.get("virtual") and status.get("began_unix_s") is not None:
        due_s = status["began_unix_s"] + goal["due_s"]
        result["due"] = datetime.fromtimestamp(due_s, UTC).isoformat()
    if now_s is None or goal["state"] in _FINAL:
        return result
    if goal["promised_s"] is not None:
        result["promise_age_s"] = max(0.0, now_s - goal["promised_s"])
    if now_s > goal["due_s"] and goal["reached_s"] is None:
        result |= {"state": PromiseState.MISSED.value, "state_reason": "the deadline has passed"}
    return result


def describe_goal_promise(goal: Mapping[str, Any]) -> str:
    """Return state, reason and promise of a goal in one line."""
    text = str(goal.get("state", ""))
    if goal.get("state_reason"):
        text += f": {goal['state_reason']}"
    if goal.get("promise") is not None and goal.get("state") not in _FINAL:
        age_s = goal.get("promise_age_s")
        age = f", {format_duration(age_s)} ago" if age_s is not None and age_s >= 1.0 else ""
        text += f" (promise {goal['promise']:.3f}{age})"
    return text


def change_text(change: Mapping[str, Any], came_s: float = 0.0) -> str:
    """Return a change of a goal in one line. ``came_s``: submission of the bag."""
    at = f"goal, after {format_duration(change['at_s'] - came_s)}"
    if change["refused"]:
        return f"{at}: a change was refused: {change['refused']}"
    before, after = change["before"], change["after"]
    names = [name for name in _FIELDS if before.get(name) != after.get(name)]
    texts = [
        f"{_FIELDS[name]} {_format_goal(name, before)} → {_format_goal(name, after)}"
        for name in names
    ]
    return f"{at}: {'; '.join(texts) or 'nothing changed'}"


_FIELDS = {
    "deadline_s": "deadline",
    "fraction": "share",
    "at_least": "at least",
    "probability": "probability",
    "budget_usd": "budget",
}


def _format_goal(name: str, goal: Mapping[str, Any]) -> str:
    value = goal.get(name)
    if value is None:
        return "none"
    if name == "deadline_s":
        return format_duration(value)
    return format_usd(value) if name == "budget_usd" else f"{value:,.6g}"
