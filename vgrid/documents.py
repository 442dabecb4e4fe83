"""Documents of sites: the fields of the TOML file, and checks for inconsistencies."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from vgrads.kernel.closures import parse_window, parse_zone
from vgrads.kernel.documents import Count, Document, NotNegative, Positive, Variable, as_value_error
from vgrads.kernel.units import parse_duration

Kind = Literal["batch", "reservation", "dedicated", "cloud", "local"]
Probability = Annotated[float, Field(ge=0, le=1)]
_NAME = r"^[A-Za-z0-9_.-]+$"
Word = Annotated[str, Field(pattern=r"^$|^[^-\s\x00-\x1f][^\s\x00-\x1f]*$", max_length=200)]
Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f]*$", max_length=200)]
Resource = Annotated[str, Field(pattern=_NAME, max_length=100)]
Units = Annotated[int, Field(ge=1, le=1_000_000)]
_NODE_FIELDS = (
    "cores_per_node",
    "memory_mib",
    "resources",
    "speed",
    "node_type",
    "price_usd_per_hour",
    "spot_price_usd_per_hour",
    "spot_interruptions_per_hour",
)
_MACHINES: tuple[str, ...] = ("batch", "reservation", "dedicated")
DRIVER_KINDS = {
    "slurm": _MACHINES,
    "gridengine": _MACHINES,
    "pbs": _MACHINES,
    "ec2": ("cloud",),
    "eucalyptus": ("cloud",),
    "dask": ("dedicated",),
}
DEFAULT_BANDWIDTH_MIB_S = 10.0
DEFAULT_LATENCY_S = 0.05


def _parse_seconds(value: Any) -> float:
    return as_value_error(lambda: parse_duration(value))


def _parse_positive_seconds(value: object) -> float:
    seconds = _parse_seconds(value)
    if seconds <= 0:
        raise ValueError("must be above 0")
    return seconds


def _parse_window(text: str) -> str:
    as_value_error(lambda: parse_window(text))
    return text


def _parse_zone(name: str) -> str:
    as_value_error(lambda: parse_zone(name))
    return name


Window = Annotated[str, Field(max_length=100), AfterValidator(_parse_window)]
"""A closed window: :func:`vgrads.kernel.closures.parse_window`."""


def _refuse_prices_without_unit(value: object) -> Any:
    for key in ("price", "spot_price"):
        if isinstance(value, dict) and key in value:
            raise ValueError(f"'{key}' has no unit; write {key}_usd_per_hour (per node)")
    return value


class AccessDocument(Document):
    """Access to a real site, as written under ``[site.access]``; see
    :class:`vgrads.drivers.api.SiteAccess`."""

    host: Annotated[str, Field(pattern=r"^[^-\s][^\s]*$|^$")] = ""
    ssh_options: tuple[str, ...] = ()
    account: Word = ""
    reservation: Word = ""
    folder: str = ""
    shared_home: bool = True
    shared_files: bool | None = None
    timeout: float | str = 30.0
    poll: float | str = 10.0
    options: tuple[str, ...] = ()
    parallel_environment: Word = "smp"
    python: Line = ""
    contact: Word = ""
    endpoint: Annotated[str, Field(pattern=r"^(https?|tcp|tls|wss?)://[^/\s]+(/\S*)?$|^$")] = ""
    region: Word = "us-east-1"
    image: Word = ""
    key_name: Line = ""
    security_groups: tuple[Line, ...] = ()
    profile: Line = "default"
    spend_limit_usd: NotNegative | None = None
    price_currency: Literal["USD"] = "USD"
    price_date: date | None = None

    _times = field_validator("timeout", "poll")(_parse_positive_seconds)


class QueueDocument(Document):
    """A batch queue of a site."""

    name: Annotated[str, Field(min_length=1)]
    history: str | None = None
    log_queue: str | int | None = None
    max_procs: Count | None = None
    max_walltime: float | str = float("inf")
    max_jobs: Count = 8
    stated_probability: Probability = 0.0
    stated_wait: float | str = 0.0

    _stated = field_validator("stated_wait")(_parse_seconds)
    _walltime = field_validator("max_walltime")(
        lambda v: v if v == float("inf") else _parse_seconds(v)
    )


class NodeDocument(Document):
    """A type of node as written under ``[[site.node]]``; without any, the site's own fields are
    one."""

    type: Annotated[str, Field(min_length=1, pattern=_NAME)]
    cores: Count = 1
    memory_mib: Positive | None = None
    resources: Mapping[Resource, Units] = {}
    speed: Positive = 1.0
    price_usd_per_hour: NotNegative = 0.0
    spot_price_usd_per_hour: NotNegative | None = None
    spot_interruptions_per_hour: NotNegative = 0.0

    _units = model_validator(mode="before")(_refuse_prices_without_unit)


class SiteDocument(Document):
    """A site as written under ``[[site]]``."""

    name: Annotated[str, Field(min_length=1, pattern=_NAME)]
    kind: Kind
    procs: Count
    cores_per_node: Count = 1
    memory_mib: Positive | None = None
    resources: Mapping[Resource, Units] = {}
    pass_env: Annotated[tuple[Variable, ...], Field(max_length=100)] = ()
    private_addresses: bool | None = None
    containers: tuple[Literal["apptainer", "singularity", "docker", "podman"], ...] | None = None
    speed: Positive = 1.0
    slot_up: Probability = 1.0
    slot_acquire: Probability = 1.0
    driver: (
        Literal["simulated", "slurm", "gridengine", "pbs", "ec2", "eucalyptus", "dask", "local"]
        | None
    ) = None
    access: AccessDocument = AccessDocument()
    queue: tuple[QueueDocument, ...] = ()
    node: tuple[NodeDocument, ...] = ()
    task_failure: Probability = 0.0
    node_mtbf: float | str = float("inf")
    node_repair: float | str = 4 * 3600.0
    node_hours: NotNegative | None = None
    node_type: str = ""
    price_usd_per_hour: NotNegative = 0.0
    spot_price_usd_per_hour: NotNegative | None = None
    spot_interruptions_per_hour: NotNegative = 0.0
    billing: float | str = 3600.0
    boot: float | str = 0.0
    boot_spread: NotNegative = 0.2
    cycle: float | str = 0.0
    cycle_phase: float | str = 0.0
    closed: Annotated[tuple[Window, ...], Field(max_length=100)] = ()
    zone: Annotated[str, Field(max_length=100), AfterValidator(_parse_zone)] = ""

    _times = field_validator("billing", "boot", "node_repair", "cycle", "cycle_phase")(
        _parse_seconds
    )
    _mtbf = field_validator("node_mtbf")(
        lambda v: v if v == float("inf") else _parse_positive_seconds(v)
    )
    _units = model_validator(mode="before")(_refuse_prices_without_unit)

    @model_validator(mode="after")
    def _kind_fits(self) -> SiteDocument:
        self._nodes_fit()
        if self.kind == "batch" and not self.queue:
            raise ValueError("a batch site needs at least one [[site.queue]]")
        if self.kind != "batch" and self.queue:
            raise ValueError(f"a {self.kind} site has no queues")
        fitting = DRIVER_KINDS.get(self.driver or "", (self.kind,))
        if self.kind not in fitting:
            raise ValueError(
                f"driver '{self.driver}' is for {' or '.join(fitting)} sites, this is a "
                f"{self.kind} site"
            )
        return self

    def _nodes_fit(self) -> None:
        if self.node and self.model_fields_set & set(_NODE_FIELDS):
            raise ValueError("give nodes under [[site.node]] or by the site's own fields, not both")
        if self.node and self.kind == "batch":
            raise ValueError(
                "a batch site has one type of node; describe other types as separate sites"
            )
        simulated = self.kind == "batch" and self.driver in (None, "simulated")
        if float(self.cycle) > 0 and not simulated:
            raise ValueError("cycle is for simulated batch sites: a real one has its own")
        if float(self.billing) == 0:
            raise ValueError("billing must be above 0, for example 1s or 1h")
        spot = [self.spot_price_usd_per_hour, *(n.spot_price_usd_per_hour for n in self.node)]
        if self.kind != "cloud" and any(price is not None for price in spot):
            raise ValueError(f"a {self.kind} site has no spot market")


class LinkDocument(Document):
    """A network link as written under ``[[link]]``."""

    between: tuple[str, str]
    bandwidth_mib_s: Positive = DEFAULT_BANDWIDTH_MIB_S
    latency_s: NotNegative = DEFAULT_LATENCY_S


class SitesDocument(Document):
    """A whole sites file."""

    site: Annotated[tuple[SiteDocument, ...], Field(min_length=1)]
    link: tuple[LinkDocument, ...] = ()
