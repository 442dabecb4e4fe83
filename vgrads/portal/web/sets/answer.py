"""The answer of a set's page: its state in words, figures that the sentence lacks, remedies."""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

from starlette.concurrency import run_in_threadpool

from vgrads.kernel.units import format_count, format_duration
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.sets import Head
from vgrads.portal.records.tables import RunRow
from vgrads.portal.records.work import PlanningProgress
from vgrads.portal.web.run_routes import current_status
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_display import (
    BELOW,
    IMPOSSIBLE,
    MISSED,
    DisplayState,
    PromiseSummary,
    display_state,
    read_summary,
    seconds_left,
)
from vgrads.portal.web.set_document import request_in_words
from vgrads.portal.web.set_routes import summary
from vgrads.portal.web.sets.limits import limit_in_words
from vgrads.portal.web.sets.remedies import remedies

Json = dict[str, Any]
Figure = tuple[str, str]
"""A number, and what it counts."""


async def answer_parts(service: Service, head: Head, run: RunRow | None) -> Json:
    """Return the values of the answer's template. ``run``: the newest of the set."""
    now = await current_status(service, head, run)
    return await run_in_threadpool(_make_parts, service, head, run, now)


def _make_parts(service: Service, head: Head, run: RunRow | None, now: Json) -> Json:
    promise = read_summary(head.summary)
    planning = service.supervisor.works.planning(head.id) if head.state == "planning" else None
    state = display_state(
        head.state,
        run.state if run else None,
        promise,
        now.get("promise_state"),
        taken=planning is not None and planning.taken,
    )
    offered = remedies(head.summary, promise) if state in (BELOW, IMPOSSIBLE, MISSED) else []
    return {
        "s": summary(service, head),
        "now": now,
        "display": state,
        "promise": promise,
        "request_words": _describe_request(service, head, state),
        "lacking": head.summary.get("lacking") or "",
        "limit": limit_in_words(_plan(service, head)) if state == BELOW else "",
        "notes": head.summary.get("notes") or (),
        "planning": planning,
        "planning_s": _compute_elapsed_s(planning),
        "remedies": offered,
        # a form that is sent twice takes effect once
        "key": secrets.token_hex(16),
        "figures": _list_figures(head, promise, state, now),
        "renews": head.state == "planning" or now["state"] in GOES_ON,
        "runs": now["state"] in GOES_ON,
    }


def _describe_request(service: Service, head: Head, state: DisplayState) -> str:
    """Return what a set without a plan requests, in words."""
    if head.revision and state != IMPOSSIBLE:
        return ""
    return request_in_words(json.loads(service.sets.text(head.id, "document")))


def _plan(service: Service, head: Head) -> Json:
    plan: Json = json.loads(service.sets.text(head.id, "plan"))
    return plan


def _compute_elapsed_s(planning: PlanningProgress | None) -> float | None:
    if planning is None or not planning.began_s:
        return None
    return max(0.0, time.time() - planning.began_s)


def _list_figures(
    head: Head, promise: PromiseSummary, state: DisplayState, now: Json
) -> list[Figure]:
    """Return figures that the sentence does not have: of a run, else of the plan."""
    if "tasks" in now:
        return _describe_run(now)
    counts = head.summary.get("counts")
    if head.state == "planning" or state == IMPOSSIBLE or not counts:
        return []
    replicas = f", and {format_count(counts['replicas'], 'replica')}" if counts["replicas"] else ""
    figures = [
        (str(counts["tasks"]), f"tasks{replicas}"),
        (str(counts["slots"]), f"slots at {counts['sites']} site{'s'[: counts['sites'] != 1]}"),
    ]
    expected = head.summary.get("expected") or {}
    # a mean that is shown like the price adds nothing
    if expected.get("cost_usd") and round(expected["cost_usd"], 2) != promise.cost_usd:
        figures.append((f"${expected['cost_usd']:.2f}", "cost on average, with early releases"))
    if expected.get("processor_hours"):
        figures.append((f"{expected['processor_hours']:.0f}", "processor-hours on average"))
    return figures


def _describe_run(now: Json) -> list[Figure]:
    tasks, workflows, slots = now["tasks"], now["workflows"], now["slots"]
    left_s = seconds_left(now)
    ended = now["ended"] is not None
    if ended:
        first = (format_duration(now["now_s"]), "from its start to its end")
    elif left_s >= 0:
        first = (format_duration(left_s), "left until the deadline")
    else:
        first = (format_duration(-left_s), "past the deadline")
    lost = f", {slots['lost']} lost" if slots["lost"] else ""
    running = f", {tasks['running']} running" if tasks["running"] and not ended else ""
    before = f", {tasks['before']} more by an earlier run" if tasks["before"] else ""
    figures = [first, (f"{tasks['done']} of {tasks['of']}", f"tasks done{before}{running}")]
    if "in_time" not in now["outcome"]:
        figures.append((f"{workflows['done']} of {workflows['of']}", "workflows done"))
    if ended:
        figures.append((str(slots["of"]), f"slots used or requested{lost}"))
    else:
        figures.append(
            (f"{slots['ready']} of {slots['of']}", f"slots ready{_count_waiting(slots)}{lost}")
        )
    return figures


def _count_waiting(slots: Json) -> str:
    return f", {slots['waiting']} waiting" if slots["waiting"] else ""
