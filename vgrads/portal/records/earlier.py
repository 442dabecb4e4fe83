"""The earlier runs of a set, newest first, and where their files lie."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from sqlmodel import Session, col, select

from vgrads.api.config import run_folder
from vgrads.api.plans.up_to_date import Earlier
from vgrads.execmgr.tasks.provenance import RECORDS
from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.records.store import GOES_ON, Store
from vgrads.portal.records.tables import RunRow, SetRow

_MOST = 50  # of which many may have been simulated, or are gone
_MOST_SEARCHED = 10


def runs_of_set(store: Store, set_id: str) -> list[Earlier]:
    """The runs of one set of a service that kept how their tasks were done."""
    return _found(store.list_runs(set_id, limit=_MOST))


def runs_of_name(name: str) -> list[Earlier]:
    """The same of all runs from the command line of sets of this name; none where there is no
    database to ask."""
    query = select(RunRow).join(SetRow, col(RunRow.set_id) == col(SetRow.id))
    query = query.where(SetRow.name == name, SetRow.owner == "local")
    try:
        with Store() as store, Session(store.engine) as session:
            return _found(session.exec(query.order_by(col(RunRow.started).desc()).limit(_MOST)))
    except (SiteError, OSError):
        return []


def refuse_unfinished(store: Store, folder: Path) -> None:
    """InputError where a run that can be gone on with has its files in a folder."""
    for row in store.list_runs(limit=1000):
        if row.state in GOES_ON and _folder_of(row) == folder:
            raise InputError(
                f"{row.id} has its files there and is not over",
                where=f"--out {folder}",
                fix=f"vgrads resume {row.id} goes on with it, vgrads cancel {row.id} ends it",
            )


def _found(rows: Iterable[RunRow]) -> list[Earlier]:
    newest: dict[Path, str] = {}  # several may have used one folder
    for row in rows:
        newest.setdefault(_folder_of(row), row.id)
    found = [Earlier(run, folder) for folder, run in newest.items() if (folder / RECORDS).is_file()]
    return found[:_MOST_SEARCHED]


def _folder_of(row: RunRow) -> Path:
    chosen = json.loads(row.how).get("folder")
    return Path(chosen) if chosen else run_folder(row.id).resolve()
