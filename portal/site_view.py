"""What is said about sites: as JSON rows and as tables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from drivers.api import QueueLimits
from kernel.errors import SiteError, VgradsError
from kernel.units import format_duration, format_instant, format_usd
from portal.operations import open_history
from portal.wiring import is_real, open_site
from vgrid.binding import Acquisition, learn_binding
from vgrid.catalog import Catalog, NodeType, Queue, Site

Json = dict[str, Any]


def describe(catalog: Catalog, seen: Sequence[Acquisition]) -> list[Json]:
    """A row for each site."""
    return [_site_row(site, seen) for site in catalog.sites]


def _site_row(site: Site, seen: Sequence[Acquisition]) -> Json:
    binding = learn_binding(site, seen)
    low, middle, high = (float(t) for t in binding.overhead.ready_at([0.05, 0.5, 0.95]))
    return {
        "name": site.name, "kind": site.kind, "driver": site.driver, "procs": site.procs,
        "nodes": [_node_row(node) for node in site.nodes],
        "queues": [_queue_row(queue) for queue in site.queues],
        "binding": {"p5_s": low, "p50_s": middle, "p95_s": high, "acquire": binding.acquire, "up": binding.up,
                    "observed": binding.observed, "stated_s": site.boot_s},
    }  # fmt: skip


def _node_row(node: NodeType) -> Json:
    return {
        "type": node.name or None, "cores": node.cores, "memory_mib": node.memory_mib, "speed": node.speed,
        "price_usd_per_hour": node.price_usd_per_hour, "spot_price_usd_per_hour": node.spot_price_usd_per_hour,
    }  # fmt: skip


def _queue_row(queue: Queue) -> Json:
    limit = None if queue.max_walltime_s == float("inf") else queue.max_walltime_s
    row: Json = {
        "name": queue.name, "max_procs": queue.max_procs, "max_walltime_s": limit, "max_jobs": queue.max_jobs,
        "stated_probability": queue.stated_probability, "stated_wait_s": queue.stated_wait_s,
        "history": None,
    }  # fmt: skip
    if queue.history is None:
        return row
    try:
        log = open_history(queue.history).only_queue(queue.log_queue)
    except VgradsError as error:
        return row | {"problem": str(error)}
    until = format_instant(log.unix_start_s + log.end_s)
    return row | {"history": {"file": queue.history, "jobs": len(log), "until": until}}


def sites_table(rows: Sequence[Json]) -> Table:
    """Sites for a person."""
    table = Table(box=SIMPLE_HEAD)
    for name in ("site", "kind", "driver", "nodes", "queues and histories", "ready after the grant", "seen"):  # fmt: skip
        table.add_column(name)
    for row in rows:
        binding = row["binding"]
        span = f"{format_duration(binding['p50_s'])} ({format_duration(binding['p5_s'])}–{format_duration(binding['p95_s'])})"
        table.add_row(
            row["name"], row["kind"], row["driver"], "\n".join(_node_text(row, node) for node in row["nodes"]),
            "\n".join(map(_queue_text, row["queues"])) or "–", span if binding["p95_s"] else "at once",
            str(binding["observed"]),
        )  # fmt: skip
    return table


def _node_text(site: Json, node: Json) -> str:
    count = site["procs"] // node["cores"]
    price = f", {format_usd(node['price_usd_per_hour'])}/h" if node["price_usd_per_hour"] else ""
    spot = node["spot_price_usd_per_hour"]
    market = f", spot {format_usd(spot)}/h" if spot is not None else ""
    return f"{count} × {node['cores']} cores{price}{market}"


def _queue_text(queue: Json) -> str:
    if "problem" in queue:
        return f"{queue['name']}: {queue['problem']}"
    history = queue["history"]
    if history is None:
        stated = queue["stated_probability"]
        if stated:
            return f"{queue['name']}: no history; stated: starts within {format_duration(queue['stated_wait_s'])} with {stated}"
        return f"{queue['name']}: no history, treated as unknown (probability 0)"
    return (
        f"{queue['name']}: ≤ {queue['max_procs']} processors, {history['jobs']} jobs until "
        f"{history['until'][:10]}"
    )


def check_all(catalog: Catalog) -> list[Json]:
    """Each site: usable or not, and why."""
    return [{"name": s.name, "driver": s.driver, **_check(s)} for s in catalog.sites]


def _check(site: Site) -> Json:
    """What can be found out without asking for a slot."""
    if is_real(site):
        return _check_real(site)
    if site.driver == "local":
        cores = os.cpu_count() or 1
        can = [f"run processes here on {site.procs} of {cores} cores"]
        over = f"{site.procs} processors are stated, this machine has {cores}"
        return {"usable": site.procs <= cores, "can": can, "problem": over if site.procs > cores else None}  # fmt: skip
    queues = [_queue_row(queue) for queue in site.queues]
    problems = [f"{q['name']}: {q['problem']}" for q in queues if "problem" in q]
    can = [f"simulate {site.procs} processors"]
    can += [f"promise starts in {q['name']} from {q['history']['jobs']} jobs" for q in queues if q["history"]]  # fmt: skip
    can += [f"nothing sure in {q['name']}: no history" for q in queues if q["history"] is None and "problem" not in q]  # fmt: skip
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
    queues = [{"name": q.name, "max_walltime_s": q.max_walltime_s, "max_procs": q.max_procs, "open": q.open} for q in survey.queues]  # fmt: skip
    return {
        "usable": not wrong, "can": [f"{survey.version}: reached", *survey.works, *notes], "problem": "; ".join(wrong) or None,
        "version": survey.version, "queues": queues,
    }  # fmt: skip


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
            f"queue '{queue.name}': max_walltime {format_duration(queue.max_walltime_s)} is stated, "
            f"{format_duration(there.max_walltime_s)} is the limit there"
        )
    if there.max_procs is not None and there.max_procs < queue.max_procs:
        return f"queue '{queue.name}': {queue.max_procs} processors are stated, {there.max_procs} are there"
    return ""


def checks_table(rows: Sequence[Json]) -> Table:
    """Checks for a person."""
    table = Table(box=SIMPLE_HEAD)
    for name in ("site", "driver", "usable", "can", "problem"):
        table.add_column(name)
    for row in rows:
        usable = "[green]yes[/]" if row["usable"] else "[red]no[/]"
        table.add_row(
            row["name"], row["driver"], usable, "\n".join(row["can"]), row["problem"] or ""
        )
    return table
