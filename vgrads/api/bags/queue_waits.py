"""How long the queues of bags with goals make nodes wait: forecasts from their histories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vgrads.api.plans.planning import GridSnapshot, open_grid
from vgrads.dispatch.fleet.site_view import FleetSite
from vgrads.vgrid.catalog import Catalog
from vgrads.vgrid.offers import OfferRequest, offer_batch_slots

_QUANTILES = (np.arange(100) + 0.5) / 100.0
_CONFIDENCE = 0.5
"""The expected probability of each wait, not a bound of it: promises count both sides."""


def add_forecasts(catalog: Catalog, sources: Sequence[FleetSite]) -> list[FleetSite]:
    """Return the sources with forecast waits, where their queues have a history."""
    names = {where.site for where in sources if where.queue}
    sites = tuple(
        site
        for site in catalog.sites
        if site.name in names and any(queue.history is not None for queue in site.queues)
    )
    if not sites:
        return list(sources)
    grid = open_grid(replace(catalog, sites=sites))
    return [_forecast(where, grid) for where in sources]


def _forecast(where: FleetSite, grid: GridSnapshot) -> FleetSite:
    site = next((site for site in grid.catalog.sites if site.name == where.site), None)
    queue = next((q for q in site.queues if q.name == where.queue), None) if site else None
    if site is None or queue is None or (site.name, queue.name) not in grid.forecasts:
        return where
    request = OfferRequest(
        procs=where.procs, count=1, until_s=where.longest_s, confidence=_CONFIDENCE
    )
    offers = offer_batch_slots(site, queue, grid.knowledge, request)
    if not offers:
        return where
    waits_s = offers[0].curve.ready_at(_QUANTILES)
    return replace(where, waits_s=tuple(float(wait) for wait in waits_s))
