"""What happens rarely to a dispatcher, as typed events: to bags, agents and requested slots.

In the journal an event is a name and its fields as JSON. Names and fields are stored: they stay,
and a new field needs a default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BagAdded:
    """A bag was taken on. ``order``: the rule that generates its tasks, if one does; see
    :func:`vgrads.workflows.generated.lazy.lazy_of`."""

    number: int
    count: int
    at_s: float
    name: str
    owner: str
    weight: float
    procs: int
    retries: int
    sites: tuple[str, ...] = ()
    failover: tuple[str, ...] = ()
    stated_s: float | None = None
    open: bool = False
    order: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfBag:
    """What changes one bag, by its number."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BagGrown(OfBag):
    """An open bag has ``count`` more tasks."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsRestored(OfBag):
    """Tasks are done whose results were there before. ``runs``: first and last of each run of
    them."""

    at_s: float
    runs: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BagClosed(OfBag):
    """No more tasks come."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksDropped(OfBag):
    """Tasks that wait and are not wanted any more."""

    at_s: float
    tasks: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BagCancelled(OfBag):
    """Somebody cancelled a bag."""

    at_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BagFailed(OfBag):
    """Serving a bag raised an exception: none of its tasks is given out any more."""

    at_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TailBegun(OfBag):
    """A bag's last part has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentJoined:
    """An agent came, or came again. ``life``: its process; ``ends_s``: of its slot."""

    number: int
    id: str
    at_s: float
    life: str
    slot: str = ""
    node: int = 0
    procs: int = 1
    memory_mib: float = 0.0
    name: str = ""
    site: str = ""
    machine: str = ""
    ends_s: float = float("inf")
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLeft:
    """An agent is gone. ``lost``: without a word, so its tasks may be to blame."""

    number: int
    at_s: float
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentQuarantined:
    """An agent's machine gets nothing for a while."""

    number: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotChanged:
    """How a requested slot stands now. None: as before."""

    id: str
    site: str | None = None
    hosts: int | None = None
    asked_s: float | None = None
    state: int | None = None
    reason: str | None = None
    ready_s: float | None = None
    closing: str | None = None
    joined: bool | None = None
    ended: bool | None = None
    revoked: bool | None = None


Event = (
    BagAdded
    | BagGrown
    | ResultsRestored
    | BagClosed
    | TasksDropped
    | BagCancelled
    | BagFailed
    | TailBegun
    | AgentJoined
    | AgentLeft
    | AgentQuarantined
    | SlotChanged
)
_NAMED: dict[str, Callable[..., Event]] = {
    "bag": BagAdded,
    "grown": BagGrown,
    "had": ResultsRestored,
    "closed": BagClosed,
    "unwanted": TasksDropped,
    "cancelled": BagCancelled,
    "failed": BagFailed,
    "tail": TailBegun,
    "joined": AgentJoined,
    "left": AgentLeft,
    "barred": AgentQuarantined,
    "slot": SlotChanged,
}
_NAMES = {kind: name for name, kind in _NAMED.items()}
_TUPLES = ("sites", "failover")


def fields_of(event: Event) -> dict[str, Any]:
    """What an event says, by field; without what it leaves as it was."""
    values = {one.name: getattr(event, one.name) for one in fields(event)}
    return {name: value for name, value in values.items() if value is not None}


def as_json(event: Event) -> tuple[str, dict[str, Any]]:
    """Name and fields of an event as they are stored."""
    return _NAMES[type(event)], fields_of(event)


def from_json(name: str, stored: Mapping[str, Any]) -> Event:
    """The event that was stored; LookupError or TypeError where it is none."""
    values = {key: tuple(v) if key in _TUPLES else v for key, v in stored.items()}
    return _NAMED[name](**values)
