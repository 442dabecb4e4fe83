"""What is known and can be found out about sites, as JSON rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from vgrads.api.queues.histories import open_history
from vgrads.api.queues.log_queues import history_text, log_queue_row
from vgrads.api.wiring import is_real, open_site
from vgrads.drivers.api import SPOT, QueueLimits
from vgrads.kernel.errors import SiteError, VgradsError
from vgrads.kernel.units import format_duration, format_instant
from vgrads.vgrid.acquisition import Acquisition
from vgrads.vgrid.binding import learn_binding
from vgrads.vgrid.catalog import Catalog, NodeType, Queue, Site

Json = dict[str, Any]


def describe(catalog: Catalog, seen: Sequence[Acquisition]) -> list[Json]:
    """A row for each site."""
    return [_site_row(site, seen) for site in catalog.sites]


def _site_row(site: Site, seen: Sequence[Acquisition]) -> Json:
    learned = learned_of(site, seen)
    return {
        "name": site.name,
        "kind": site.kind,
        "driver": site.driver,
        "procs": site.procs,
        "containers": list(site.containers),
        "nodes": [_node_row(node) for node in site.nodes],
        "queues": [_queue_row(queue) for queue in site.queues],
        "binding": learned[0]["binding"],
        "learned": learned,
    }


def learned_of(site: Site, seen: Sequence[Acquisition]) -> list[Json]:
    """What runs have seen of each queue of a site (of a cloud: of each market), and what it makes
    of its description."""
    markets = [queue.name for queue in site.queues] or [
        "",
        *([SPOT] if any(node.spot_price_usd_per_hour is not None for node in site.nodes) else []),
    ]
    return [_learned_row(site, queue, seen) for queue in markets]


def _learned_row(site: Site, queue: str, seen: Sequence[Acquisition]) -> Json:
    binding = learn_binding(site, queue, seen)
    low, middle, high = (float(t) for t in binding.overhead.ready_at([0.05, 0.5, 0.95]))
    mine = [one for one in seen if (one.site, one.queue) == (site.name, queue)]
    return {
        "queue": queue or "on demand",
        "seen": {
            "asked": len(mine),
            "refused": sum(a.refused for a in mine),
            "granted": sum(a.granted_s is not None for a in mine),
            "ready": sum(a.ready_s is not None for a in mine),
            "broken": sum(a.broken for a in mine),
        },
        "stated": {"acquire": site.slot_acquire, "up": site.slot_up, "boot_s": site.boot_s},
        "binding": {
            "p5_s": low,
            "p50_s": middle,
            "p95_s": high,
            "acquire": binding.acquire,
            "up": binding.up,
            "observed": binding.observed,
            "stated_s": site.boot_s,
        },
    }


def _node_row(node: NodeType) -> Json:
    return {
        "type": node.name or None,
        "cores": node.cores,
        "memory_mib": node.memory_mib,
        "resources": dict(node.resources),
        "speed": node.speed,
        "price_usd_per_hour": node.price_usd_per_hour,
        "spot_price_usd_per_hour": node.spot_price_usd_per_hour,
    }


def _queue_row(queue: Queue) -> Json:
    limit = None if queue.max_walltime_s == float("inf") else queue.max_walltime_s
    row: Json = {
        "name": queue.name,
        "max_procs": queue.max_procs,
        "max_walltime_s": limit,
        "max_jobs": queue.max_jobs,
        "stated_probability": queue.stated_probability,
        "stated_wait_s": queue.stated_wait_s,
        "history": None,
    }
    if queue.history is None:
        return row
    try:
        whole = open_history(queue.history)
        log = whole.only_queue(queue.of_log)
    except VgradsError as error:
        return row | {"problem": str(error)}
    until = format_instant(log.unix_start_s + log.end_s)
    history = {
        "file": queue.history,
        "jobs": len(log),
        "until": until,
        **log_queue_row(queue, whole),
    }
    return row | {"history": history}


def check_all(catalog: Catalog) -> list[Json]:
    """Each site: usable or not, and why."""
    return [_check_row(site) for site in catalog.sites]


def _check_row(site: Site) -> Json:
    queues = [_queue_row(queue) for queue in site.queues]
    found = _check_real(site) if is_real(site) else _check(site, queues)
    promises = [
        f"promise starts in {q['name']} from {history_text(q['history'])}"
        for q in queues
        if q["history"]
    ]
    if found["usable"]:
        found["can"] += promises
    histories = [{"queue": q["name"], **(q["history"] or {})} for q in queues]
    return {"name": site.name, "driver": site.driver, **found, "histories": histories}


def _check(site: Site, queues: Sequence[Json]) -> Json:
    """What can be found out of a site that is here without asking for a slot."""
    if site.driver == "local":
        cores = os.cpu_count() or 1
        can = [f"run processes here on {site.procs} of {cores} cores"]
        over = f"{site.procs} processors are stated, this machine has {cores}"
        return {
            "usable": site.procs <= cores,
            "can": can,
            "problem": over if site.procs > cores else None,
        }
    problems = [f"{q['name']}: {q['problem']}" for q in queues if "problem" in q]
    can = [f"simulate {site.procs} processors"]
    can += [
        f"nothing sure in {q['name']}: no history"
        for q in queues
        if q["history"] is None and "problem" not in q
    ]
    return {"usable": not problems, "can": can, "problem": "; ".join(problems) or None}


def _check_real(site: Site) -> Json:
    """Reach a real site; compare what it says of itself with what its file says."""
    try:
        survey = open_site(site).survey()
    except SiteError as error:
        return {"usable": False, "can": [], "problem": str(error), "transient": error.transient}
    known = {queue.name: queue for queue in survey.queues}
    wrong = [text for queue in site.queues if (text := _queue_problem(queue, known))]
    wrong += [p for p in survey.problems if not p.startswith("no history")]
    notes = [p for p in survey.problems if p.startswith("no history")]
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


def _queue_problem(queue: Queue, known: Mapping[str, QueueLimits]) -> str:
    """How a queue of the site file differs from what the site says; empty where it does not."""
    there = known.get(queue.name)
    if there is None:
        return f"no queue '{queue.name}' there; known: {', '.join(known)}"
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
            f"queue '{queue.name}': {queue.max_procs} processors are stated, {there.max_procs} "
            "are there"
        )
    return ""
