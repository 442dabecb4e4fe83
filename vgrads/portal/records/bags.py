"""Bags of tasks in the database: their owners, dispatchers and states.

Plain queries: a command that runs a bag needs neither SQLAlchemy nor the tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.storage.retry_requests import has_request
from vgrads.portal.records.reader import RecordWriter, database_url, open_current
from vgrads.portal.records.reading.bags import (
    ENDED,
    BagEntry,
    get_bag,
    read_bags_named,
    read_bags_of,
    read_newest_bags,
    read_unended_dispatchers,
)

if TYPE_CHECKING:
    from sqlalchemy import Engine as SqlEngine

    from vgrads.portal.records.store import Store

_NAMES = [field.name for field in fields(BagEntry)]
_INSERT = f"INSERT INTO bag ({', '.join(_NAMES)}) VALUES (:{', :'.join(_NAMES)})"


@dataclass(frozen=True)
class PlainStore:
    """An SQLite file of this version, opened with Python's own module; ``url``: of the same
    database, for whatever needs :class:`vgrads.portal.records.store.Store`."""

    url: str
    records: RecordWriter


@contextmanager
def open_store() -> Iterator[PlainStore | Store]:
    """Open the database for the records of bags: created or migrated first where necessary."""
    with open_current() as records:
        if records is not None:
            records.rows("PRAGMA synchronous=FULL")  # as all other writers
            yield PlainStore(database_url(), records)
            return
    from vgrads.portal.records.store import Store

    with Store() as store:
        yield store


class BagStore:
    """The bags of a database."""

    def __init__(self, records: RecordWriter | SqlEngine) -> None:
        self._records = records if isinstance(records, RecordWriter) else _make_reader(records)

    def add(self, row: BagEntry) -> None:
        """Store a bag."""
        self._records.change(_INSERT, **asdict(row))

    def get(self, bag_id: str) -> BagEntry:
        """Return one bag. Raise InputError if there is none."""
        return get_bag(self._records, bag_id)

    def newest(
        self,
        owner: str | None = None,
        most: int = 200,
        after: str = "",
        name: str = "",
        state: str | None = None,
    ) -> list[BagEntry]:
        """Return bags, newest first; of one owner, or of all; of a name, in a state, after the bag
        with this id."""
        return read_newest_bags(self._records, owner, most, after, name, state)

    def same_name(self, name: str, owner: str) -> list[BagEntry]:
        """Return the bags of an owner with this name, newest first."""
        return read_bags_named(self._records, name, owner)

    def of(self, dispatcher: str) -> list[BagEntry]:
        """Return the bags of a dispatcher, by number."""
        return read_bags_of(self._records, dispatcher)

    def open_of(self, dispatcher: str) -> list[BagEntry]:
        """Return those of them that are not terminal."""
        return [row for row in self.of(dispatcher) if row.state not in ENDED]

    def unended(self) -> set[tuple[str, str]]:
        """Return dispatcher and owner of the bags that are not terminal."""
        return read_unended_dispatchers(self._records)

    def dispatcher_like(self, begins: str) -> str:
        """Return the newest dispatcher with this prefix of its id; empty where there is none."""
        query = (
            "SELECT dispatcher FROM bag WHERE dispatcher LIKE :pattern ESCAPE '/' "
            "ORDER BY created DESC LIMIT 1"
        )
        literal = begins.replace("/", "//").replace("%", "/%").replace("_", "/_")
        rows = self._records.rows(query, pattern=f"{literal}%")
        return str(rows[0][0]) if rows else ""

    def next_number(self, dispatcher: str) -> int:
        """Return a bag number of a dispatcher that no record has; bags without a record have their
        numbers in its folder (:func:`vgrads.dispatch.storage.folder.reserve_number`)."""
        query = "SELECT max(number) FROM bag WHERE dispatcher = :dispatcher"
        last = self._records.rows(query, dispatcher=dispatcher)[0][0]
        return 0 if last is None else int(last) + 1

    def ask_to_stop(self, bag_id: str, why: str) -> None:
        """Request the cancellation of a bag."""
        self._set([bag_id], stop=why or "cancelled")

    def reopen(self, bag_id: str) -> None:
        """Mark a bag as waiting again, whose tasks are to be retried."""
        self._set([bag_id], state="waiting", stop="", archived_s=None)

    def archive(self, bag_id: str, at_s: float | None) -> None:
        """Mark a bag as archived at an instant; None: list it again."""
        self._set([bag_id], archived_s=at_s)

    def remove(self, bag_id: str) -> None:
        """Remove the record of a bag, if it is terminal; its folder stays."""
        states = ", ".join(f"'{state}'" for state in ENDED)
        self._records.change(f"DELETE FROM bag WHERE id = :id AND state IN ({states})", id=bag_id)

    def note(self, dispatcher: str, statuses: Sequence[dict[str, Any]]) -> None:
        """Store the states of bags, by number; those whose tasks are to be retried still wait."""
        by_number = {row.number: row for row in self.of(dispatcher)}
        for status in statuses:
            row = by_number.get(status["number"])
            # the same state of an ended bag says nothing new; while it runs its counts change
            if row is None or (row.state == status["state"] and status["state"] != "running"):
                continue
            applied = status.get("retried", 0)
            if not has_request(dispatcher_folder(dispatcher), row.number, applied):
                self._set(
                    [row.id],
                    state=status["state"],
                    tasks=status["tasks"],
                    summary=json.dumps(status),
                )

    def set_state(self, dispatcher: str, state: str) -> None:
        """Set the state of all bags of a dispatcher that are not terminal."""
        self._set([row.id for row in self.open_of(dispatcher)], state=state)

    def _set(self, ids: Sequence[str], **values: object) -> None:
        """Set these columns of some bags, all together."""
        if not ids:
            return
        columns = ", ".join(f"{name} = :{name}" for name in values)
        keys = {f"id_{n}": bag_id for n, bag_id in enumerate(ids)}
        which = ", ".join(f":{name}" for name in keys)
        self._records.change(f"UPDATE bag SET {columns} WHERE id IN ({which})", **values, **keys)


def _make_reader(engine: SqlEngine) -> RecordWriter:
    from vgrads.portal.records.engine_reader import EngineReader

    return EngineReader(engine)


def new_bag(
    bag_id: str, dispatcher: str, number: int, name: str, owner: str, tasks: int
) -> BagEntry:
    """Return the record of a bag submitted now."""
    return BagEntry(
        id=bag_id,
        dispatcher=dispatcher,
        number=number,
        name=name,
        owner=owner,
        state="waiting",
        created=datetime.now(UTC),
        tasks=tasks,
        stop="",
        summary="{}",
    )
