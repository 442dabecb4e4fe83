"""Bags as a list, as text and as JSON. Few imports: the status command must be fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.storage.goal_age import change_text, describe_goal_promise
from vgrads.dispatch.storage.status import is_worked_on, read_status
from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.kernel.units import format_duration
from vgrads.portal.records.reading.bags import ENDED, BagEntry, read_bag_status


def status_json(row: BagEntry) -> dict[str, Any]:
    """Return a bag as JSON."""
    return {
        "id": row.id,
        "name": row.name,
        "owner": row.owner,
        "tasks": row.tasks,
        "created": row.created.isoformat(),
        "dispatcher": row.dispatcher,
        **_format_numbers(row),
    }


def _format_numbers(row: BagEntry) -> dict[str, Any]:
    fresh = read_bag_status(row)
    live = fresh and row.state in ("waiting", "running") and fresh["state"] not in ENDED
    state = fresh["state"] if live else row.state
    names = (
        "waiting",
        "running",
        "done",
        "failed",
        "dropped",
        "tried_again",
        "copied",
        "reused",
        "typical_s",
        "rate",
        "left_s",
        "problem",
        "times",
        "goal",
    )
    return {"state": state} | ({name: fresh.get(name) for name in names} if fresh else {})


def bags_table(rows: Sequence[BagEntry]) -> TextTable | str:
    """Return the newest bags, each followed by what prevents its progress."""
    if not rows:
        return "no bags yet: start one with 'vgrads bags run FILE.yaml'"
    columns = (
        Column("bag"),
        Column("name", shorten=True),
        Column("state"),
        Column("tasks", right=True, fold=2),
        Column("done", right=True, fold=1),
        Column("failed", right=True, fold=3),
        Column("submitted", fold=4),
    )
    return TextTable(columns, tuple(map(_make_bag_row, rows)))


def _make_bag_row(row: BagEntry) -> Row:
    numbers = _format_numbers(row)
    notes: tuple[str, ...] = ()
    if numbers["state"] in ("waiting", "running"):
        if not is_worked_on(dispatcher_folder(row.dispatcher)):
            notes = (f"no dispatcher is running: 'vgrads bags resume {row.id}' continues the bag",)
        elif numbers.get("problem"):
            notes = (numbers["problem"],)
        elif numbers.get("goal"):
            notes = (numbers["goal"]["why"],)
    if text := describe_goal_promise(numbers.get("goal") or {}):
        notes = (text, *notes)
    cells = (
        row.id,
        row.name,
        numbers["state"],
        f"{row.tasks:,}",
        f"{numbers.get('done') or 0:,}",
        f"{numbers.get('failed') or 0:,}",
        f"{row.created:%Y-%m-%d %H:%M}",
    )
    return Row(cells, notes, {"": "yellow"})


def nodes_json(row: BagEntry) -> dict[str, Any]:
    """Return the decisions about the nodes of a bag's dispatcher, the newest last, with the time
    since its start, and the goal of the bag."""
    status = read_status(dispatcher_folder(row.dispatcher))
    return {
        "bag": row.id,
        "goal": _format_numbers(row).get("goal") or None,
        "reasons": list(status.get("reasons", ())),
    }


def nodes_text(payload: Mapping[str, Any]) -> str:
    """Return the decisions as lines."""
    goal = payload["goal"]
    lines = (
        []
        if goal is None
        else [*filter(None, [describe_goal_promise(goal)]), f"now: {goal['why']}"]
    )
    lines += [
        f"after {format_duration(row['at_s'])}, {row['site']}: {row['reason']}"
        for row in payload["reasons"]
    ]
    lines += [change_text(change) for change in (goal or {}).get("changes", ())]
    return "\n".join(lines) or "no nodes were requested or released yet"
