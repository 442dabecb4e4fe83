"""Remedies for a set whose promise falls short: changed sets, each submitted by a button."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vgrads.kernel.units import format_duration, format_usd
from vgrads.portal.web.set_display import PromiseSummary

Json = dict[str, Any]
_COARSE_S = 600.0  # deadlines above this are rounded up to minutes
_UNUSABLE = 100.0
_UNUSABLE_S = 30 * 86400.0
"""A deadline that is both this factor and this many seconds later helps nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change with which the request is met: the ``field`` of a set and its new ``value`` (for a
    form), in words, with the probability and the cost of the changed set's plan."""

    field: str
    value: str
    title: str
    before: str
    probability: float
    cost_usd: float


def remedies(summary: Mapping[str, Any], promise: PromiseSummary) -> list[Remedy]:
    """Return the remedies of a stored summary, the most probable first."""
    changes: Iterable[Json] = summary.get("relaxations") or ()
    results = [
        remedy for change in changes if (remedy := _make_remedy(change, promise)) is not None
    ]
    return sorted(results, key=lambda remedy: (-remedy.probability, remedy.cost_usd))


def _make_remedy(change: Json, promise: PromiseSummary) -> Remedy | None:
    """Return a change as a remedy; None for one that a set cannot state (wider slots), or that is
    of no use."""
    amount = float(change["amount"])
    parts = {"probability": change["probability"], "cost_usd": change["cost_usd"]}
    if change["unit"] == "s" and promise.deadline_s is not None:
        later_s = rounded_up(promise.deadline_s + amount)
        if later_s > _UNUSABLE * promise.deadline_s and amount > _UNUSABLE_S:
            return None
        return Remedy(
            field="deadline_s",
            value=f"{later_s:.0f}",
            title=f"Later deadline: {format_duration(later_s)}",
            before=f"instead of {format_duration(promise.deadline_s)}",
            **parts,
        )
    # at least one workflow must remain needed
    if change["unit"] == "workflows" and promise.needed and promise.needed > amount:
        fewer = promise.needed - round(amount)
        return Remedy(
            field="needed",
            value=str(fewer),
            title=f"Fewer workflows: {fewer}",
            before=f"needed, instead of {promise.needed}",
            **parts,
        )
    if change["unit"] == "USD" and promise.budget_usd is not None:
        # an amount that is whole cents up to rounding is not raised by another cent
        budget_usd = math.ceil(100 * (promise.budget_usd + amount) - 1e-6) / 100
        return Remedy(
            field="budget_usd",
            value=f"{budget_usd:.2f}",
            title=f"More money: {format_usd(budget_usd)}",
            before=f"instead of {format_usd(promise.budget_usd)}",
            **parts,
        )
    return None


def rounded_up(seconds: float) -> float:
    """Return a duration that users can read: in whole minutes, a short one in seconds; never
    shorter."""
    # nobody states a long deadline to the second
    unit = 60.0 if seconds > _COARSE_S else 1.0
    return math.ceil(seconds / unit - 1e-6) * unit
