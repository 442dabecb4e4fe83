"""Explanation of a placement, from the record of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, format_duration, format_usd

Json = Mapping[str, Any]


def explain(plan: Json, task: str) -> dict[str, Any]:
    """Return the replicas of a task in a plan (as JSON) with the numbers that decided;
    ``workflow/task``, or a task's id alone if it is unique."""
    name, _, task_id = task.rpartition("/")
    results = [
        p for p in plan["placements"] if p["task"] == task_id and name in ("", p["workflow"])
    ]
    owners = sorted({p["workflow"] for p in results})
    if not results:
        existing = sorted({p["task"] for p in plan["placements"]})[:8]
        raise InputError(
            f"no task '{task}' in the plan", where="TASK", fix=f"for example {', '.join(existing)}"
        )
    if len(owners) > 1:
        raise InputError(
            f"{format_count(len(owners), 'workflow', 'have')} a task '{task_id}'",
            where="TASK",
            fix=f"for example {owners[0]}/{task_id}",
        )
    reasons = {(r["workflow"], r["task"], r["copy"]): r for r in plan.get("reasons", ())}
    slots = {slot["id"]: slot for slot in plan["slots"]}
    replicas = [
        {
            **p,
            "slot_probability": slots[p["slot"]]["probability"],
            "why": reasons.get((p["workflow"], p["task"], p["copy"])),
        }
        for p in sorted(results, key=lambda p: p["copy"])
    ]
    return {
        "workflow": owners[0],
        "task": task_id,
        "copies": replicas,
        "promise": plan["promise"]["probability"],
        "rivals": _rivals(plan),
    }


def _rivals(plan: Json) -> list[dict[str, Any]]:
    """Return the plans with which this one was compared, by rule, each with why it was not
    taken."""
    requested = plan["promise"].get("requested", 1.0)

    def rank(step: Json) -> tuple[float, float, float]:
        return min(step["promise"], requested), -step["expected_usd"], -step["expected_hours"]

    best: dict[str, Json] = {}
    for phase in plan.get("phases", ()):
        for step in phase["steps"] if phase["name"] in ("comparing", "improving") else ():
            if "rule" in step and (
                step["rule"] not in best or rank(step) > rank(best[step["rule"]])
            ):
                best[step["rule"]] = step
    ours = max(best.values(), key=rank, default=None)
    return [
        {**step, "why": _why_not(step, ours, requested)}
        for step in best.values()
        if ours is not None and step is not ours
    ]


def _why_not(step: Json, ours: Json, requested: float) -> str:
    """Return why a plan was not taken."""
    if step["promise"] < min(requested, ours["promise"]):
        return f"its promise is {step['promise']:.3f}, that of this plan {ours['promise']:.3f}"
    if step["expected_usd"] > ours["expected_usd"]:
        costs = (format_usd(s["expected_usd"]) for s in (step, ours))
        return "it costs {} on average, this plan {}".format(*costs)
    hours = (s["expected_hours"] for s in (step, ours))
    return "it reserves {:.1f} processor-hours on average, this plan {:.1f}".format(*hours)


def explain_text(payload: Json) -> str:
    """Return the same as text."""
    lines = [
        f"{payload['workflow']}/{payload['task']} in a plan with promise {payload['promise']:.3f}:"
    ]
    for replica in payload["copies"]:
        lines.append(
            f"  replica {replica['copy']}: slot {replica['slot']}, "
            f"{format_duration(replica['start_s'])} to {format_duration(replica['end_s'])}, "
            f"{format_count(replica['procs'], 'processor')}, succeeds with probability "
            f"{replica['probability']:.3f}."
        )
        lines += [f"    {line}" for line in why(replica["why"])]
    if payload.get("rivals"):
        lines.append("Other plans, and why they were not taken:")
        lines += [f"  {rival['rule']}: {rival['why']}." for rival in payload["rivals"]]
    return "\n".join(lines)


def why(reason: Json | None) -> list[str]:
    """Return the record of a placement as text."""
    if reason is None:
        return ["The plan records no reason."]
    lines = [f"Phase {reason['phase']}: {reason['rule']}."]
    if "considered" in reason:
        lines.append(f"{reason['considered']} mappings were considered.")
    if "latest_end_s" in reason:
        lines.append(
            f"It had to end by {format_duration(reason['latest_end_s'])} for the rest to "
            "be done in time."
        )
    if "task_before" in reason:
        lines.append(
            f"The probability of the task was {reason['task_before']:.3f} before and "
            f"{reason['task_after']:.3f} after."
        )
    if "rank_s" in reason:
        lines.append(f"Its upward rank was {reason['rank_s']:.0f} s.")
    for other in reason.get("others", ()):
        lines.append(
            f"Not {other['slot']}: from {format_duration(other['start_s'])} to "
            f"{format_duration(other['end_s'])} its probability would "
            f"have been {other['probability']:.3f}, against {reason['probability']:.3f}."
        )
    return lines
