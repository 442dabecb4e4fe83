"""Stored bags of tasks, as the commands and pages show them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.storage.goal_age import age_goal
from vgrads.dispatch.storage.status import read_status
from vgrads.kernel.errors import InputError
from vgrads.portal.records.reader import RecordReader, as_instant
from vgrads.portal.records.reading.pages import page_clause

HERE = ""
"""The owner of bags of the command line: they are managed by the user who runs the command."""
ENDED = ("done", "failed", "cancelled")
"""Terminal states of a bag."""


@dataclass(frozen=True, slots=True)
class BagEntry:
    """A submitted bag of tasks, as stored; the fields are those of its table."""

    id: str
    dispatcher: str
    number: int
    name: str
    owner: str
    state: str
    created: datetime
    tasks: int
    stop: str
    summary: str
    archived_s: float | None = None


_NAMES = [field.name for field in fields(BagEntry)]
_SELECT = f"SELECT {', '.join(_NAMES)} FROM bag"


def get_bag(reader: RecordReader, bag_id: str) -> BagEntry:
    """Return one bag. Raise InputError if there is none."""
    bags = _select_bags(reader, "WHERE id = :id", id=bag_id)
    if not bags:
        raise InputError(f"no bag '{bag_id}'", fix="list bags with 'vgrads bags status'")
    return bags[0]


def read_newest_bags(
    reader: RecordReader,
    owner: str | None = None,
    most: int = 200,
    after: str = "",
    name: str = "",
    state: str | None = None,
) -> list[BagEntry]:
    """Return bags, newest first: of one owner, or of all; of a name, in a state, after the bag with
    this id. Raise InputError if that is gone."""
    values = {"owner": owner, "name": name or None, "state": state}
    order = ("created", "number", "id")
    clause, parameters = page_clause(reader, "bag", order, values, after)
    return _select_bags(reader, f"{clause} LIMIT :most", most=most, **parameters)


def read_all_bags(reader: RecordReader, owner: str | None) -> list[BagEntry]:
    """Return the bags of an owner, or of all, newest first."""
    which, values = ("", {}) if owner is None else ("WHERE owner = :owner ", {"owner": owner})
    return _select_bags(reader, f"{which}ORDER BY created DESC, number DESC, id DESC", **values)


def read_bags_named(reader: RecordReader, name: str, owner: str) -> list[BagEntry]:
    """Return the bags of an owner with a name, newest first."""
    which = "WHERE name = :name AND owner = :owner ORDER BY created DESC, number DESC"
    return _select_bags(reader, which, name=name, owner=owner)


def read_bags_of(reader: RecordReader, dispatcher: str) -> list[BagEntry]:
    """Return the bags of a dispatcher, by number."""
    return _select_bags(
        reader, "WHERE dispatcher = :dispatcher ORDER BY number", dispatcher=dispatcher
    )


def read_unended_dispatchers(reader: RecordReader) -> set[tuple[str, str]]:
    """Return dispatcher and owner of the bags that are not terminal."""
    names = ", ".join(f"'{state}'" for state in ENDED)
    query = f"SELECT DISTINCT dispatcher, owner FROM bag WHERE state NOT IN ({names})"
    return {(dispatcher, owner) for dispatcher, owner in reader.rows(query)}


def _select_bags(reader: RecordReader, which: str, **values: object) -> list[BagEntry]:
    at = _NAMES.index("created")
    rows = reader.rows(f"{_SELECT} {which}", **values)
    return [BagEntry(*(*row[:at], as_instant(row[at]), *row[at + 1 :])) for row in rows]


def read_bag_status(row: BagEntry, status: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a bag's last status from its dispatcher, with its goal as of now; empty where there is
    none yet. ``status``: of the dispatcher, where it was read already."""
    if status is None:
        status = read_status(dispatcher_folder(row.dispatcher))
    message = (bag for bag in status.get("bags", ()) if bag["number"] == row.number)
    # where the dispatcher has left no status, the database has the last one
    bag = next(message, {}) or dict(json.loads(row.summary))
    if bag.get("goal"):
        bag["goal"] = age_goal(bag["goal"], status, time.time())
    return bag
