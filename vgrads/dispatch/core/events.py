"""Rare events of a dispatcher, as typed events: of bags, agents and requested slots.

In the journal an event is a name and its fields as JSON: a storage format, in which a new field
needs a default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vgrads.kernel.values import field_values


@dataclass(frozen=True, slots=True, kw_only=True)
class BagAdded:
    """A bag was added. ``order``: the rule that generates its tasks, if any; see
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
class BagEvent:
    """A change of one bag, by its number."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksAdded(BagEvent):
    """An open bag got ``count`` more tasks."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsRestored(BagEvent):
    """Tasks are done whose results existed before. ``runs``: first and last task of each contiguous
    range."""

    at_s: float
    runs: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BagClosed(BagEvent):
    """No more tasks can be added. ``reason``: why, where its user did not close it."""

    at_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksDropped(BagEvent):
    """Waiting tasks that are no longer needed."""

    at_s: float
    tasks: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BagCancelled(BagEvent):
    """A user cancelled a bag."""

    at_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksRetried(BagEvent):
    """Terminal tasks wait again, as if they had never failed. ``runs``: first and last task of each
    contiguous range; ``request``: number of the request of the user, from 0 on."""

    at_s: float
    runs: Sequence[Sequence[int]]
    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalChanged(BagEvent):
    """The goal of a bag was changed by its user, or a change was refused. ``request``: number of
    the request, from 0 on; ``before`` and ``after``: fields of the goal (:class:`vgrads.bags.bag.
    BagGoal`), ``after`` is None where it was refused; ``refused``: why."""

    at_s: float
    request: int
    before: Mapping[str, Any]
    after: Mapping[str, Any] | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BagFailed(BagEvent):
    """Serving a bag raised an exception: none of its tasks is assigned any more."""

    at_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TailBegun(BagEvent):
    """A bag's tail has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentJoined:
    """An agent joined, or joined again. ``incarnation``: its process; ``ends_s``: of its slot."""

    number: int
    id: str
    at_s: float
    incarnation: str
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
    """An agent is gone. ``lost``: without notice, so its tasks may be the cause."""

    number: int
    at_s: float
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentQuarantined:
    """An agent's machine is quarantined for a time."""

    number: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotChanged:
    """A change of a requested slot. None: unchanged."""

    id: str
    site: str | None = None
    agents: int | None = None
    requested_s: float | None = None
    state: int | None = None
    reason: str | None = None
    ready_s: float | None = None
    closing: str | None = None
    joined: bool | None = None
    ended: bool | None = None
    revoked: bool | None = None
    market: str | None = None
    ended_s: float | None = None
    length_s: float | None = None


Event = (
    BagAdded
    | TasksAdded
    | ResultsRestored
    | BagClosed
    | TasksDropped
    | TasksRetried
    | GoalChanged
    | BagCancelled
    | BagFailed
    | TailBegun
    | AgentJoined
    | AgentLeft
    | AgentQuarantined
    | SlotChanged
)
# names are in journals on disk, so none may change
_NAMED: dict[str, Callable[..., Event]] = {
    "bag": BagAdded,
    "grown": TasksAdded,
    "had": ResultsRestored,
    "closed": BagClosed,
    "unwanted": TasksDropped,
    "retried": TasksRetried,
    "goal": GoalChanged,
    "cancelled": BagCancelled,
    "failed": BagFailed,
    "tail": TailBegun,
    "joined": AgentJoined,
    "left": AgentLeft,
    "barred": AgentQuarantined,
    "slot": SlotChanged,
}
_NAMES = {kind: name for name, kind in _NAMED.items()}
# JSON has lists only
_TUPLES = ("sites", "failover")


def list_event_fields(event: Event) -> dict[str, Any]:
    """Return the fields of an event, without those that it leaves unchanged."""
    return {name: value for name, value in field_values(event).items() if value is not None}


def as_json(event: Event) -> tuple[str, dict[str, Any]]:
    """Return name and fields of an event in the storage format."""
    return _NAMES[type(event)], list_event_fields(event)


def from_json(name: str, stored: Mapping[str, Any]) -> Event:
    """Decode a stored event. Raise LookupError or TypeError where it is invalid."""
    values = {key: tuple(v) if key in _TUPLES else v for key, v in stored.items()}
    return _NAMED[name](**values)
