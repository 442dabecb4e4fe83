"""All queues and clouds as they are now, a row each: waits of usual jobs, free processors, what
waits, the next maintenance, and how past answers did.

Imported late: it needs forecasts, without which the service starts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vgrads.api.queues.site_snapshots import SiteSnapshot
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_duration
from vgrads.operations.questions import JobQuestion
from vgrads.operations.queue_questions import ForecastContext, find_limits, open_queue
from vgrads.portal.web.forecasts.queue_waits import (
    MachineLoad,
    ShapeWait,
    load_of,
    usual_shapes,
    waits_of,
)
from vgrads.portal.web.forecasts.record_verdict import RecordVerdict, judge_record, verdict_of
from vgrads.vgrid.catalog import Catalog, Queue, Site
from vgrads.vgrid.closures import Availability, find_availability

_NO_RECORD = judge_record(0, None, None)
Scores = Mapping[tuple[str, str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLine:
    """A queue now. ``as_of``: the end of the history, of a queue whose present is not known;
    ``reason``: why its state does not answer yet; ``problem``: why its waits cannot be
    predicted."""

    site: str
    queue: str
    waits: Sequence[ShapeWait] = ()
    load: MachineLoad | None = None
    waiting: int | None = None
    as_of: str = ""
    reason: str = ""
    closure: str = ""
    verdict: RecordVerdict = _NO_RECORD
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudLine:
    """A node type of a cloud, or this machine. ``ready``: when a node is, in words."""

    site: str
    node_type: str
    nodes: int
    cores: int
    ready: str
    price_usd_per_hour: float
    closure: str


def queue_lines(catalog: Catalog, context: ForecastContext, scores: Scores) -> list[QueueLine]:
    """Return a line for each queue, in the order of the catalogue."""
    return [
        _make_queue_line(site, queue, context, scores.get((site.name, queue.name)))
        for site in catalog.sites
        for queue in site.queues
    ]


def _make_queue_line(
    site: Site, queue: Queue, context: ForecastContext, score: Mapping[str, Any] | None
) -> QueueLine:
    verdict = _NO_RECORD if score is None else verdict_of(score)
    snapshot = context.snapshot(site)
    line = QueueLine(site=site.name, queue=queue.name, verdict=verdict)
    if queue.history is None:
        return _explain_unpredicted(line, site, snapshot, "it has no history")
    shapes = usual_shapes(find_limits(site, queue, snapshot))
    procs, walltime_s = shapes[0]
    question = JobQuestion(site=site.name, queue=queue.name, procs=procs, walltime_s=walltime_s)
    try:
        opened = open_queue(question, context)
        waits = waits_of(opened, shapes)
    except InputError as error:
        return _explain_unpredicted(line, site, snapshot, error.without_place)
    view = opened.view
    return replace(
        line,
        waits=waits,
        load=load_of(opened.query.forecast),
        waiting=view.waiting,
        reason=opened.reason or "",
        closure=_describe_next_closure(opened.query.availability),
        as_of="" if view.source == "site" else opened.query.instant(opened.query.at_s),
    )


def _explain_unpredicted(
    line: QueueLine, site: Site, snapshot: SiteSnapshot | None, problem: str
) -> QueueLine:
    reported = {} if snapshot is None else {site.name: snapshot.closures}
    availability = find_availability(site, line.queue, time.time(), reported)
    return replace(line, closure=_describe_next_closure(availability), problem=problem)


def cloud_lines(catalog: Catalog) -> list[CloudLine]:
    """Return a line for each node type of the sites without queues."""
    return [
        CloudLine(
            site=site.name,
            node_type=node.name,
            nodes=site.procs // node.cores,
            cores=node.cores,
            ready=f"in about {format_duration(site.boot_s)}" if site.boot_s else "at once",
            price_usd_per_hour=node.price_usd_per_hour,
            closure=_describe_next_closure(find_availability(site, "", time.time(), {})),
        )
        for site in catalog.sites
        if not site.queues
        for node in site.nodes
    ]


def _describe_next_closure(availability: Availability) -> str:
    """Describe the next maintenance; empty where none is announced."""
    return availability.describe(availability.closures[0]) if availability.closures else ""
