"""Checks of sites: whether each can be used, and why not, as JSON rows."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from vgrads.api.queues.log_queues import describe_history
from vgrads.api.queues.sites import queue_row
from vgrads.api.wiring import (
    explain_missing_python,
    is_batch_system,
    is_real,
    open_batch,
    open_site,
)
from vgrads.drivers.api import QueueLimits
from vgrads.drivers.machines import describe_shared_nodes
from vgrads.drivers.quality import QUALITY
from vgrads.kernel.errors import SiteError
from vgrads.kernel.units import format_count, format_duration
from vgrads.vgrid.catalog import Catalog, Queue, Site
from vgrads.vgrid.closures import find_availability

Json = dict[str, Any]
_AHEAD_S, _MOST_CLOSURES = 14 * 86400.0, 5
"""How far ahead closures are described, and how many."""


def check_all(catalog: Catalog) -> list[Json]:
    """Check each site: usable or not, and why."""
    return [_check_row(site) for site in catalog.sites]


def _check_row(site: Site) -> Json:
    queues = [queue_row(queue, site.procs) for queue in site.queues]
    result = _check_real(site) if is_real(site) else _check(site, queues)
    promises = [
        f"promise starts in {q['name']} from {describe_history(q['history'])}"
        for q in queues
        if q["history"]
    ]
    if result["usable"]:
        result["can"] += [*promises, *_describe_closures(site)]
    quality = QUALITY.get(site.driver)
    histories = [{"queue": q["name"], **(q["history"] or {})} for q in queues]
    warnings = [
        f"history of {q['name']}: {text}"
        for q in queues
        if q["history"]
        for text in (q["history"]["reading"] or {}).get("warnings", ())
    ]
    return {
        "name": site.name,
        "driver": site.driver,
        "driver_quality": str(quality) if quality else None,
        **result,
        "histories": histories,
        "warnings": warnings,
    }


def _describe_closures(site: Site) -> list[str]:
    """Describe the next closures of a site, stated and reported ones."""
    now_s, reported = time.time(), {}
    if is_batch_system(site):
        with suppress(SiteError):  # the other lines say what works
            reported[site.name] = open_batch(site).closures(now_s)
    lines: dict[str, None] = {}
    for name in [queue.name for queue in site.queues] or [""]:
        availability = find_availability(site, name, now_s, reported)
        for closure in availability.during(0.0, _AHEAD_S):
            place = f"{name}: " if closure.queues else ""
            lines[place + availability.describe(closure)] = None
    return list(lines)[:_MOST_CLOSURES]


def _check(site: Site, queues: Sequence[Json]) -> Json:
    """Check a local or simulated site without requesting a slot."""
    if site.driver == "local":
        cores = os.cpu_count() or 1
        can = [f"run processes here on {site.procs} of {format_count(cores, 'core')}"]
        over = f"{format_count(site.procs, 'processor', 'are')} stated, this machine has {cores}"
        return {
            "usable": site.procs <= cores,
            "can": can,
            "problem": over if site.procs > cores else None,
        }
    problems = [f"{q['name']}: {q['problem']}" for q in queues if "problem" in q]
    can = [f"simulate {format_count(site.procs, 'processor')}"]
    can += [
        f"no promise in {q['name']}: no history"
        for q in queues
        if q["history"] is None and "problem" not in q
    ]
    return {"usable": not problems, "can": can, "problem": "; ".join(problems) or None}


def _check_real(site: Site) -> Json:
    """Contact a real site; compare its report with its file."""
    try:
        survey = open_site(site).survey()
        python = explain_missing_python(site)
    except SiteError as error:
        return {"usable": False, "can": [], "problem": str(error), "transient": error.transient}
    by_queue = {queue.name: queue for queue in survey.queues}
    wrong = [text for queue in site.queues if (text := _compare_queue(queue, by_queue))]
    # a site without a readable history still runs jobs: a note, not a fault
    wrong += [p for p in (python, *survey.problems) if p and not p.startswith("no history")]
    shared = (
        describe_shared_nodes(by_queue[q.name], survey.queues)
        for q in site.queues
        if q.name in by_queue
    )
    notes = [f"{text}: their jobs take the same nodes" for text in shared if text]
    notes += [p for p in survey.problems if p.startswith("no history")]
    queues = [
        {
            "name": q.name,
            "max_walltime_s": q.max_walltime_s,
            "max_procs": q.max_procs,
            "open": q.open,
        }
        for q in survey.queues
    ]
    return {
        "usable": not wrong,
        "can": [f"{survey.version}: reached", *survey.works, *notes],
        "problem": "; ".join(wrong) or None,
        "version": survey.version,
        "queues": queues,
    }


def _compare_queue(queue: Queue, by_queue: Mapping[str, QueueLimits]) -> str:
    """Return how a queue of the site file differs from the site's report; empty if it does not."""
    there = by_queue.get(queue.name)
    if there is None:
        return f"no queue '{queue.name}' there; known: {', '.join(by_queue)}"
    if not there.open:
        return f"queue '{queue.name}' is closed"
    if there.max_walltime_s is not None and there.max_walltime_s < queue.max_walltime_s < float(
        "inf"
    ):
        return (
            f"queue '{queue.name}': max_walltime {format_duration(queue.max_walltime_s)} "
            "is stated, "
            f"{format_duration(there.max_walltime_s)} is the limit there"
        )
    if there.max_procs is not None and there.max_procs < queue.max_procs:
        return (
            f"queue '{queue.name}': {format_count(queue.max_procs, 'processor', 'are')} stated, "
            "the queue has "
            f"{there.max_procs}"
        )
    return ""
