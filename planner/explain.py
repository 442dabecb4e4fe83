"""Explanation of a placement, from the record of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_duration

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
            f"{len(owners)} workflows have a task '{task_id}'",
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
    }


def explain_text(payload: Json) -> str:
    """Return the same as text."""
    lines = [
        f"{payload['workflow']}/{payload['task']} in a plan with promise {payload['promise']:.3f}:"
    ]
    for replica in payload["copies"]:
        lines.append(
            f"  replica {replica['copy']}: slot {replica['slot']}, "
            f"{format_duration(replica['start_s'])} to {format_duration(replica['end_s'])}, "
            f"{replica['procs']} processors, succeeds with probability "
            f"{replica['probability']:.3f}."
        )
        lines += [f"    {line}" for line in why(replica["why"])]
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
