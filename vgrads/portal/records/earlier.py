"""The earlier runs of a set of a service, and folders that unfinished runs use."""

from __future__ import annotations

from pathlib import Path

from vgrads.api.plans.up_to_date import EarlierRun
from vgrads.kernel.errors import InputError
from vgrads.portal.records.reading.earlier_runs import MOST, derive_run_folder, keep_provenance_runs
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.store import Store


def runs_of_set(store: Store, set_id: str) -> list[EarlierRun]:
    """Return the runs of one set of a service that recorded provenance."""
    return keep_provenance_runs((row.id, row.how) for row in store.list_runs(set_id, limit=MOST))


def refuse_unfinished(store: Store, folder: Path) -> None:
    """Raise InputError where a run that can be resumed has its files in a folder."""
    for row in store.list_runs(limit=1000):
        if row.state in GOES_ON and derive_run_folder(row.id, row.how) == folder:
            raise InputError(
                f"{row.id} stores its files there and has not ended",
                where=f"--out {folder}",
                fix=f"vgrads resume {row.id} continues it, vgrads cancel {row.id} ends it",
            )
