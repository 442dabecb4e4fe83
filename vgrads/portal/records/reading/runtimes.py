"""Learned run times, for planning: most plans have none, and then the tables are not loaded."""

from __future__ import annotations

from vgrads.api.plans.runtimes import NOTHING, RunTimes
from vgrads.kernel.errors import SiteError
from vgrads.portal.records.reader import RecordReader
from vgrads.portal.records.reading.opening import open_reader

_TABLES = ("task_record", "machine_score", "learned")


def read_past_run_times() -> RunTimes:
    """Return the learned run times; nothing where there is no database."""
    try:
        with open_reader() as reader:
            if not any(_is_filled(reader, table) for table in _TABLES):
                return NOTHING
        # imported late: it takes longer than most plans
        from vgrads.portal.records.runtimes import RunTimeRecords
        from vgrads.portal.records.store import Store

        with Store() as store:
            return RunTimeRecords(store.engine).learned()
    except (SiteError, OSError):
        return NOTHING


def _is_filled(reader: RecordReader, table: str) -> bool:
    return bool(reader.rows(f"SELECT 1 FROM {table} LIMIT 1"))
