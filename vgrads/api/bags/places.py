"""Where the hosts of bags may come from: sites as a dispatcher's places, by what the bags say of
hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vgrads.api.wiring import all_simulated
from vgrads.dispatch.document import BagDocument, HostsDocument
from vgrads.dispatch.fleet.site_view import Place
from vgrads.dispatch.server.manager import GUEST
from vgrads.kernel.errors import InputError
from vgrads.pool.acquire import ACQUISITIONS, acquire
from vgrads.pool.lookahead import looking_ahead
from vgrads.pool.release import before_the_end, central_all, coordinated, distributed
from vgrads.pool.view import PoolDecision, PoolLimits, PoolView, together
from vgrads.vgrid.catalog import Catalog, Site

RELEASES = ("distributed", "central", "coordinated", "look-ahead")
_LOCAL_S = 30 * 86400.0


def check_places(catalog: Catalog, document: BagDocument) -> None:
    """InputError for a bag that none of the sites can serve, or that asks in a way that nobody
    knows."""
    for name in {*document.sites, *document.failover} - {GUEST}:
        catalog.site(name)
    if document.sites == (GUEST,) and document.hosts.guests:
        return
    sites = [s for s in catalog.sites if not document.sites or s.name in document.sites]
    if all_simulated(sites) and sites and document.runtime_s is None:
        raise InputError(
            "is not given, and simulated sites cannot find out how long a task runs",
            where="runtime_s",
            fix="give runtime_s, in seconds",
        )
    widest = max((_procs(s, document.hosts) for s in sites), default=0)
    if document.procs > widest:
        raise InputError(
            f"needs {document.procs} processors of one host; the largest has {widest}",
            where="procs",
        )
    places = [_place(site, [document.hosts]) for site in sites]
    longest_s = max(place.longest_s for place in places)
    if (document.runtime_s or 0.0) > longest_s:
        raise InputError(
            f"is {document.runtime_s:g} s, and no host stays longer than {longest_s:g} s",
            where="runtime_s",
            fix="give hosts.longest, up to the longest walltime of a queue",
        )


def _procs(site: Site, hosts: HostsDocument) -> int:
    """Processors of one host of a site."""
    node = (
        site.procs if site.driver == "local" else min(site.procs, max(n.cores for n in site.nodes))
    )
    return min(node, hosts.procs or node)


def places_of(catalog: Catalog, documents: Sequence[BagDocument]) -> list[Place]:
    """Where hosts for these bags may come from: as many as any of them allows."""
    found = []
    for site in catalog.sites:
        wanting = [d.hosts for d in documents if not d.sites or site.name in d.sites]
        if wanting:
            found.append(_place(site, wanting))
    return found


def _place(site: Site, wanting: Sequence[HostsDocument]) -> Place:
    first = wanting[0]
    procs = max(_procs(site, hosts) for hosts in wanting)
    longest_s = max(float(hosts.longest) for hosts in wanting)
    if site.driver == "local":  # our own: nobody waits for it
        longest_s = max(longest_s, _LOCAL_S)
    queue = next((q for q in site.queues if q.max_procs >= procs), None)
    if queue is not None:
        longest_s = min(longest_s, queue.max_walltime_s)
    widest = max(1, queue.max_procs // procs) if queue else site.procs
    most = max(1, min(max(hosts.most for hosts in wanting), site.procs // procs))
    least = min(most, max(hosts.least for hosts in wanting))
    node = max(site.nodes, key=lambda n: n.cores)
    return Place(
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
    )


def _decide(hosts: HostsDocument) -> Callable[[PoolView], PoolDecision]:
    """When hosts are asked for and given back, by the names in a bag's document."""
    if hosts.acquire not in ACQUISITIONS:
        raise InputError(
            f"'{hosts.acquire}' is no way to ask",
            where="hosts.acquire",
            fix=f"one of {', '.join(ACQUISITIONS)}",
        )
    if hosts.release not in RELEASES:
        raise InputError(
            f"'{hosts.release}' is no way to give back",
            where="hosts.release",
            fix=f"one of {', '.join(RELEASES)}",
        )
    if hosts.release == "look-ahead":
        return looking_ahead(hosts.patience, hosts.acquire)
    idle_s = float(hosts.idle)

    def give_back(view: PoolView) -> PoolDecision:
        if hosts.release == "central":
            return central_all(view)
        return (
            coordinated(view, idle_s)
            if hosts.release == "coordinated"
            else distributed(view, idle_s)
        )

    return lambda view: together(
        [acquire(view, hosts.acquire), give_back(view), before_the_end(view)]
    )
