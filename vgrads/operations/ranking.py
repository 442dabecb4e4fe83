"""Where a job of a shape would start first: all queues, ranked, and the cheapest cloud."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import billed_usd
from vgrads.operations.forecast_lists import (
    WITHIN_S,
    Forecasts,
    HowToAnswer,
    Question,
    forecast_many,
)
from vgrads.operations.questions import RankingOptions
from vgrads.operations.queue_questions import ForecastContext
from vgrads.vgrid.catalog import Catalog, NodeType, Site

Json = dict[str, Any]
_EXPECTED, _INTERVAL = 0.5, (0.25, 0.95)
QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.95)


def rank_queues(
    question: RankingOptions,
    catalog: Catalog,
    context: ForecastContext,
) -> tuple[Json, Forecasts]:
    """Return the queues of all sites by the expected start of such a job, those without a forecast
    with the reason, and the cheapest cloud; and what was issued. Raise InputError where neither a
    queue nor a cloud can run it."""
    procs, walltime_s = question.procs, question.walltime_s
    how = HowToAnswer(
        quantiles=QUANTILES,
        within_s=WITHIN_S,
        kind="where",
        live=question.live,
    )
    questions = [
        Question(site=site.name, queue=queue.name, procs=procs, walltime_s=walltime_s)
        for site in catalog.sites
        if site.kind != "cloud"
        for queue in site.queues
    ]
    result = forecast_many(questions, replace(context, catalog=lambda: catalog), how)
    rows = [_make_row(answer) for answer in result.answers if "error" not in answer]
    ranked = sorted(
        (row for row in rows if row["expected_start_s"] is not None),
        key=lambda row: (
            row["expected_start_s"],
            math.inf if row["latest_start_s"] is None else row["latest_start_s"],
        ),
    )
    unknown = [
        row | {"field": "queue", "error": f"queue: {row['reason']}"}
        for row in rows
        if row["expected_start_s"] is None
    ]
    document: Json = {
        "procs": procs,
        "walltime_s": walltime_s,
        "queues": ranked,
        "left_out": unknown + [answer for answer in result.answers if "error" in answer],
        "cloud": find_cheapest_cloud(catalog, procs, walltime_s),
    }
    if not ranked and document["cloud"] is None:
        reasons = "; ".join(
            f"{row['site']}/{row['queue']}: {row['error']}" for row in document["left_out"]
        )
        raise InputError(
            f"no queue and no cloud of these sites can run such a job: {reasons or 'no queues'}",
            where="procs, walltime_s",
        )
    return document, result


def _make_row(answer: Json) -> Json:
    """Return an answer with its expected start and the interval around it."""
    bounds = {entry["quantile"]: entry["bound_s"] for entry in answer["bounds"]}
    earliest, latest = _INTERVAL
    return {
        "site": answer["site"],
        "queue": answer["queue"],
        "expected_start_s": bounds[_EXPECTED],
        "earliest_start_s": bounds[earliest],
        "latest_start_s": bounds[latest],
        **{
            k: answer[k]
            for k in (
                "bounds",
                "method",
                "jobs",
                "since",
                "reason",
                "warning",
                "closure",
                "queue_view",
            )
        },
    }


def find_cheapest_cloud(catalog: Catalog, procs: int, walltime_s: float) -> Json | None:
    """Return the cloud nodes that run such a job at the lowest price on demand; None where no cloud
    has as many processors."""
    offers = [
        _make_cloud_offer(site, node, procs, walltime_s)
        for site in catalog.sites
        if site.kind == "cloud" and site.procs >= procs
        for node in site.nodes
    ]
    return min(offers, key=lambda offer: (offer["cost_usd"], offer["start_s"]), default=None)


def _make_cloud_offer(site: Site, node: NodeType, procs: int, walltime_s: float) -> Json:
    nodes = -(-procs // node.cores)
    cost_usd = billed_usd(nodes, walltime_s, site.billing_s, node.price_usd_per_hour)
    return {
        "site": site.name,
        "node_type": node.name or None,
        "nodes": nodes,
        "start_s": site.boot_s,
        "price_usd_per_hour": node.price_usd_per_hour,
        "cost_usd": round(cost_usd, 2),
    }
