"""Slurm's own start estimates, taken at the instant of our forecasts and for the same jobs."""

from __future__ import annotations

import time
from collections.abc import Iterable

from vgrads.kernel.errors import SiteError
from vgrads.portal.records.forecasts.rows import ForecastRecords
from vgrads.portal.records.tables import ForecastRow
from vgrads.vgrid.catalog import Catalog, Site

_SAME_INSTANT_S = 60.0
"""Forecasts that are older are compared with no estimate."""
_AT_ONCE = 20  # commands at the sites in one call


def take_estimates(records: ForecastRecords, catalog: Catalog) -> int:
    """Query Slurm sites for start estimates of the shapes of recent forecasts; return how many were
    queried. A site that states none is recorded as such."""
    sites = {site.name: site for site in catalog.sites if site.driver == "slurm"}
    if not sites:
        return 0
    rows = records.without_estimate(sites, time.time() - _SAME_INSTANT_S)
    by_shape: dict[tuple[str, str, int, float], list[ForecastRow]] = {}
    for row in rows:
        by_shape.setdefault((row.site, row.queue, row.procs, row.walltime_s), []).append(row)
    shapes = list(by_shape.items())[:_AT_ONCE]
    for (site, queue, procs, walltime_s), group in shapes:
        estimate_s = site_estimate_s(sites[site], queue, procs, walltime_s)
        records.put_estimate([row.id for row in group], estimate_s)
    return len(shapes)


def site_estimate_s(site: Site, queue: str, procs: int, walltime_s: float) -> float | None:
    """Return the site's own estimate of the wait of such a job; None where it states none."""
    # imported late: few services have such sites
    from vgrads.api.wiring import open_batch
    from vgrads.drivers.api import SlotSpec

    spec = SlotSpec(
        id="forecast",
        name="forecast",
        site=site.name,
        queue=queue,
        procs=procs,
        duration_s=walltime_s,
        nodes=-(-procs // site.nodes[0].cores),
    )
    try:
        return open_batch(site).start_estimate_s(spec)
    except SiteError:
        return None


def is_slurm(sites: Iterable[Site], name: str) -> bool:
    """True if a site of this name is a Slurm cluster."""
    return any(site.name == name and site.driver == "slurm" for site in sites)
