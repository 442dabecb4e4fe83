"""The journal: every event is written before it takes effect.

State is the fold of the events through :func:`vgrads.execmgr.core.step.step`, so the plan and the
journal determine the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import (
    AlarmRaised,
    AlarmsAcknowledged,
    AlarmSent,
    Cancelled,
    Event,
    PromiseChecked,
    Release,
    ReleaseUpdate,
    Replanned,
    ReplicaEnded,
    RequestChange,
    RequestChanged,
    RunState,
    SiteSilent,
    SlotRequestedAgain,
    SlotUpdate,
    Tick,
)
from vgrads.execmgr.core.step import begin, step
from vgrads.execmgr.core.times import Times
from vgrads.kernel.values import field_values


class EventJournal(Protocol):
    """Storage of events; both calls raise :class:`LeaseLost` if another manager has taken over."""

    def append(self, events: Iterable[Event]) -> None:
        """Write events durably, in this order."""

    def confirm(self) -> None:
        """Confirm that written events may be acted upon. Cheap if this was confirmed recently."""


class MemoryJournal:
    """A journal in memory, for simulations and tests."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def append(self, events: Iterable[Event]) -> None:
        self.events.extend(events)

    def confirm(self) -> None:
        """Do nothing: no other manager has this list."""


def fold(executions: ExecutionPlan | Sequence[ExecutionPlan], events: Iterable[Event]) -> RunState:
    """Return the state after these events; ``executions`` by version, if the run was replanned."""
    executions = [executions] if isinstance(executions, ExecutionPlan) else executions
    state = begin(executions[0])
    for event in events:
        state = advance(executions, state, event)
    return state


def advance(executions: Sequence[ExecutionPlan], state: RunState, event: Event) -> RunState:
    """Return the state after one more event, under the execution plan that was valid then."""
    state, _ = step(executions[find_ruling_version(state, event)], state, event)
    return state


def find_ruling_version(state: RunState, event: Event) -> int:
    """Return the version of the execution plan for an event: a new one is valid from the event that
    announces it."""
    return event.version if isinstance(event, Replanned | RequestChanged) else state.version


# names are in journals on disk, so none may change
_KINDS: dict[str, type[Any]] = {
    "slot": SlotUpdate,
    "again": SlotRequestedAgain,
    "copy": ReplicaEnded,
    "tick": Tick,
    "cancel": Cancelled,
    "replan": Replanned,
    "promise": PromiseChecked,
    "alarm": AlarmRaised,
    "message": AlarmSent,
    "acknowledged": AlarmsAcknowledged,
    "silent": SiteSilent,
    "told": ReleaseUpdate,
    "change": RequestChanged,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def event_to_json(event: Event) -> dict[str, Any]:
    """Convert an event to plain JSON values."""
    row: dict[str, Any] = {
        "kind": _NAMES[type(event)],
        **field_values(event),
    }
    if isinstance(event, SlotUpdate):
        row["state"] = event.state.name
    if isinstance(event, ReplicaEnded):
        row.pop("times")
        if event.times is not None:
            row["times"] = event.times.as_json()
    if isinstance(event, ReleaseUpdate):
        row["released"] = [(task, asdict(release)) for task, release in event.released]
    if isinstance(event, RequestChanged):
        row["change"] = asdict(event.change)
    return row


def change_from_json(row: Mapping[str, Any]) -> RequestChange:
    """Return a change of a request from its fields as JSON."""
    # JSON has lists only
    sites = {name: tuple(row[name]) for name in ("add_sites", "drop_sites")}
    return RequestChange(**{**row, **sites})


def event_from_json(row: dict[str, Any]) -> Event:
    """Inverse of :func:`event_to_json`."""
    fields = {key: value for key, value in row.items() if key != "kind"}
    if row["kind"] == "slot":
        fields["state"] = SlotState[fields["state"]]
    if row["kind"] == "copy":
        # JSON has no tuples, but keys of mappings must be tuples
        fields["key"] = tuple(fields["key"])
        if "times" in fields:
            fields["times"] = Times(**fields["times"])
    if row["kind"] == "told":
        fields["released"] = tuple(
            (tuple(key), Release(**item)) for key, item in fields["released"]
        )
        fields["abandoned"] = tuple((tuple(key), reason) for key, reason in fields["abandoned"])
    if row["kind"] == "alarm":
        fields["targets"] = tuple(fields["targets"])
    if row["kind"] == "change":
        fields["change"] = change_from_json(fields["change"])
    event: Event = _KINDS[row["kind"]](**fields)
    return event
