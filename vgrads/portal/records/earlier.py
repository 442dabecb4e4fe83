"""The earlier runs of a set, newest first, and the locations of their files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from sqlmodel import Session, col, select

from vgrads.api.config import run_folder
from vgrads.api.plans.up_to_date import EarlierRun
from vgrads.execmgr.tasks.provenance import RECORDS
from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import OPERATOR, RunRow, SetRow

_MOST = 50  # many may have been simulated, or are gone
_MOST_SEARCHED = 10


def runs_of_set(store: Store, set_id: str) -> list[EarlierRun]:
    """Return the runs of one set of a service that recorded provenance."""
    return _existing(store.list_runs(set_id, limit=_MOST))


def runs_of_name(name: str) -> list[EarlierRun]:
    """Return the same for all runs from the command line of sets of this name; none where there is
    no database."""
    query = select(RunRow).join(SetRow, col(RunRow.set_id) == col(SetRow.id))
    query = query.where(SetRow.name == name, SetRow.owner == OPERATOR)
    try:
        with Store() as store, Session(store.engine) as session:
            return _existing(session.exec(query.order_by(col(RunRow.started).desc()).limit(_MOST)))
    except (SiteError, OSError):
        return []


def refuse_unfinished(store: Store, folder: Path) -> None:
    """Raise InputError where a run that can be resumed has its files in a folder."""
    for row in store.list_runs(limit=1000):
        if row.state in GOES_ON and _folder_of(row) == folder:
            raise InputError(
                f"{row.id} stores its files there and has not ended",
                where=f"--out {folder}",
                fix=f"vgrads resume {row.id} continues it, vgrads cancel {row.id} ends it",
            )


def _existing(rows: Iterable[RunRow]) -> list[EarlierRun]:
    newest: dict[Path, str] = {}  # several may have used the same folder
    for row in rows:
        newest.setdefault(_folder_of(row), row.id)
    earliers = [
        EarlierRun(run, folder) for folder, run in newest.items() if (folder / RECORDS).is_file()
    ]
    return earliers[:_MOST_SEARCHED]


def _folder_of(row: RunRow) -> Path:
    chosen = json.loads(row.how).get("folder")
    return Path(chosen) if chosen else run_folder(row.id).resolve()
