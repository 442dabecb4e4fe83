"""How runs stand, as lists tell it: from their rows alone, so that asking is quick."""

from __future__ import annotations

import json
from datetime import UTC, timedelta
from typing import Any

from sqlmodel import Session, col, select

from vgrads.kernel.errors import InputError
from vgrads.portal.records.lease import beat_of, is_dead
from vgrads.portal.records.store import GOES_ON, Store
from vgrads.portal.records.tables import ArchiveRow, LeaseRow, RunRow, SetRow
from vgrads.portal.records.work import Works

Json = dict[str, Any]
AT_WORK, GONE, UNKNOWN = "at work", "gone", "not known yet"


def run_rows(store: Store, run_id: str | None = None, limit: int = 50) -> list[Json]:
    """The newest runs, or one; InputError if there is none of that name."""
    query = select(RunRow, SetRow.name, SetRow.summary).join(SetRow, RunRow.set_id == SetRow.id)  # type: ignore[arg-type]
    query = query.order_by(col(RunRow.started).desc()).limit(limit)
    if run_id is not None:
        query = query.where(RunRow.id == run_id)
    with Session(store.engine) as session:
        found = session.exec(query).all()
        if run_id is not None and not found:
            raise InputError(f"no run '{run_id}'", fix="vgrads status lists them")
        rows = [
            _row(run, name, json.loads(summary), manager_of(session, run))
            for run, name, summary in found
        ]
    return [
        row | {"hint": _hint(store, row["run"])} if row["manager"] == GONE else row for row in rows
    ]


def manager_of(session: Session, run: RunRow) -> str | None:
    """Whether somebody looks after a run that goes on; None for one that has ended."""
    if run.state not in GOES_ON:
        return None
    lease = session.get(LeaseRow, run.id)
    if lease is None or not lease.owner:
        return GONE
    dead = is_dead(beat_of(session, lease))
    return UNKNOWN if dead is None else GONE if dead else AT_WORK


def _row(run: RunRow, name: str, summary: Json, manager: str | None) -> Json:
    started = run.started if run.started.tzinfo else run.started.replace(tzinfo=UTC)
    deadline_s = summary.get("deadline_s")
    due = started + timedelta(seconds=deadline_s) if deadline_s is not None else None
    return {
        "run": run.id,
        "set": run.set_id,
        "name": name,
        "state": run.state,
        "started": started.isoformat(),
        "due": due.isoformat() if due else None,
        "promise": (summary.get("promise") or {}).get("probability"),
        "needed": summary.get("needed"),
        "cost_usd": summary.get("cost_usd"),
        "manager": manager,
        "hint": None,
        "outcome": json.loads(run.outcome),
    }


def _hint(store: Store, run_id: str) -> str:
    """What can be done about a run without a manager."""
    query = select(ArchiveRow.name).where(ArchiveRow.run_id == run_id, ArchiveRow.name == "book-0")
    with Session(store.engine) as session:
        begun = session.exec(query).first()
    if begun:
        return (
            f"its manager is gone: vgrads resume {run_id} goes on, vgrads cancel {run_id} "
            "gives all back"
        )
    if Works(store.engine).awaits(run_id):
        return (
            f"it has not begun: a service begins it (vgrads serve), vgrads cancel {run_id} ends it"
        )
    return f"it was stopped before it began: vgrads cancel {run_id} ends it; then run its set again"
