"""Bags as a list, as text and as JSON. Few imports: the status command must be fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.storage.status import is_worked_on
from vgrads.portal.records.reading.bags import BagEntry, bag_status


def status_json(row: BagEntry) -> dict[str, Any]:
    """Return a bag as JSON."""
    return {
        "id": row.id,
        "name": row.name,
        "owner": row.owner,
        "tasks": row.tasks,
        "created": row.created.isoformat(),
        "dispatcher": row.dispatcher,
        **_numbers(row),
    }


def _numbers(row: BagEntry) -> dict[str, Any]:
    fresh = bag_status(row)
    state = fresh["state"] if fresh and row.state in ("waiting", "running") else row.state
    names = (
        "waiting",
        "running",
        "done",
        "failed",
        "dropped",
        "tried_again",
        "copied",
        "typical_s",
        "rate",
        "left_s",
        "problem",
        "times",
    )
    return {"state": state} | ({name: fresh.get(name) for name in names} if fresh else {})


def bags_table(rows: Sequence[BagEntry]) -> Table:
    """Return the newest bags, followed by the problems that block any of them."""
    table, problems = Table(), list[str]()
    for name in ("bag", "name", "state", "tasks", "done", "failed", "submitted"):
        table.add_column(name, justify="right" if name in ("tasks", "done", "failed") else "left")
    for row in rows:
        numbers = _numbers(row)
        state = numbers["state"]
        if state in ("waiting", "running"):
            if not is_worked_on(dispatcher_folder(row.dispatcher)):
                state = f"{state}, no dispatcher is running: vgrads bags resume {row.id}"
            elif numbers.get("problem"):
                problems.append(f"{row.id}: {numbers['problem']}")
        table.add_row(
            row.id,
            Text(row.name),
            Text(state),
            f"{row.tasks:,}",
            f"{numbers.get('done') or 0:,}",
            f"{numbers.get('failed') or 0:,}",
            f"{row.created:%Y-%m-%d %H:%M}",
        )
    if problems:
        table.caption, table.caption_justify = Text("\n".join(problems)), "left"
    return table
