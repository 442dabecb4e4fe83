"""Runs of all sets, newest first."""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any

from vgrads.portal.records.reader import RecordReader, as_instant
from vgrads.portal.records.reading.pages import page_clause

_ROWS = """
    SELECT r.id, r.set_id, s.name, s.owner, r.state, r.started, r.outcome
    FROM run r JOIN workflow_set s ON r.set_id = s.id
"""


def read_newest_runs(
    reader: RecordReader,
    owner: str | None,
    most: int,
    after: str = "",
    name: str = "",
    state: str | None = None,
) -> list[dict[str, Any]]:
    """Return runs, newest first: of an owner, or of all; of sets of a name, in a state, after the
    run with this id. Raise InputError if that is gone."""
    values = {"s.owner": owner, "s.name": name or None, "r.state": state}
    clause, parameters = page_clause(reader, "run r", ("r.started", "r.id"), values, after)
    stored = reader.rows(f"{_ROWS} {clause} LIMIT :most", most=most, **parameters)
    return [_run(row) for row in stored]


def runs_of_name(
    reader: RecordReader, owner: str, name: str, most: int
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the runs of an owner's sets of a name, newest first, each with the summary of its
    set's plan."""
    query = (
        "SELECT r.id, r.set_id, s.name, s.owner, r.state, r.started, r.outcome, s.summary "
        "FROM run r JOIN workflow_set s ON r.set_id = s.id "
        "WHERE s.owner = :owner AND s.name = :name ORDER BY r.started DESC, r.id DESC LIMIT :most"
    )
    rows = reader.rows(query, owner=owner, name=name, most=most)
    return [(_run(row[:-1]), json.loads(row[-1] or "{}")) for row in rows]


def _run(row: tuple[Any, ...]) -> dict[str, Any]:
    *names, state, stored_start, outcome = row
    start = as_instant(stored_start)
    return {
        **dict(zip(("id", "set", "name", "owner"), names, strict=True)),
        "state": state,
        "started": (start if start.tzinfo else start.replace(tzinfo=UTC)).isoformat(),
        "outcome": json.loads(outcome),
    }
