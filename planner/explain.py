"""Explanation of a placement, from the record of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, format_duration, format_usd

Json = Mapping[str, Any]
_VISIBLE = 0.0005  # difference of two probabilities with three decimals


def explain(plan: Json, task: str) -> dict[str, Any]:
    """Return the replicas of a task in a plan (as JSON) with the numbers that decided;
    ``workflow/task``, or a task's id alone if it is unique. A workflow that is not in the plan has
    no replicas: ``dropped`` says why; a task that an earlier run completed: ``done_by``.

    Raise InputError if there is no such task, or several.
    """
    name, _, task_id = task.rpartition("/")
    results = [
        p for p in plan["placements"] if p["task"] == task_id and name in ("", p["workflow"])
    ]
    if not results:
        return _explain_not_placed(plan, task)
    owners = sorted({p["workflow"] for p in results})
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
    return _answer(plan, owners[0], task_id) | {"copies": replicas, "rivals": _list_rivals(plan)}


def _answer(plan: Json, workflow: str, task_id: str) -> dict[str, Any]:
    return {
        "workflow": workflow,
        "task": task_id,
        "copies": [],
        "promise": plan["promise"]["probability"],
        "rivals": [],
    }


def _explain_not_placed(plan: Json, task: str) -> dict[str, Any]:
    """Return the answer for a task, or a workflow, that is not in a plan."""
    name, _, task_id = task.rpartition("/")
    dropped = {entry["workflow"]: entry["why"] for entry in plan.get("dropped", ())}
    workflow = name or (task if task in dropped else "")
    if workflow in dropped:
        result = _answer(plan, workflow, task_id if name else "")
        return result | {"dropped": dropped[workflow]}
    done = [d for d in plan.get("done", ()) if d["task"] == task_id and name in ("", d["workflow"])]
    if len(done) == 1:
        return _answer(plan, done[0]["workflow"], task_id) | {"done_by": done[0]["run"]}
    examples = sorted({p["task"] for p in plan["placements"]})[:8]
    if not name and dropped:
        examples.append(f"{next(iter(dropped))}/{task}, of a workflow that is not in the plan")
    raise InputError(
        f"no task '{task}' in the plan",
        where="TASK",
        fix=f"for example {', '.join(examples)}" if examples else "",
    )


def _list_rivals(plan: Json) -> list[dict[str, Any]]:
    """Return the plans with which this one was compared, by rule, each with why it was not taken:
    all numbers are of the scenarios of that comparison."""
    requested = plan["promise"].get("requested", 1.0)

    def rank(step: Json) -> tuple[float, float, float]:
        return min(step["promise"], requested), -step["expected_usd"], -step["expected_hours"]

    best: dict[str, Json] = {}
    ours: Json | None = None
    for phase in plan.get("phases", ()):
        for step in phase["steps"]:
            ours = step.get("compared", ours)
            if (
                phase["name"] == "comparing"
                and "rule" in step
                and (step["rule"] not in best or rank(step) > rank(best[step["rule"]]))
            ):
                best[step["rule"]] = step
    if ours is None:
        return []
    chosen = ours
    return [
        {**step, "why": _explain_rejection(step, chosen, requested)}
        for step in best.values()
        if any(step[name] != chosen[name] for name in ("promise", "expected_usd", "expected_hours"))
    ]


def _explain_rejection(step: Json, ours: Json, requested: float) -> str:
    """Return why a plan was not taken."""
    if step["promise"] < min(requested, ours["promise"]):
        return f"its promise is {step['promise']:.3f}, that of this plan {ours['promise']:.3f}"
    if step["expected_usd"] > ours["expected_usd"]:
        costs = (format_usd(s["expected_usd"]) for s in (step, ours))
        return "it costs {} on average, this plan {}".format(*costs)
    if step["expected_hours"] > ours["expected_hours"]:
        hours = (s["expected_hours"] for s in (step, ours))
        return "it reserves {:.1f} processor-hours on average, this plan {:.1f}".format(*hours)
    return (
        f"its promise is {step['promise']:.3f}, that of this plan {ours['promise']:.3f}; in other "
        "scenarios, by which the choice was checked, this plan was better"
    )


def explain_text(payload: Json) -> str:
    """Return the same as text."""
    name = "/".join(filter(None, (payload["workflow"], payload["task"])))
    if "dropped" in payload:
        return f"{payload['workflow']} is not in the plan: {payload['dropped']}."
    if "done_by" in payload:
        return f"{name} need not run: {payload['done_by']} has done it."
    lines = [f"{name} in a plan with promise {payload['promise']:.3f}:"]
    if any("adds" in (replica["why"] or {}) for replica in payload["copies"]):
        lines = [
            f"{name} in a plan with promise {payload['promise']:.3f}. The numbers below count a "
            "task as lost if its slot is not ready at its planned start."
        ]
    for replica in payload["copies"]:
        lines.append(
            f"  replica {replica['copy']}: slot {replica['slot']}, "
            f"{format_duration(replica['start_s'])} to {format_duration(replica['end_s'])}, "
            f"{format_count(replica['procs'], 'processor')}, succeeds with probability "
            f"{replica['probability']:.3f}."
        )
        lines += [f"    {line}" for line in explain_reason(replica["why"], replica)]
    if payload.get("rivals"):
        lines.append("Other plans, and why they were not taken, in the scenarios of the choice:")
        lines += [f"  {rival['rule']}: {rival['why']}." for rival in payload["rivals"]]
    return "\n".join(lines)


def explain_reason(reason: Json | None, replica: Json) -> list[str]:
    """Return the record of a placement as text."""
    if reason is None:
        return ["The plan records no reason."]
    lines = []
    if "rule" in reason:
        considered = reason.get("considered")
        among = f", of {format_count(considered, 'mapping')}" if considered else ""
        lines.append(f"Phase {reason['phase']}: {reason['rule']}{among}.")
    if "rank_s" in reason:
        lines.append(f"Its upward rank was {reason['rank_s']:.0f} s.")
    if "adds" in reason:
        lines += [_explain_replica(reason, replica), *_explain_other_slots(reason, replica)]
    return lines


def _explain_replica(reason: Json, replica: Json) -> str:
    """Return what a replica adds to the promise; if nothing, why it is there all the same."""
    if reason["adds"] >= _VISIBLE:
        return f"Without it the promise would be lower by {reason['adds']:.3f}."
    until_s = reason["slot_needed_until_s"]
    if until_s is not None and until_s >= replica["end_s"]:
        return (
            "The promise would be the same without it, but nothing would be saved: other tasks "
            f"need its slot until {format_duration(until_s)}. It may help if other slots are late."
        )
    return "The promise would be the same without it. It may help if other slots are late."


def _explain_other_slots(reason: Json, replica: Json) -> Iterator[str]:
    """Return why the replica is not in other slots."""
    for other in reason["others"]:
        text = (
            f"Not {other['slot']}: from {format_duration(other['start_s'])} to "
            f"{format_duration(other['end_s'])} its probability is {other['probability']:.3f}, "
            f"against {replica['probability']:.3f}"
        )
        if other["probability"] > replica["probability"]:
            text += f", but {_describe_drawback(other)}"
        yield f"{text}."


def _describe_drawback(other: Json) -> str:
    """Return why a more probable place was not taken."""
    if other["changes"] <= -_VISIBLE:
        return f"the promise would be lower by {-other['changes']:.3f}"
    if other["more_usd"] > 0:
        return f"it would cost {format_usd(other['more_usd'])} more"
    if other["changes"] < _VISIBLE:
        return "the promise would be the same"
    higher = f"{other['changes']:.3f}"
    return f"the promise, higher by {higher} there, was compared with late starts counted"
