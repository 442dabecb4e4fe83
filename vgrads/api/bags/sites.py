"""Sites of the agents of bags: sites of the catalogue for a dispatcher, with the bags' requirements
on agents."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from vgrads.api.queues.site_snapshots import read_reported_closures
from vgrads.api.wiring import are_all_simulated
from vgrads.dispatch.document import BagDocument, HostsDocument
from vgrads.dispatch.fleet.site_view import FleetSite, LongestStay
from vgrads.dispatch.server.manager import AD_HOC
from vgrads.drivers.api import SPOT
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, format_duration
from vgrads.pool.acquire import ACQUISITIONS, acquire
from vgrads.pool.lookahead import make_look_ahead
from vgrads.pool.release import before_the_end, central_all, coordinated, distributed
from vgrads.pool.view import PoolDecision, PoolLimits, PoolView, merge_decisions
from vgrads.vgrid.catalog import Catalog, Queue, Site
from vgrads.vgrid.closures import Reported, find_availability

RELEASES = ("distributed", "central", "coordinated", "look-ahead")
_LOCAL_S = 30 * 86400.0
_BOOT_S = 60.0
_LEAST_STAY_S = 300.0


def select_usable_sites(catalog: Catalog, document: BagDocument) -> Catalog:
    """The sites that a bag may use: those it names, or all."""
    if not document.sites:
        return catalog
    names = [name for name in document.sites if name != AD_HOC]
    return replace(catalog, sites=tuple(catalog.site(name) for name in names))


def check_places(catalog: Catalog, document: BagDocument) -> None:
    """Raise InputError for a bag that none of the sites can serve, or with an unknown policy."""
    for name in {*document.sites, *document.failover} - {AD_HOC}:
        catalog.site(name)
    if document.sites == (AD_HOC,) and document.hosts.guests:
        return
    sites = [s for s in catalog.sites if not document.sites or s.name in document.sites]
    if are_all_simulated(sites) and sites and document.runtime_s is None:
        raise InputError(
            "is not given, but simulated sites do not run the tasks",
            where="runtime_s",
            fix="give runtime_s, in seconds",
        )
    widest = max((_count_procs(s, document.hosts) for s in sites), default=0)
    if document.procs > widest:
        raise InputError(
            f"needs {format_count(document.procs, 'processor')} of one node; the largest has "
            f"{widest}",
            where="procs",
        )
    places = [_place(site, [document.hosts]) for site in sites]
    longest_s = max(place.longest_s for place in places)
    if (document.runtime_s or 0.0) > longest_s:
        raise InputError(
            f"is {document.runtime_s:g} s, and no node stays longer than {longest_s:g} s",
            where="runtime_s",
            fix="give hosts.longest, up to the longest walltime of a queue",
        )


def _count_procs(site: Site, agents: HostsDocument) -> int:
    """Return the processors of one node of a site."""
    node = (
        site.procs if site.driver == "local" else min(site.procs, max(n.cores for n in site.nodes))
    )
    return min(node, agents.procs or node)


def find_places_now(
    catalog: Catalog, documents: Sequence[BagDocument], zero_s: float
) -> list[FleetSite]:
    """Return the sites of nodes for these bags, with the closures that they report now."""
    names = {place.site for place in find_places(catalog, documents)}
    reported = read_reported_closures(site for site in catalog.sites if site.name in names)
    return find_places(catalog, documents, zero_s, reported)


def find_places(
    catalog: Catalog,
    documents: Sequence[BagDocument],
    zero_s: float | None = None,
    reported: Reported = MappingProxyType({}),
) -> list[FleetSite]:
    """Return the sites of nodes for these bags: as many nodes as any of the bags permits.
    ``zero_s``: the zero of the dispatcher's clock in seconds since 1970 (None: nothing is
    requested, so closed windows do not matter); ``reported``: closures that sites reported."""
    results = []
    for site in catalog.sites:
        wanting = [d.hosts for d in documents if not d.sites or site.name in d.sites]
        if wanting:
            results.append(_place(site, wanting))
            if zero_s is not None and (site.closed or reported.get(site.name)):
                limit = partial(_find_longest_stay, site, results[-1], (zero_s, reported))
                results[-1] = replace(results[-1], limit=limit)
            goals = [d for d in documents if d.goal and (not d.sites or site.name in d.sites)]
            if goals and (spot_price := _find_spot_price(site)) is not None:
                results.append(replace(results[-1], market=SPOT, price=spot_price))
    if any(document.goal for document in documents):
        from vgrads.api.bags.queue_waits import add_forecasts  # noqa: PLC0415 slow to import

        return add_forecasts(catalog, results)
    return results


def _find_longest_stay(
    site: Site, where: FleetSite, since: tuple[float, Reported], now_s: float, wait_s: float
) -> LongestStay:
    """Return how long nodes may stay that are requested now: until the site closes, less the time
    that they may wait for their start. A site closes for requests a little before."""
    zero_s, reported = since
    availability = find_availability(site, where.queue, zero_s + now_s, reported)
    closure = next(iter(availability.closed_to(where.procs)), None)
    if closure is None:
        return LongestStay(length_s=where.longest_s)
    left_s = closure.begin_s - availability.now_s
    # even a long expected wait leaves the nodes half of the time
    length_s = left_s - min(wait_s, left_s / 2) if site.queues else left_s
    if length_s >= where.longest_s:
        return LongestStay(length_s=where.longest_s)
    if length_s < _LEAST_STAY_S:
        opens_s = float(availability.starts(where.procs, _LEAST_STAY_S, 0.0))
        reason = f"no nodes are requested: {availability.describe(closure)}"
        return LongestStay(length_s=0.0, reason=reason, opens_s=now_s + opens_s)
    # rounded down, so that the nodes have left when the site closes
    whole_s = length_s // 60 * 60
    reason = f"nodes stay {format_duration(whole_s)}: {availability.describe(closure)}"
    return LongestStay(length_s=whole_s, reason=reason)


def _find_spot_price(site: Site) -> float | None:
    return max(site.nodes, key=lambda n: n.cores).spot_price_usd_per_hour


def _compute_waits_s(site: Site, queue: Queue | None) -> tuple[float, ...]:
    """Return quantiles of the wait for a node: in a queue as its operator states, exponential with
    the stated probability within the stated wait; elsewhere the time to boot."""
    if queue is None:
        return (site.boot_s or (_BOOT_S if site.kind == "cloud" else 1.0),)
    # no exponential distribution has all or none of its waits within the stated one
    if not 0.0 < queue.stated_probability < 1.0:
        return ()
    scale_s = queue.stated_wait_s / -math.log1p(-queue.stated_probability)
    return tuple(-scale_s * math.log1p(-(n + 0.5) / 100.0) for n in range(100))


def _place(site: Site, wanting: Sequence[HostsDocument]) -> FleetSite:
    first = wanting[0]
    procs = max(_count_procs(site, agents) for agents in wanting)
    longest_s = max(float(agents.longest) for agents in wanting)
    if site.driver == "local":  # this machine: no other user waits for it
        longest_s = max(longest_s, _LOCAL_S)
    queue = next((q for q in site.queues if q.max_procs >= procs), None)
    if queue is not None:
        longest_s = min(longest_s, queue.max_walltime_s)
    widest = max(1, queue.max_procs // procs) if queue else site.procs
    most = max(1, min(max(agents.most for agents in wanting), site.procs // procs))
    least = min(most, max(agents.least for agents in wanting))
    node = max(site.nodes, key=lambda n: n.cores)
    return FleetSite(
        site=site.name,
        queue=queue.name if queue else "",
        node_type=node.name,
        procs=procs,
        limits=PoolLimits(least=least, most=most, longest_s=longest_s),
        longest_s=longest_s,
        decide=_decide(first),
        boot_s=180.0 + 2 * site.boot_s,
        widest=widest,
        requests=queue.max_jobs if queue else 1 << 30,
        price=node.price_usd_per_hour,
        billing_s=site.billing_s,
        cloud=site.kind == "cloud",
        waits_s=_compute_waits_s(site, queue),
    )


def _decide(agents: HostsDocument) -> Callable[[PoolView], PoolDecision]:
    """Return when nodes are requested and released, by the names in a bag's document."""
    if agents.acquire not in ACQUISITIONS:
        raise InputError(
            f"unknown acquisition policy '{agents.acquire}'",
            where="hosts.acquire",
            fix=f"choose one of {', '.join(ACQUISITIONS)}",
        )
    if agents.release not in RELEASES:
        raise InputError(
            f"unknown release policy '{agents.release}'",
            where="hosts.release",
            fix=f"choose one of {', '.join(RELEASES)}",
        )
    if agents.release == "look-ahead":
        return make_look_ahead(agents.patience, agents.acquire)
    idle_s = float(agents.idle)

    def give_back(view: PoolView) -> PoolDecision:
        if agents.release == "central":
            return central_all(view)
        return (
            coordinated(view, idle_s)
            if agents.release == "coordinated"
            else distributed(view, idle_s)
        )

    return lambda view: merge_decisions(
        [acquire(view, agents.acquire), give_back(view), before_the_end(view)]
    )
