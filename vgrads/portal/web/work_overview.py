"""All sets and bags of a user in one list, fast enough for ten thousand: heads and runs are read
from indexes, and the summary of a plan once for each of its revisions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vgrads.portal.records.reader import RecordReader
from vgrads.portal.records.reading.archived import is_archived
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.web.bag_entries import BagEntries
from vgrads.portal.web.set_display import (
    PromiseSummary,
    display_state,
    read_summary,
)
from vgrads.portal.web.work_entry import NewestRun, WorkEntry, unix_s

_MOST_CACHED = 200_000
_CHUNK = 500
_NO_PROMISE = PromiseSummary()


CurrentPromise = tuple[str, float | None]
"""State of a run's promise in words, and its last probability, None before it was computed."""
_Basis = tuple[tuple[Any, ...], tuple[Any, ...] | None, bool, CurrentPromise | None]
"""What an entry was made of: the rows of its set and run, whether it is planned, its promise."""
PromiseOf = Callable[[str], CurrentPromise | None]
"""Run → its promise now; None: not read yet."""


class Overview:
    """Lists of sets and bags; one for each service. ``reader``: of its database."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader, self._bags = reader, BagEntries(reader)
        self._promises: dict[str, tuple[int, PromiseSummary]] = {}
        self._entries: dict[str, tuple[_Basis, WorkEntry]] = {}

    def entries(self, owner: str | None, now: PromiseOf) -> list[WorkEntry]:
        """Return the sets of an owner, or of all, newest first; then the bags."""
        return [*self.sets(owner, now), *self._bags.entries(owner)]

    def sets(self, owner: str | None, now: PromiseOf) -> list[WorkEntry]:
        """Return the sets of an owner, or of all, newest first."""
        condition = "" if owner is None else "WHERE owner = :owner"
        values = {} if owner is None else {"owner": owner}
        rows = self._reader.rows(
            "SELECT id, name, owner, created, state, revision, archived_s FROM workflow_set "
            f"{condition} ORDER BY created DESC, id DESC",
            **values,
        )
        runs, taken = self._newest_runs(), self._planning()
        self._load({row[0]: row[5] for row in rows})
        return [self._entry(row, runs.get(row[0]), row[0] in taken, now) for row in rows]

    def outcomes(self, run_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return the outcomes of runs."""
        rows = self._by_ids("SELECT id, outcome FROM run WHERE id IN", run_ids)
        return {id_: json.loads(outcome) for id_, outcome in rows}

    def _entry(
        self, row: tuple[Any, ...], run: tuple[Any, ...] | None, taken: bool, now: PromiseOf
    ) -> WorkEntry:
        """Return the entry of a row; the one of the last list, where nothing has changed."""
        current = now(run[1]) if run is not None and run[2] in GOES_ON else None
        basis, last = (row, run, taken, current), self._entries.get(row[0])
        if last is not None and last[0] == basis:
            return last[1]
        entry = self._new_entry(row, NewestRun(*run[1:]) if run else None, taken, current)
        self._entries[row[0]] = basis, entry
        return entry

    def _new_entry(
        self,
        row: tuple[Any, ...],
        run: NewestRun | None,
        taken: bool,
        current: CurrentPromise | None,
    ) -> WorkEntry:
        id_, name, owner, created, state, _, archived_s = row
        promise = self._promises.get(id_, (0, _NO_PROMISE))[1]
        word = current[0] if current else None
        display = display_state(state, run.state if run else None, promise, word, taken)
        due_s = None
        if run is not None and promise.deadline_s is not None:
            due_s = unix_s(run.started) + promise.deadline_s
        probability = promise.probability if current is None else current[1]
        probability = probability if promise.feasible else None
        return WorkEntry(
            kind="set",
            id=id_,
            name=name,
            owner=owner,
            created_s=unix_s(created),
            promise=promise,
            run=run,
            state=display,
            probability=probability,
            due_s=due_s,
            goes_on=run is not None and run.goes_on,
            archived=is_archived(archived_s, unix_s(run.started) if run is not None else None),
        )

    def _newest_runs(self) -> dict[str, tuple[Any, ...]]:
        query = "SELECT set_id, id, state, started FROM run ORDER BY set_id, started"
        # in the order of their starts, so that the newest of each set remains
        return {row[0]: row for row in self._reader.rows(query)}

    def _planning(self) -> set[str]:
        query = "SELECT set_id FROM work WHERE kind = 'plan' AND state = 'taken'"
        return {set_id for (set_id,) in self._reader.rows(query)}

    def _load(self, revisions: Mapping[str, int]) -> None:
        """Read the summaries of plans that are new."""
        cached = self._promises
        if len(cached) > _MOST_CACHED:
            cached.clear()
            self._entries.clear()
        missing = [
            set_id
            for set_id, revision in revisions.items()
            if revision and cached.get(set_id, (0,))[0] != revision
        ]
        query = "SELECT id, summary FROM workflow_set WHERE id IN"
        for set_id, text in self._by_ids(query, missing):
            cached[set_id] = (revisions[set_id], read_summary(json.loads(text)))

    def _by_ids(self, query: str, ids: Sequence[str]) -> list[tuple[Any, ...]]:
        results: list[tuple[Any, ...]] = []
        # databases limit the parameters of a statement
        for start in range(0, len(ids), _CHUNK):
            values = {f"i{n}": id_ for n, id_ in enumerate(ids[start : start + _CHUNK])}
            names = ", ".join(f":{name}" for name in values)
            results += self._reader.rows(f"{query} ({names})", **values)
        return results
