"""The journal: every event, written down before anything is done about it.

State is the fold of the events through :func:`execmgr.core.step`, so whoever has the plan and the
journal has the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Protocol

from drivers.api import SlotState
from execmgr.book import Book
from execmgr.core import begin, step
from execmgr.states import CopyEnded, Event, RunState, SlotNews, Tick


class Journal(Protocol):
    """Where events are kept."""

    def append(self, events: Iterable[Event]) -> None:
        """Write down, durably, in this order."""


class MemoryJournal:
    """Kept in a list: for simulations and tests."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def append(self, events: Iterable[Event]) -> None:
        self.events.extend(events)


def fold(book: Book, events: Iterable[Event]) -> RunState:
    """The state after these events."""
    state = begin(book)
    for event in events:
        state, _ = step(book, state, event)
    return state


def event_to_json(event: Event) -> dict[str, Any]:
    """An event as plain JSON values."""
    kind = {SlotNews: "slot", CopyEnded: "copy", Tick: "tick"}[type(event)]
    row: dict[str, Any] = {"kind": kind, **asdict(event)}
    if isinstance(event, SlotNews):
        row["state"] = event.state.name
    return row


def event_from_json(row: dict[str, Any]) -> Event:
    """The event behind :func:`event_to_json`."""
    fields = {key: value for key, value in row.items() if key != "kind"}
    if row["kind"] == "slot":
        return SlotNews(**{**fields, "state": SlotState[fields["state"]]})
    if row["kind"] == "copy":
        return CopyEnded(**{**fields, "key": tuple(fields["key"])})
    return Tick(**fields)
