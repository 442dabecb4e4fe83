"""The stored record of one run: its journal and its archive. Any process may read it."""

from __future__ import annotations

import json
from collections import Counter
from typing import NoReturn

from vgrads.api.plans.run_setup import Setup
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.journal import event_from_json
from vgrads.execmgr.core.states import Event
from vgrads.kernel.errors import InputError, brief
from vgrads.portal.records.archive import unpack
from vgrads.portal.records.reader import RecordReader

SETUP = "setup"
READ_ERRORS = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Errors at a damaged event."""


class RunReader:
    """The stored events, execution plans and start parameters of a run."""

    def __init__(self, reader: RecordReader, run_id: str) -> None:
        self._reader, self.run_id = reader, run_id

    def events(self, until: int | None = None) -> list[Event]:
        """Return the stored events, all or up to a position.

        Raises InputError where an event is damaged or missing, with the first such event, and the
        events that can be saved.
        """
        query = "SELECT position, body FROM run_event WHERE run_id = :run_id ORDER BY position"
        rows = self._reader.rows(query, run_id=self.run_id)
        results: list[Event] = []
        for position, body in rows if until is None else rows[:until]:
            if position != len(results):
                self.refuse_event(len(results), "is missing")
            try:
                results.append(event_from_json(json.loads(body)))
            except READ_ERRORS as error:
                self.refuse_event(position, f"cannot be read: {brief(error)}")
        if until is not None and until > len(results):
            raise InputError(f"the journal has only {len(results)} events", where="--from")
        return results

    def count_events(self) -> int:
        """Return the number of stored events."""
        query = "SELECT COUNT(*) FROM run_event WHERE run_id = :run_id"
        return int(self._reader.rows(query, run_id=self.run_id)[0][0])

    def repeated_requests(self) -> Counter[str]:
        """Return how often each slot was requested again."""
        query = "SELECT body FROM run_event WHERE run_id = :run_id AND body LIKE :again"
        # events are stored with their kind first, so that the others need not be decoded
        rows = self._reader.rows(query, run_id=self.run_id, again='{"kind": "again"%')
        return Counter(json.loads(body)["slot"] for (body,) in rows)

    def refuse_event(self, position: int, what: str) -> NoReturn:
        """Raise InputError about an event of the journal."""
        raise InputError(
            f"event {position} {what}; the {position} events before it are intact",
            where=f"journal of run '{self.run_id}'",
            fix=(
                f"vgrads resume {self.run_id} --from {position} continues from there; the "
                "effects of "
                "later events are found or the work is repeated"
            ),
        )

    def setup(self) -> Setup:
        """Return the run's start parameters. Raise InputError where none were stored."""
        query = "SELECT body FROM run_archive WHERE run_id = :run_id AND name = :name"
        rows = self._reader.rows(query, run_id=self.run_id, name=SETUP)
        if not rows:
            self.refuse_unbegun()
        setup: Setup = unpack(rows[0][0], f"run '{self.run_id}'")
        return setup

    def refuse_unbegun(self) -> NoReturn:
        """Raise InputError for a run that ended before its start parameters were stored."""
        raise InputError(
            f"run '{self.run_id}' was stopped before it started; there is nothing to resume",
            fix=f"vgrads cancel {self.run_id} ends it; then run its set again",
        )

    def begun(self) -> bool:
        """Return True where a manager stored the start parameters."""
        query = "SELECT name FROM run_archive WHERE run_id = :run_id"
        rows = self._reader.rows(query, run_id=self.run_id)
        return {SETUP, "book-0"} <= {name for (name,) in rows}

    def executions(self) -> list[ExecutionPlan]:
        """Return the execution plans by version."""
        query = "SELECT name, body FROM run_archive WHERE run_id = :run_id AND name <> :setup"
        bodies = dict(self._reader.rows(query, run_id=self.run_id, setup=SETUP))
        executions: list[ExecutionPlan] = []
        while (name := f"book-{len(executions)}") in bodies:
            executions.append(unpack(bodies[name], f"run '{self.run_id}'"))
        return executions
