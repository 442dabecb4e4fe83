"""The earlier runs of a set, newest first, and the locations of their files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from vgrads.api.config import run_folder
from vgrads.api.plans.up_to_date import EarlierRun
from vgrads.execmgr.tasks.provenance import RECORDS
from vgrads.kernel.errors import SiteError
from vgrads.portal.records.reader import OPERATOR
from vgrads.portal.records.reading.opening import open_reader

MOST = 50  # many may have been simulated, or are gone
_MOST_SEARCHED = 10


def runs_of_name(name: str) -> list[EarlierRun]:
    """Return the runs from the command line of sets of this name that recorded provenance; none
    where there is no database."""
    try:
        with open_reader() as reader:
            rows = reader.rows(
                "SELECT run.id, run.how FROM run JOIN workflow_set s ON run.set_id = s.id "
                "WHERE s.name = :name AND s.owner = :owner ORDER BY run.started DESC LIMIT :most",
                name=name,
                owner=OPERATOR,
                most=MOST,
            )
    except (SiteError, OSError):
        return []
    return keep_provenance_runs((row[0], row[1]) for row in rows)


def keep_provenance_runs(rows: Iterable[tuple[str, str]]) -> list[EarlierRun]:
    """Return those of runs, given by id and options, whose folder has provenance."""
    newest: dict[Path, str] = {}  # several may have used the same folder
    for run_id, how in rows:
        newest.setdefault(derive_run_folder(run_id, how), run_id)
    earliers = [
        EarlierRun(run, folder) for folder, run in newest.items() if (folder / RECORDS).is_file()
    ]
    return earliers[:_MOST_SEARCHED]


def derive_run_folder(run_id: str, how: str) -> Path:
    """Return the folder of a run's files; ``how``: its options in JSON."""
    chosen = json.loads(how).get("folder")
    return Path(chosen) if chosen else run_folder(run_id).resolve()
