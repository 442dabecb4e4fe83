"""The journal: every event, written down before anything is done about it.

State is the fold of the events through :func:`vgrads.execmgr.core.step.step`, so whoever has the
plan and the journal has the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.states import (
    AskedAgain,
    Cancelled,
    CopyEnded,
    Event,
    Release,
    Replanned,
    RunState,
    SiteSilent,
    SlotNews,
    Tick,
    Told,
)
from vgrads.execmgr.core.step import begin, step
from vgrads.execmgr.core.times import Times
from vgrads.kernel.errors import VgradsError


class LeaseLost(VgradsError):
    """Another manager looks after the run by now: this one may neither write nor act any more."""

    exit_code = 130


class LeaseExpired(LeaseLost):
    """The journal could not be reached for a whole lease: another manager may look after the run by
    now."""

    exit_code = 4


class Journal(Protocol):
    """Where events are kept; both calls raise :class:`LeaseLost` for a manager that was followed by
    another."""

    def append(self, events: Iterable[Event]) -> None:
        """Write down, durably, in this order."""

    def confirm(self) -> None:
        """May what was written down be acted upon? Cheap where that is known from just now."""


class MemoryJournal:
    """Kept in a list: for simulations and tests."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def append(self, events: Iterable[Event]) -> None:
        self.events.extend(events)

    def confirm(self) -> None:
        """Nobody else has this list."""


def fold(books: Book | Sequence[Book], events: Iterable[Event]) -> RunState:
    """The state after these events; ``books`` by version, where the run was planned anew."""
    books = [books] if isinstance(books, Book) else books
    state = begin(books[0])
    for event in events:
        state = advance(books, state, event)
    return state


def advance(books: Sequence[Book], state: RunState, event: Event) -> RunState:
    """The state after one more event, by the book that ruled then."""
    state, _ = step(books[ruling(state, event)], state, event)
    return state


def ruling(state: RunState, event: Event) -> int:
    """The version of the book that an event is read by: a new one rules from the event that says
    so."""
    return event.version if isinstance(event, Replanned) else state.version


_KINDS: dict[str, type[Any]] = {
    "slot": SlotNews,
    "again": AskedAgain,
    "copy": CopyEnded,
    "tick": Tick,
    "cancel": Cancelled,
    "replan": Replanned,
    "silent": SiteSilent,
    "told": Told,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def event_to_json(event: Event) -> dict[str, Any]:
    """An event as plain JSON values."""
    row: dict[str, Any] = {"kind": _NAMES[type(event)], **asdict(event)}
    if isinstance(event, SlotNews):
        row["state"] = event.state.name
    if isinstance(event, CopyEnded):
        row.pop("times")
        if event.times is not None:
            row["times"] = event.times.as_json()
    return row


def event_from_json(row: dict[str, Any]) -> Event:
    """The event behind :func:`event_to_json`."""
    fields = {key: value for key, value in row.items() if key != "kind"}
    if row["kind"] == "slot":
        fields["state"] = SlotState[fields["state"]]
    if row["kind"] == "copy":
        fields["key"] = tuple(fields["key"])
        if "times" in fields:
            fields["times"] = Times(**fields["times"])
    if row["kind"] == "told":
        fields["released"] = tuple((tuple(key), Release(**one)) for key, one in fields["released"])
        fields["given_up"] = tuple((tuple(key), reason) for key, reason in fields["given_up"])
    event: Event = _KINDS[row["kind"]](**fields)
    return event
