"""The site catalogue: kinds of sites, their size, speed and price.

The TOML form is fixed in the contracts; the portal's database stores the same fields.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vgrads.drivers.api import SiteAccess
from vgrads.kernel.documents import load_mapping, validate
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count
from vgrads.traces.log_queue import LogQueue, SiteQueue
from vgrads.vgrid.documents import (
    DEFAULT_BANDWIDTH_MIB_S,
    DEFAULT_LATENCY_S,
    AccessDocument,
    Kind,
    NodeDocument,
    QueueDocument,
    SiteDocument,
    SitesDocument,
)
from vgrads.workflows.task_environment import ENGINES


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A batch queue: its limits and the location of its wait history.

    Without a history (None) only the operator's statement is known: a job starts within
    ``stated_wait_s`` with ``stated_probability``. ``log_queue``: as stated; None: not stated.
    """

    name: str
    history: str | None
    log_queue: str | int | None
    max_procs: int
    max_walltime_s: float
    max_jobs: int
    stated_probability: float = 0.0
    stated_wait_s: float = 0.0

    @property
    def of_log(self) -> LogQueue:
        """The queue of its log that counts: the stated one, otherwise the one of the same name."""
        return SiteQueue(self.name) if self.log_queue is None else self.log_queue


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """Properties and price of a node. ``speed`` divides run times; prices are per node-hour.

    A spot node costs ``spot_price_usd_per_hour`` and is interrupted at a rate of
    ``spot_interruptions_per_hour``; None if there is no such market.
    """

    name: str = ""
    cores: int = 1
    memory_mib: float | None = None
    speed: float = 1.0
    price_usd_per_hour: float = 0.0
    spot_price_usd_per_hour: float | None = None
    spot_interruptions_per_hour: float = 0.0
    resources: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A site with slots, and its failure rates.

    ``slot_acquire``, ``slot_up`` and ``task_failure`` are probabilities of a slot or a task,
    ``node_mtbf_s`` the mean time between failures of one node, ``node_hours`` the remaining
    allocation (None: unlimited). ``cycle_s``: interval at which a simulated batch site starts jobs
    (0: at any time), at ``cycle_phase_s`` and whole cycles from there. ``containers``: its
    container engines, the preferred one first. ``pass_env``: variables of its nodes that are passed
    to all tasks. ``private_addresses``: whether inputs and outputs may be at URLs of private
    addresses; None: where the tasks are those of the user who runs vgrads, not those of a service.
    ``closed``: windows in which it runs no jobs, as written (:mod:`vgrads.kernel.closures`), in the
    time of ``zone`` (empty: that of this machine).
    """

    name: str
    kind: Kind
    procs: int
    nodes: tuple[NodeType, ...] = (NodeType(),)
    slot_up: float = 1.0
    slot_acquire: float = 1.0
    task_failure: float = 0.0
    node_mtbf_s: float = float("inf")
    node_repair_s: float = 4 * 3600.0
    node_hours: float | None = None
    driver: str = "simulated"
    queues: tuple[Queue, ...] = ()
    billing_s: float = 3600.0
    boot_s: float = 0.0
    boot_spread: float = 0.2
    cycle_s: float = 0.0
    cycle_phase_s: float = 0.0
    access: SiteAccess = field(default_factory=SiteAccess)
    containers: tuple[str, ...] = ()
    pass_env: tuple[str, ...] = ()
    private_addresses: bool | None = None
    closed: tuple[str, ...] = ()
    zone: str = ""

    @property
    def paid(self) -> bool:
        """True if using the site costs money: the reserve of the fourth phase."""
        return any(node.price_usd_per_hour > 0 for node in self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Latency and bandwidth between two sites."""

    bandwidth_mib_s: float = DEFAULT_BANDWIDTH_MIB_S
    latency_s: float = DEFAULT_LATENCY_S


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """All sites and the links between them."""

    sites: tuple[Site, ...]
    links: dict[frozenset[str], Link]

    def site(self, name: str) -> Site:
        """Return one site by name; InputError lists the known ones."""
        for site in self.sites:
            if site.name == name:
                return site
        raise InputError(
            f"unknown site '{name}'", fix=f"known: {', '.join(s.name for s in self.sites)}"
        )

    def only(self, names: Sequence[str], where: str) -> Catalog:
        """Return a catalogue of these sites alone, in its own order; of all without names.
        InputError, with the field ``where``, for an unknown one."""
        own = {site.name for site in self.sites}
        for name in names:
            if name not in own:
                raise InputError(
                    f"unknown site '{name}'", where=where, fix=f"known: {', '.join(sorted(own))}"
                )
        if not names:
            return self
        return replace(self, sites=tuple(site for site in self.sites if site.name in names))

    def link(self, name: str, other: str) -> Link:
        """Return the link between two sites; the default if none is given."""
        return self.links.get(frozenset((name, other)), Link())


def load_catalog(path: Path) -> Catalog:
    """Load the catalogue from a TOML file; histories are resolved against its folder."""
    document = validate(SitesDocument, load_mapping(path), str(path))
    return build_catalog(document, path.resolve().parent, str(path))


def build_catalog(document: SitesDocument, folder: Path, where: str) -> Catalog:
    """Return the catalogue of a sites document; InputError names inconsistent fields."""
    sites = tuple(_read_site(entry, folder, where) for entry in document.site)
    names = [site.name for site in sites]
    _refuse_repeats(names, "site", where)
    links = {}
    for entry in document.link:
        for name in entry.between:
            if name not in names:
                raise InputError(
                    f"link between {list(entry.between)}: unknown site '{name}'", where=where
                )
        links[frozenset(entry.between)] = Link(
            bandwidth_mib_s=entry.bandwidth_mib_s, latency_s=entry.latency_s
        )
    return Catalog(sites=sites, links=links)


def _read_site(entry: SiteDocument, folder: Path, where: str) -> Site:
    place = f"{where}: site '{entry.name}'"
    _refuse_repeats([queue.name for queue in entry.queue], "queue", place)
    queues = tuple(_read_queue(queue, entry, folder, place) for queue in entry.queue)
    plain = entry.model_dump(
        include={
            "name",
            "kind",
            "procs",
            "slot_up",
            "slot_acquire",
            "task_failure",
            "node_hours",
            "boot_spread",
        }
    )
    driver = entry.driver or ("local" if entry.kind == "local" else "simulated")
    nodes = tuple(_read_node(node, node.type, node.cores) for node in entry.node)
    whole = (
        entry.kind == "local" and entry.resources and "cores_per_node" not in entry.model_fields_set
    )
    cores = entry.procs if whole else entry.cores_per_node  # this machine is one node
    _refuse_repeats([node.name for node in nodes], "node type", place)
    return Site(
        **plain,
        driver=driver,
        queues=queues,
        nodes=nodes or (_read_node(entry, entry.node_type, cores),),
        billing_s=float(entry.billing),
        boot_s=float(entry.boot),
        cycle_s=float(entry.cycle),
        cycle_phase_s=float(entry.cycle_phase),
        node_mtbf_s=float(entry.node_mtbf),
        node_repair_s=float(entry.node_repair),
        access=_read_access(entry.access),
        containers=_list_engines(entry.containers, driver),
        pass_env=entry.pass_env,
        private_addresses=entry.private_addresses,
        closed=entry.closed,
        zone=entry.zone,
    )


def _list_engines(stated: Iterable[str] | None, driver: str) -> tuple[str, ...]:
    """Return container engines. If not stated: those of this machine for a local site, all for a
    simulated one, none elsewhere."""
    if stated is not None:
        return tuple(stated)
    if driver == "simulated":
        return ENGINES
    return tuple(name for name in ENGINES if shutil.which(name)) if driver == "local" else ()


def _read_access(entry: AccessDocument) -> SiteAccess:
    plain = entry.model_dump(exclude={"timeout", "poll", "price_currency", "price_date"})
    stated = entry.price_date.isoformat() if entry.price_date else ""
    return SiteAccess(
        **plain, timeout_s=float(entry.timeout), poll_s=float(entry.poll), price_date=stated
    )


def describe_this_machine(procs: int = 0) -> Catalog:
    """Return this machine as the site ``local``: so many tasks at once, by default one for each
    processor."""
    site = SiteDocument(name="local", kind="local", procs=procs or os.cpu_count() or 1)
    return build_catalog(SitesDocument(site=(site,)), Path(), "this machine")


def _read_node(entry: NodeDocument | SiteDocument, name: str, cores: int) -> NodeType:
    return NodeType(
        name=name,
        cores=cores,
        memory_mib=entry.memory_mib,
        speed=entry.speed,
        price_usd_per_hour=entry.price_usd_per_hour,
        spot_price_usd_per_hour=entry.spot_price_usd_per_hour,
        spot_interruptions_per_hour=entry.spot_interruptions_per_hour,
        resources=tuple(sorted(entry.resources.items())),
    )


def _read_queue(entry: QueueDocument, site: SiteDocument, folder: Path, where: str) -> Queue:
    procs = entry.max_procs or site.procs
    if procs > site.procs:
        raise InputError(
            f"queue '{entry.name}': max_procs {procs} exceeds the site's {site.procs}", where=where
        )
    history = str(folder / entry.history) if entry.history else None
    return Queue(
        name=entry.name,
        history=history,
        log_queue=entry.log_queue,
        max_procs=procs,
        max_walltime_s=float(entry.max_walltime),
        max_jobs=entry.max_jobs,
        stated_probability=entry.stated_probability,
        stated_wait_s=float(entry.stated_wait),
    )


def _refuse_repeats(names: Iterable[str], what: str, where: str) -> None:
    observed: set[str] = set()
    for name in names:
        if name in observed:
            raise InputError(f"two {what}s have the name '{name}'", where=where)
        observed.add(name)


def split_queue_name(text: str) -> tuple[str, str | None]:
    """Return site and queue of ``SITE/QUEUE``; None for the queue where only a site is named."""
    site, _, queue = text.partition("/")
    return site, queue or None


def choose_queue(site: Site, name: str | None, where: str) -> Queue:
    """Return a queue of a site by name; without one, its only queue. Raise InputError where this
    leaves none."""
    queues = [queue for queue in site.queues if name in (None, queue.name)]
    if len(queues) == 1:
        return queues[0]
    choices = ", ".join(f"{site.name}/{queue.name}" for queue in site.queues) or "none"
    what = (
        f"site '{site.name}' has {format_count(len(queues), 'queue')}"
        if name is None
        else f"no queue '{name}' at site '{site.name}'"
    )
    raise InputError(what, where=where, fix=f"its queues: {choices}")
