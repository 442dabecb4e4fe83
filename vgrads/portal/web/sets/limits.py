"""What limits the promise of a plan, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vgrads.kernel.units import format_chance, format_count

Json = Mapping[str, Any]


def limit_in_words(plan: Json) -> str:
    """Return which of the needed workflows is the least probable, and which slot of it is; empty
    where the plan does not say it. ``plan``: :func:`vgrads.api.plans.answers.plan_json`."""
    promise = plan["promise"]
    chances: Mapping[str, float] = promise.get("by_workflow") or {}
    best = sorted(chances, key=lambda name: -chances[name])[: plan["needed"]]
    if not best:
        return ""
    weakest = best[-1]
    words = f"'{weakest}' is in time with {format_chance(chances[weakest])}"
    if len(best) > 1:
        needed = format_count(len(best), "workflow")
        words = f"the least probable of the {needed} needed, {words}"
    slot = _describe_slot(plan, weakest, promise["requested"])
    return f"{words}; {slot}" if slot else words


def _describe_slot(plan: Json, workflow: str, requested: float) -> str:
    """Return the task of a workflow whose slots are the least probable, and with what probability
    these are ready when it is to begin; empty where each task has a slot as probable as
    ``requested``."""
    tasks: dict[str, list[Json]] = {}
    for placement in plan["placements"]:
        if placement["workflow"] == workflow:
            tasks.setdefault(placement["task"], []).append(placement)
    # one replica in time is enough, so the most probable counts
    first = {name: max(copies, key=_find_probability) for name, copies in tasks.items()}
    limiting = min(first.values(), key=_find_probability, default=None)
    if limiting is None or _find_probability(limiting) >= requested:
        return ""
    sites = {slot["id"]: str(slot["site"]) for slot in plan["slots"]}
    words = (
        f"{sites[limiting['slot']]}'s slot is ready at the planned start of its task "
        f"'{limiting['task']}' with {format_chance(_find_probability(limiting))}"
    )
    others = [p for p in tasks[limiting["task"]] if p is not limiting]
    if not others:
        return f"{words}, and no other slot has that task"
    at_most = format_chance(max(map(_find_probability, others)))
    places = _join_sites(sites, others)
    return f"{words}, the slots of its replicas, at {places}, with at most {at_most}"


def _find_probability(placement: Json) -> float:
    return float(placement["probability"])


def _join_sites(sites: Mapping[str, str], placements: Iterable[Json]) -> str:
    names = sorted({sites[placement["slot"]] for placement in placements})
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
