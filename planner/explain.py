"""Why there? What the record of a plan says about one task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_duration

Json = Mapping[str, Any]


def explain(plan: Json, task: str) -> dict[str, Any]:
    """The copies of a task in a plan (as JSON) with the numbers that decided; ``workflow/task``, or
    a task's id alone where only one workflow has it."""
    name, _, task_id = task.rpartition("/")
    found = [p for p in plan["placements"] if p["task"] == task_id and name in ("", p["workflow"])]
    owners = sorted({p["workflow"] for p in found})
    if not found:
        known = sorted({p["task"] for p in plan["placements"]})[:8]
        raise InputError(
            f"no task '{task}' in the plan", where="TASK", fix=f"for example {', '.join(known)}"
        )
    if len(owners) > 1:
        raise InputError(
            f"{len(owners)} workflows have a task '{task_id}'",
            where="TASK",
            fix=f"for example {owners[0]}/{task_id}",
        )
    reasons = {(r["workflow"], r["task"], r["copy"]): r for r in plan.get("reasons", ())}
    slots = {slot["id"]: slot for slot in plan["slots"]}
    copies = [
        {
            **p,
            "slot_probability": slots[p["slot"]]["probability"],
            "why": reasons.get((p["workflow"], p["task"], p["copy"])),
        }
        for p in sorted(found, key=lambda p: p["copy"])
    ]
    return {
        "workflow": owners[0],
        "task": task_id,
        "copies": copies,
        "promise": plan["promise"]["probability"],
    }


def explain_text(told: Json) -> str:
    """The same in sentences."""
    lines = [f"{told['workflow']}/{told['task']} in a plan with promise {told['promise']:.3f}:"]
    for copy in told["copies"]:
        lines.append(
            f"  copy {copy['copy']}: slot {copy['slot']}, "
            f"{format_duration(copy['start_s'])} to {format_duration(copy['end_s'])}, "
            f"{copy['procs']} processors, succeeds with {copy['probability']:.3f}."
        )
        lines += [f"    {line}" for line in why(copy["why"])]
    return "\n".join(lines)


def why(reason: Json | None) -> list[str]:
    """What the record of a placement says, in sentences."""
    if reason is None:
        return ["The plan does not record why."]
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
            f"The task was {reason['task_before']:.3f} sure before and "
            f"{reason['task_after']:.3f} after."
        )
    if "rank_s" in reason:
        lines.append(f"Its upward rank was {reason['rank_s']:.0f} s.")
    for other in reason.get("others", ()):
        lines.append(
            f"Not {other['slot']}: from {format_duration(other['start_s'])} to "
            f"{format_duration(other['end_s'])} it would "
            f"have been {other['probability']:.3f} sure, against {reason['probability']:.3f}."
        )
    return lines
