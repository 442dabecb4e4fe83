"""``vgrads logs --follow``: what the tasks of a run print, and how they fare, as it happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from vgrads.api.plans.attempts import Attempt, about, attempts_of, place_of
from vgrads.execmgr.tasks.output import STDERR, STDOUT, since
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_duration
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import GOES_ON, Store

_LOOK_S = 0.3


def follow(
    run_id: str, task: str | None, pause: Callable[[float], None] = time.sleep
) -> Iterator[str]:
    """Lines about a run, or about one task of it, until the run is over; what was printed before
    comes first."""
    with Store() as store:
        store.get_run(run_id)
        seen = _Seen(RunRecord(store.engine, run_id), task)
        while True:
            goes_on = store.get_run(run_id).state in GOES_ON
            yield from seen.news()
            if not goes_on:
                yield f"{run_id}: {store.get_run(run_id).state}"
                return
            pause(_LOOK_S)


class _Seen:
    """What has been told of a run's attempts: their states, and how far what they print was
    read."""

    def __init__(self, record: RunRecord, task: str | None) -> None:
        self._record, self._task = record, task
        self._states: dict[tuple[object, ...], str] = {}
        self._read: dict[Path, int] = {}
        self._attempts: list[Attempt] = []
        self._events = -1

    def news(self) -> Iterator[str]:
        """What is new since the last call."""
        self._look()
        for one in self._attempts:
            if self._states.get((one.key, one.number)) == "over":
                continue
            name = f"{one.key[0]}/{one.key[1]}"
            yield from self._state(one, name)
            yield from self._printed(one, name)

    def _look(self) -> None:
        books = self._record.books()
        if not books:
            return
        events = self._record.events()
        if len(events) == self._events:
            return
        self._events = len(events)
        found, _ = attempts_of(books, events)
        if self._task is not None:
            known = {f"{w}/{t}" for book in books for w, t in book.copies}
            if not any(self._task in (name, name.partition("/")[2]) for name in known):
                raise InputError(
                    f"no task '{self._task}' in this run", where="TASK", fix=f"as {min(known)}"
                )
            found = about(found, self._task)
        self._attempts = found

    def _state(self, one: Attempt, name: str) -> Iterator[str]:
        told = f"{one.state.value} at {one.slot}"
        if one.end_s is not None:
            told = f"{one.state.value} after {format_duration(one.end_s - one.start_s)}"
        if self._states.get((one.key, one.number)) != told:
            self._states[one.key, one.number] = told
            why = f": {one.reason}" if one.reason else ""
            yield f"{name} (attempt {one.number + 1}): {told}{why}"

    def _printed(self, one: Attempt, name: str) -> Iterator[str]:
        place = place_of(self._record.setup().options.folder, one)
        for file in (place / STDOUT, place / STDERR) if place is not None else ():
            while True:
                before = self._read.get(file, 0)
                text, self._read[file] = since(file, before, whole_lines=one.end_s is None)
                if not text:
                    break
                for line in text.splitlines():
                    yield f"{name} | {line}"
        if one.end_s is not None:
            self._states[one.key, one.number] = "over"
