"""Known and measurable properties of sites, as JSON rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vgrads.api.queues.history_files import open_history
from vgrads.api.queues.log_queues import log_queue_row
from vgrads.api.queues.queries import reading_json
from vgrads.drivers.api import SPOT
from vgrads.kernel.errors import VgradsError
from vgrads.kernel.units import format_instant
from vgrads.traces.plausibility import find_more_than_stated
from vgrads.vgrid.acquisition import Acquisition
from vgrads.vgrid.binding import learn_binding
from vgrads.vgrid.catalog import Catalog, NodeType, Queue, Site

Json = dict[str, Any]


def describe(catalog: Catalog, acquisitions: Sequence[Acquisition]) -> list[Json]:
    """Return a row for each site."""
    return [_make_site_row(site, acquisitions) for site in catalog.sites]


def _make_site_row(site: Site, acquisitions: Sequence[Acquisition]) -> Json:
    learned = summarize_observations(site, acquisitions)
    return {
        "name": site.name,
        "kind": site.kind,
        "driver": site.driver,
        "procs": site.procs,
        "containers": list(site.containers),
        "nodes": [_make_node_row(node) for node in site.nodes],
        "queues": [queue_row(queue, site.procs) for queue in site.queues],
        "binding": learned[0]["binding"],
        "learned": learned,
    }


def summarize_observations(site: Site, acquisitions: Sequence[Acquisition]) -> list[Json]:
    """Return observations of runs about each queue of a site (of a cloud: of each market), and the
    resulting corrections of its description."""
    markets = [queue.name for queue in site.queues] or [
        "",
        *([SPOT] if any(node.spot_price_usd_per_hour is not None for node in site.nodes) else []),
    ]
    return [_make_learned_row(site, queue, acquisitions) for queue in markets]


def _make_learned_row(site: Site, queue: str, acquisitions: Sequence[Acquisition]) -> Json:
    binding = learn_binding(site, queue, acquisitions)
    low, middle, high = (float(t) for t in binding.overhead.ready_at([0.05, 0.5, 0.95]))
    mine = [
        acquisition
        for acquisition in acquisitions
        if (acquisition.site, acquisition.queue) == (site.name, queue)
    ]
    slots = {
        "refused": sum(a.refused for a in mine),
        "granted": sum(a.granted_s is not None for a in mine),
        "ready": sum(a.ready_s is not None for a in mine),
        "broken": sum(a.broken for a in mine),
    }
    return {
        "queue": queue or "on demand",
        "observed": {"requested": len(mine), **slots},
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


def _make_node_row(node: NodeType) -> Json:
    return {
        "type": node.name or None,
        "cores": node.cores,
        "memory_mib": node.memory_mib,
        "resources": dict(node.resources),
        "speed": node.speed,
        "price_usd_per_hour": node.price_usd_per_hour,
        "spot_price_usd_per_hour": node.spot_price_usd_per_hour,
    }


def queue_row(queue: Queue, procs: int) -> Json:
    """Return a queue of a batch site with so many processors, and what is in its history."""
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
        "reading": reading_json(whole, find_more_than_stated(whole, procs)),
    }
    return row | {"history": history}
