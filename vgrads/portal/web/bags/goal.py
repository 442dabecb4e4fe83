"""The goal of a bag, as its page shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from markupsafe import Markup

from vgrads.dispatch.storage.goal_age import change_text
from vgrads.kernel.promise_state import PromiseState
from vgrads.kernel.units import format_chance, format_count, format_duration
from vgrads.portal.charts.curves import (
    AMBER,
    BLUE,
    GREY,
    RED,
    Curve,
    CurveChart,
    curves_svg,
    step_points,
)
from vgrads.portal.charts.layout import axis_end
from vgrads.portal.charts.promise_chart import promise_chart

TONES = {
    PromiseState.ON_TRACK: "good",
    PromiseState.AT_RISK: "warn",
    PromiseState.CANNOT_BE_MET: "bad",
    PromiseState.FAILING: "bad",
    PromiseState.MISSED: "bad",
    PromiseState.MET: "good",
}
"""Classes of the style sheet."""
_NONE_YET = "No promise can be given until the first tasks have run."


def goal_view(bag: Mapping[str, Any], now_s: float | None) -> dict[str, Any] | None:
    """Return the sentences and the chart of a bag's goal; None for a bag without one."""
    goal = bag.get("goal")
    if not goal or "state" not in goal:  # of an earlier version, which has ended
        return None
    came_s = bag["came_s"]
    promises = [(at_s - came_s, share) for at_s, share in goal["promises"]]
    reached_s, due_s = goal["reached_s"], goal["due_s"]
    if reached_s is not None:
        kept = reached_s <= due_s
        state = f"{'in time' if kept else 'too late'}, after {format_duration(reached_s - came_s)}"
    else:
        state = f"{goal['left']:,} are left"
    end_s = reached_s or now_s or due_s
    return {
        "what": (
            f"{goal['required']:,} of {format_count(bag['tasks'], 'task')} within "
            f"{format_duration(due_s - came_s)}, with a probability of "
            f"{format_chance(goal['requested'])}: {state}"
        ),
        "state": goal["state"],
        "tone": TONES[PromiseState(goal["state"])],
        "reason": goal.get("state_reason") or "",
        "changes": [change_text(change, came_s) for change in goal["changes"]],
        "why": goal["why"],
        "chart": promise_chart(promises, end_s - came_s, due_s - came_s, _NONE_YET),
        "nodes": nodes_chart(goal["nodes_over_time"], came_s, end_s, due_s),
    }


def nodes_chart(
    samples: Sequence[tuple[float, Mapping[str, int]]], came_s: float, end_s: float, due_s: float
) -> Markup:
    """Draw how many nodes of each source worked over time; empty without nodes. ``samples``:
    instant, and nodes by source from then on."""
    names = sorted({name for _, nodes in samples for name, count in nodes.items() if count})
    if not names:
        return Markup("")
    curves = []
    for name, colour in zip(names, cycle((BLUE, AMBER, RED, GREY))):
        counts = [(0.0, 0.0)]
        counts += [(at_s - came_s, float(nodes.get(name, 0))) for at_s, nodes in samples]
        points = step_points(counts, end_s - came_s)
        curves.append(Curve(label=name, points=points, colour=colour))
    chart = CurveChart(
        title=f"Nodes: {', '.join(names)}",
        x_label="time since the submission",
        y_label="",
        curves=tuple(curves),
        x_range=(0.0, axis_end(max(end_s - came_s, 1.0), due_s - came_s)),
        y_most=max(float(count) for _, nodes in samples for count in nodes.values()),
        marks=((due_s - came_s, "deadline"),),
    )
    return Markup(curves_svg([chart]))
