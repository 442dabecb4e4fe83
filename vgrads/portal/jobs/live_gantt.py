"""The chart of a run as it stands: folded from its journal, a few events at a time."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from vgrads.api.plans.answers import gantt_json
from vgrads.api.wiring import any_real
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.journal import advance, event_from_json, ruling
from vgrads.execmgr.core.states import RunState
from vgrads.execmgr.core.step import begin
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import GOES_ON, Store
from vgrads.portal.records.tables import RunRow

Json = dict[str, Any]
_REMEMBERED = 32


@dataclass
class _Followed:
    """A run as far as it has been read."""

    books: list[Book] = field(default_factory=list)
    state: RunState | None = None
    position: int = 0
    simulated: bool = True


class LiveGantt:
    """Charts of runs that go on. What was read of a journal is not read again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._followed: OrderedDict[str, _Followed] = OrderedDict()
        self._lock = threading.Lock()

    def version(self, run: RunRow) -> str:
        """Changes whenever the chart does."""
        return f"{run.id}-{run.state}-{self._store.count_events(run.id)}"

    def chart(self, run: RunRow) -> Json | None:
        """The Gantt query of a run; None where it has not begun."""
        if run.gantt != "{}" and run.state not in GOES_ON:
            kept: Json = json.loads(run.gantt)
            return kept
        found = self.folded(run.id)
        return gantt_json(found[0].plan, found[0].snapshot, found[1]) if found else None

    def folded(self, run_id: str) -> tuple[Book, RunState] | None:
        """The book that rules and what a run has come to; None where it has not begun."""
        with self._lock:
            followed = self._follow(run_id)
            if followed.state is None:
                return None
            return followed.books[followed.state.version], followed.state

    def simulated(self, run_id: str) -> bool:
        """True where the clock of a run that was folded is that of a simulation."""
        found = self._followed.get(run_id)
        return found is None or found.simulated

    def _follow(self, run_id: str) -> _Followed:
        followed = self._followed.setdefault(run_id, _Followed())
        self._followed.move_to_end(run_id)
        if len(self._followed) > _REMEMBERED:
            self._followed.popitem(last=False)
        if self._store.count_events(run_id) < followed.position:  # played again from its beginning
            followed.books, followed.state, followed.position = [], None, 0
        record = RunRecord(self._store.engine, run_id)
        if followed.state is None:
            followed.books = record.books()
            if not followed.books:
                return followed
            followed.state = begin(followed.books[0])
            followed.simulated = not any_real(record.setup().catalog, followed.books[0].plan)
        for body in self._store.events(run_id, followed.position):
            event = event_from_json(body)
            if ruling(followed.state, event) >= len(followed.books):
                followed.books = record.books()
            followed.state = advance(followed.books, followed.state, event)
            followed.position += 1
        return followed
