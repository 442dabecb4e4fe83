"""Removal of old records: terminal runs, sets, forecasts, old jobs of histories; expired tokens
and keys always."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import delete, text
from sqlmodel import Session, SQLModel, col, select

from vgrads.api.config import run_folder, set_folder
from vgrads.portal.records.collected import COLLECTED
from vgrads.portal.records.forecasts.rows import ForecastRecords
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.sets import refuse_unended_set
from vgrads.portal.records.site_records import SiteRecords
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import (
    AcquisitionRow,
    ArchiveRow,
    AuditRow,
    EventRow,
    GridRow,
    HistoryRow,
    KeyRow,
    LeaseRow,
    MessageRow,
    PlanRow,
    RunRow,
    SetRow,
    TokenRow,
    WorkRow,
)

_KEYS_S = 7 * 86400.0
_MANY = 10_000  # forecasts whose space is worth a rewrite of the database


def prune(store: Store, keep_s: float | None, history_keep_s: float | None) -> dict[str, int]:
    """Remove sets that ended ``keep_s`` ago with their runs, forecasts that were issued before, and
    jobs of histories that are older; return how many."""
    now = time.time()
    with Session(store.engine) as session:
        expired = (
            col(TokenRow.expires_s) < now,
            col(TokenRow.created_s) > 0,
        )  # except the mark that a token existed
        session.execute(delete(TokenRow).where(*expired))
        session.execute(delete(KeyRow).where(col(KeyRow.created_s) < now - _KEYS_S))
        sets = _select_old_sets(session, now - keep_s) if keep_s is not None else []
        folders = [folder for set_id in sets for folder in _remove_set(session, set_id)]
        if keep_s is not None:
            session.execute(delete(AuditRow).where(col(AuditRow.at_s) < now - keep_s))
            session.execute(
                delete(GridRow).where(col(GridRow.created) < _convert_to_instant(now - keep_s))
            )
        session.commit()
    for folder in folders:  # the rows are gone: remains of a folder are unreferenced
        shutil.rmtree(folder, ignore_errors=True)
    forecasts = 0
    if keep_s is not None:
        forecasts = ForecastRecords(store.engine).remove_before(now - keep_s)
    records, jobs = SiteRecords(store.engine), 0
    if history_keep_s is not None:
        jobs = sum(_trim(records, s, q, now - history_keep_s) for s, q in records.histories())
    if sets or jobs or forecasts >= _MANY:
        _shrink(store)
    return {"sets": len(sets), "jobs": jobs, "forecasts": forecasts}


def _shrink(store: Store) -> None:
    """Return free space to the file system; PostgreSQL does so by itself."""
    if store.engine.dialect.name == "sqlite":
        # SQLite does not permit VACUUM in a transaction
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM"))
            connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)"))


def _convert_to_instant(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)


def _select_old_sets(session: Session, before_s: float) -> list[str]:
    """Return sets from before an instant without active runs, or runs started since."""
    before = _convert_to_instant(before_s)
    busy = select(RunRow.set_id).where(
        col(RunRow.state).in_(GOES_ON) | (col(RunRow.started) >= before)
    )
    query = select(SetRow.id).where(col(SetRow.created) < before, col(SetRow.id).not_in(busy))
    return list(session.exec(query))


def _remove_set(session: Session, set_id: str) -> list[Path]:
    """Remove a set with its runs; return their folders in vgrads' own home."""
    runs = list(session.exec(select(RunRow.id).where(RunRow.set_id == set_id)))
    # rows that refer to runs are removed before the runs, and these before the set
    session.execute(delete(WorkRow).where(col(WorkRow.set_id) == set_id))
    of_runs: tuple[type[SQLModel], ...] = (
        EventRow,
        ArchiveRow,
        LeaseRow,
        AcquisitionRow,
        MessageRow,
    )
    for table in of_runs:
        session.execute(delete(table).where(table.run_id.in_(runs)))  # type: ignore[attr-defined]
    session.execute(delete(RunRow).where(col(RunRow.set_id) == set_id))
    session.execute(delete(PlanRow).where(col(PlanRow.set_id) == set_id))
    session.execute(delete(SetRow).where(col(SetRow.id) == set_id))
    return [set_folder(set_id), *map(run_folder, runs)]


def remove_ended_set(store: Store, set_id: str) -> None:
    """Remove a set with its plan and runs, as :func:`prune` does, but not the folders of its
    results. Its idempotency key may be used again. Raise InapplicableError while it is planned or a
    run of it has not ended."""
    with Session(store.engine) as session:
        refuse_unended_set(session, set_id)
        session.execute(delete(KeyRow).where(col(KeyRow.answer).contains(set_id)))
        _remove_set(session, set_id)
        session.commit()


def _trim(records: SiteRecords, site: str, queue: str, before_unix_s: float) -> int:
    """Remove the jobs of a history that were submitted before an instant; the remaining ones become
    an SWF log."""
    row = records.history(site, queue)
    if row is None or row.file == COLLECTED:  # the next collection needs all of its lines
        return 0
    # imported late: few services remove old jobs
    from vgrads.traces.history import read_history
    from vgrads.traces.swf import write_swf

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / row.file
        path.write_bytes(row.body)
        log = read_history(path)
        old = log.unix_start_s + log.submit_s < before_unix_s
        if not old.any() or old.all():  # nothing to do, or no data would remain for predictions
            return 0
        body = gzip.compress(write_swf(log.select(~old)).encode())
    name = f"{row.file.partition('.')[0]}.swf.gz"
    records.put(
        [HistoryRow(site=site, queue=queue, file=name, changed=datetime.now(UTC), body=body)]
    )
    return int(old.sum())
