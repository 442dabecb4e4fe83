"""What the stored document of a set requests, in words; the document of a changed set."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import (
    format_chance,
    format_count,
    format_duration,
    format_usd,
    needed_of,
    parse_duration,
    parse_fraction,
)
from vgrads.portal.web.set_display import read_summary

Json = dict[str, Any]
_SAME_S = 1.0  # deadlines of a slider are whole seconds


def workflow_count(document: Json) -> int:
    """Return the number of workflows of a set."""
    return sum(int(w.get("count", 1)) for w in document.get("workflows", ()))


def request_in_words(document: Json) -> str:
    """Return what a set requests."""
    total = workflow_count(document)
    needed = document.get("at_least")
    if needed is None:
        needed = needed_of(document.get("fraction") or 1.0, total)
    deadline = document["deadline"]
    with suppress(InputError):
        deadline = format_duration(parse_duration(deadline))
    budget = document.get("budget_usd")
    money = "" if budget is None else f", for at most {format_usd(budget)}"
    return (
        f"{needed} of {format_count(total, 'workflow')} within {deadline}, with a probability of "
        f"{format_chance(document.get('probability', 0.9))}{money}"
    )


def changed_document(text: str, before_s: float | None, change: Mapping[str, float | None]) -> Json:
    """Return the document of a set (JSON) with another deadline, number of workflows or budget.

    ``before_s``: the deadline of its plan; a deadline that is an instant is moved by the
    difference. Missing entries of ``change`` are unchanged.
    """
    document: Json = json.loads(text)
    if change.get("deadline_s") is not None:
        document["deadline"] = _shift_deadline(
            document["deadline"],
            before_s,
            float(change["deadline_s"]),  # type: ignore[arg-type]
        )
    if change.get("needed") is not None:
        document |= {"at_least": round(float(change["needed"])), "fraction": None}  # type: ignore[arg-type]
    if change.get("budget_usd") is not None:
        document["budget_usd"] = change["budget_usd"]
    return document


def is_as_planned(summary: Mapping[str, Any], document: Json, change: Mapping[str, Any]) -> bool:
    """Return True where a change states what a set's plan (its summary) was made for."""
    promise, budget = read_summary(summary), document.get("budget_usd")
    deadline, fraction = change.get("deadline"), change.get("fraction")
    if promise.deadline_s is None or "probability" in change:
        return False
    if change.get("budget_usd", budget) != budget:
        return False
    with suppress(InputError, ValueError):
        if deadline is not None and abs(parse_duration(deadline) - promise.deadline_s) >= _SAME_S:
            return False
        if fraction is None:
            return True
        share_of = parse_fraction(fraction, "fraction")
        return needed_of(share_of, workflow_count(document)) == promise.needed
    return False


def _shift_deadline(deadline: str | float, before_s: float | None, after_s: float) -> str | float:
    try:
        parse_duration(deadline)
    except InputError:
        moved = datetime.fromisoformat(str(deadline)) + timedelta(seconds=after_s - (before_s or 0))
        return moved.isoformat()
    return after_s
