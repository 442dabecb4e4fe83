"""The site catalogue: what kinds of places there are, how big, how fast, at what price.

The TOML form is fixed in the contracts; the portal's database stores the same fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from kernel.documents import Document, load_mapping, validate
from kernel.errors import InputError
from kernel.units import parse_duration

Kind = Literal["batch", "reservation", "dedicated", "cloud", "local"]
Probability = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
DEFAULT_BANDWIDTH_MIB_S = 10.0
DEFAULT_LATENCY_S = 0.05


def _seconds(value: Any) -> float:
    try:
        return parse_duration(value)
    except InputError as error:
        raise ValueError(error.what) from error


class QueueDocument(Document):
    """A batch queue of a site."""

    name: Annotated[str, Field(min_length=1)]
    history: str | None = None
    log_queue: str | int | None = None
    max_procs: Annotated[int, Field(ge=1)] | None = None
    max_walltime: float | str = float("inf")
    max_jobs: Annotated[int, Field(ge=1)] = 8

    _walltime = field_validator("max_walltime")(lambda v: v if v == float("inf") else _seconds(v))


class SiteDocument(Document):
    """A site as written under ``[[site]]``."""

    name: Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$")]
    kind: Kind
    procs: Annotated[int, Field(ge=1)]
    cores_per_node: Annotated[int, Field(ge=1)] = 1
    speed: Positive = 1.0
    slot_up: Probability = 1.0
    slot_acquire: Probability = 1.0
    driver: (
        Literal["simulated", "slurm", "gridengine", "pbs", "ec2", "eucalyptus", "local"] | None
    ) = None
    queue: tuple[QueueDocument, ...] = ()
    node_type: str = ""
    price_usd_per_hour: NotNegative = 0.0
    billing: float | str = 3600.0
    boot: float | str = 0.0
    boot_spread: NotNegative = 0.2

    _times = field_validator("billing", "boot")(_seconds)

    @model_validator(mode="after")
    def _kind_fits(self) -> SiteDocument:
        if self.kind == "batch" and not self.queue:
            raise ValueError("a batch site needs at least one [[site.queue]]")
        if self.kind != "batch" and self.queue:
            raise ValueError(f"a {self.kind} site has no queues")
        return self


class LinkDocument(Document):
    """A network link as written under ``[[link]]``."""

    between: tuple[str, str]
    bandwidth_mib_s: Positive = DEFAULT_BANDWIDTH_MIB_S
    latency_s: NotNegative = DEFAULT_LATENCY_S


class SitesDocument(Document):
    """A whole sites file."""

    site: Annotated[tuple[SiteDocument, ...], Field(min_length=1)]
    link: tuple[LinkDocument, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A batch queue: its limits and where its wait history lies (None: nothing known)."""

    name: str
    history: str | None
    log_queue: str | int | None
    max_procs: int
    max_walltime_s: float
    max_jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A place where slots can be had. ``speed`` divides run times; prices are per node-hour."""

    name: str
    kind: Kind
    procs: int
    cores_per_node: int = 1
    speed: float = 1.0
    slot_up: float = 1.0
    slot_acquire: float = 1.0
    driver: str = "simulated"
    queues: tuple[Queue, ...] = ()
    node_type: str = ""
    price_usd_per_hour: float = 0.0
    billing_s: float = 3600.0
    boot_s: float = 0.0
    boot_spread: float = 0.2

    @property
    def paid(self) -> bool:
        """True where using the site costs money: the reserve of the fourth phase."""
        return self.price_usd_per_hour > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What it takes to move data between two sites."""

    bandwidth_mib_s: float = DEFAULT_BANDWIDTH_MIB_S
    latency_s: float = DEFAULT_LATENCY_S


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """All sites and the links between them."""

    sites: tuple[Site, ...]
    links: dict[frozenset[str], Link]

    def site(self, name: str) -> Site:
        """One site by name; InputError lists the known ones."""
        for site in self.sites:
            if site.name == name:
                return site
        raise InputError(f"no site '{name}'", fix=f"known: {', '.join(s.name for s in self.sites)}")

    def link(self, one: str, other: str) -> Link:
        """The link between two sites; the default where none is written down."""
        return self.links.get(frozenset((one, other)), Link())


def load_catalog(path: Path) -> Catalog:
    """The catalogue in a TOML file; histories are resolved against its folder."""
    document = validate(SitesDocument, load_mapping(path), str(path))
    return build_catalog(document, path.resolve().parent, str(path))


def build_catalog(document: SitesDocument, folder: Path, where: str) -> Catalog:
    """The value behind a sites document; InputError names what does not fit together."""
    sites = tuple(_site(entry, folder, where) for entry in document.site)
    names = [site.name for site in sites]
    _refuse_repeats(names, "site", where)
    links = {}
    for entry in document.link:
        for name in entry.between:
            if name not in names:
                raise InputError(
                    f"link between {list(entry.between)}: no site '{name}'", where=where
                )
        links[frozenset(entry.between)] = Link(
            bandwidth_mib_s=entry.bandwidth_mib_s, latency_s=entry.latency_s
        )
    return Catalog(sites=sites, links=links)


def _site(entry: SiteDocument, folder: Path, where: str) -> Site:
    place = f"{where}: site '{entry.name}'"
    _refuse_repeats([queue.name for queue in entry.queue], "queue", place)
    queues = tuple(_queue(queue, entry, folder, place) for queue in entry.queue)
    plain = entry.model_dump(include={"name", "kind", "procs", "cores_per_node", "speed", "slot_up", "slot_acquire",
                                      "node_type", "price_usd_per_hour", "boot_spread"})  # fmt: skip
    driver = entry.driver or ("local" if entry.kind == "local" else "simulated")
    return Site(
        **plain,
        driver=driver,
        queues=queues,
        billing_s=float(entry.billing),
        boot_s=float(entry.boot),
    )


def _queue(entry: QueueDocument, site: SiteDocument, folder: Path, where: str) -> Queue:
    procs = entry.max_procs or site.procs
    if procs > site.procs:
        raise InputError(
            f"queue '{entry.name}': max_procs {procs} is over the site's {site.procs}", where=where
        )
    history = str(folder / entry.history) if entry.history else None
    return Queue(
        name=entry.name, history=history, log_queue=entry.log_queue, max_procs=procs,
        max_walltime_s=float(entry.max_walltime), max_jobs=entry.max_jobs,
    )  # fmt: skip


def _refuse_repeats(names: Iterable[str], what: str, where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"two of the {what}s are called '{name}'", where=where)
        seen.add(name)
