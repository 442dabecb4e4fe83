"""What became of every attempt at a task, from a run's journal; and what it printed, from the run's
folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.journal import advance
from vgrads.execmgr.core.states import (
    AskedAgain,
    CopyEnded,
    CopyRecord,
    CopyState,
    Event,
    RunState,
)
from vgrads.execmgr.core.step import begin
from vgrads.execmgr.core.times import Times
from vgrads.execmgr.tasks.folder import AWAY, HERE, TaskFolder
from vgrads.execmgr.tasks.output import STDERR, STDOUT, tail
from vgrads.planner.snapshot import CopyKey, TaskKey

Json = dict[str, Any]
_STARTED = (CopyState.RUNNING, CopyState.DONE, CopyState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of one copy of a task; ``end_s`` is None while it runs, ``code`` where its
    command chose none."""

    key: CopyKey
    number: int
    state: CopyState
    start_s: float
    end_s: float | None
    site: str
    slot: str
    reason: str = ""
    code: int | None = None
    times: Times | None = None


def attempts_of(books: Sequence[Book], events: Iterable[Event]) -> tuple[list[Attempt], RunState]:
    """Every attempt that was begun, in the order of their starts, and what the run has come to."""
    state, ended = begin(books[0]), []
    told: dict[tuple[CopyKey, int], Times] = {}
    for event in events:
        before, state = state, advance(books, state, event)
        if isinstance(event, CopyEnded) and event.key in before.copies:
            old = before.copies[event.key]
            if event.times is not None:
                told[event.key, old.attempt] = event.times.and_then(
                    told.get((event.key, old.attempt))
                )
            if state.copies[event.key].attempt > old.attempt:  # it will be tried once more
                ended.append(_given_up(books, state, event.key, old, event))
        elif isinstance(event, AskedAgain):
            for key in books[state.version].order[event.slot]:
                old = before.copies[key]
                if state.copies[key].attempt > old.attempt:
                    ended.append(_given_up(books, state, key, old, event))
    book = books[state.version]
    last = [_attempt(book, key, record) for key, record in state.copies.items() if _began(record)]
    found = [replace(one, times=told.get((one.key, one.number))) for one in (*ended, *last)]
    return sorted(found, key=lambda one: (one.start_s, one.key, one.number)), state


def _given_up(
    books: Sequence[Book],
    state: RunState,
    key: CopyKey,
    record: CopyRecord,
    event: CopyEnded | AskedAgain,
) -> Attempt:
    """An attempt that ended, and was followed by another one or will be."""
    reason = event.reason if isinstance(event, CopyEnded) else f"its slot {event.reason}"
    code = event.code if isinstance(event, CopyEnded) else None
    end = replace(record, state=CopyState.FAILED, end_s=event.at_s, reason=reason, code=code)
    return _attempt(books[state.version], key, end)


def _began(record: CopyRecord) -> bool:
    return record.state in _STARTED or (record.state == CopyState.CANCELLED and record.start_s > 0)


def _attempt(book: Book, key: CopyKey, record: CopyRecord) -> Attempt:
    return Attempt(
        key=key,
        number=record.attempt,
        state=record.state,
        start_s=record.start_s,
        end_s=record.end_s if record.state.settled else None,
        site=book.site_of(key),
        slot=book.slot_of(key),
        reason=record.reason,
        code=0 if record.state == CopyState.DONE else record.code,
    )


def printed(folder: Path, one: Attempt, most: int) -> tuple[str, str, Path | None]:
    """The ends of what an attempt printed (stdout, stderr), and where the whole is; None where
    nothing was kept."""
    place = place_of(folder, one)
    return (
        ("", "", None)
        if place is None
        else (tail(place / STDOUT, most), tail(place / STDERR, most), place)
    )


def place_of(folder: Path, one: Attempt) -> Path | None:
    """The scratch folder of an attempt in its run's folder; None where there is none, or none any
    more."""
    places = (
        TaskFolder(folder, folder, kind).place_of(one.key, one.number) for kind in (HERE, AWAY)
    )
    return next((place for place in places if place.is_dir()), None)


def attempts_json(attempts: Iterable[Attempt], folder: Path, most: int) -> Iterator[Json]:
    """``vgrads logs --json``: a row for each attempt; ``most``: bytes of the ends of what it
    printed."""
    for one in attempts:
        out, err, place = printed(folder, one, most) if most else ("", "", None)
        row: Json = {
            "workflow": one.key[0],
            "task": one.key[1],
            "copy": one.key[2],
            "attempt": one.number,
            "state": one.state.value,
            "exit": one.code,
            "reason": one.reason or None,
            "started_s": one.start_s,
            "seconds": None if one.end_s is None else one.end_s - one.start_s,
            "site": one.site,
            "slot": one.slot,
        }
        row["times"] = one.times.as_json() if one.times else None
        yield row | {"stdout": out, "stderr": err, "folder": str(place) if place else None}


def about(attempts: Iterable[Attempt], task: str) -> list[Attempt]:
    """The attempts at a task: ``WORKFLOW/TASK``, or ``TASK`` in every workflow."""
    workflow, _, name = task.rpartition("/")
    return [one for one in attempts if one.key[1] == name and workflow in ("", one.key[0])]


def troubles(state: RunState) -> list[tuple[TaskKey, str]]:
    """Tasks that were lost by themselves, not for want of another's output, and why; the first of
    each reason."""
    found: dict[str, tuple[TaskKey, str]] = {}
    for task, reason in sorted(state.lost.items()):
        if not reason.startswith("its input from"):
            found.setdefault(reason, (task, reason))
    return list(found.values())
