"""Outcomes of issued forecasts, as the histories of their queues report them."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vgrads.api.queues.history_files import open_history
from vgrads.api.queues.issued import PATIENCE_S
from vgrads.kernel.errors import VgradsError
from vgrads.portal.records.collected import COLLECTED
from vgrads.portal.records.forecasts.journal import ForecastJournal
from vgrads.portal.records.forecasts.rows import ForecastRecords, stated_waits
from vgrads.portal.records.reading.sites import replace_by_uploads
from vgrads.portal.records.site_records import SiteRecords
from vgrads.portal.records.store import Store
from vgrads.traces.log_queue import ALL_QUEUES, LogQueue
from vgrads.vgrid.catalog import Catalog

if TYPE_CHECKING:
    from vgrads.traces.records import JobLog

_log = logging.getLogger("vgrads.forecasts")


@dataclass(frozen=True, slots=True)
class _HistoryFile:
    """A history, its queue, and the state of its file; ``until_s``: the end of its collection, if
    it was collected, in seconds since 1970."""

    path: str
    queue: LogQueue
    changed_ns: int
    size: int
    until_s: float | None

    def read(self) -> JobLog:
        """Return the jobs of the queue, with those that wait in it. What was collected is current
        until then, also where nothing has changed since: a queue may stand still."""
        whole = open_history(self.path)
        waiting = whole.waiting_in(self.queue)
        if waiting is not None and self.until_s is not None:
            taken_s = max(waiting.taken_s, self.until_s - whole.unix_start_s)
            waiting = replace(waiting, taken_s=taken_s)
        return replace(whole.only_queue(self.queue), waiting=waiting)


class ForecastScorer:
    """Scores the forecasts of a database. A history is read again only when its file has
    changed."""

    def __init__(self, store: Store) -> None:
        self._store, self._records = store, ForecastRecords(store.engine)
        self._journal = ForecastJournal(store.url)
        self._scored: dict[tuple[str, str, str], _HistoryFile] = {}

    def fold(self) -> int:
        """Store the forecasts that were issued since the last call."""
        return 0 if self._journal.is_empty else self._records.fold(self._journal)

    def score(self, catalog: Catalog) -> int:
        """Score the forecasts of all queues whose history has changed; return how many have a new
        score."""
        current, count = replace_by_uploads(catalog, self._store.reader), 0
        collected = SiteRecords(self._store.engine)
        for key in self._records.queues():
            file = _find_file(current, *key)
            if file is not None and Path(file.path).name.endswith(COLLECTED):
                file = replace(file, until_s=collected.collected_until(key[0]))
            if file is None or self._scored.get(key) == file:
                continue
            try:
                log = file.read()
            except (VgradsError, OSError) as error:
                _log.warning("forecasts of %s/%s are not scored: %s", key[0], key[1], error)
                continue
            count += score_queue(self._records, key[0], key[1], log)
            self._scored[key] = file
        return count


def score_queue(records: ForecastRecords, site: str, queue: str, log: JobLog) -> int:
    """Score the forecasts of a queue by the starts in its history, and by the jobs that wait in it;
    return how many have a new score."""
    # imported late: the service starts without histories
    from vgrads.api.queues.start_matching import OpenForecast, match_starts

    if not (len(log) or log.waiting):
        return 0
    end_s = log.unix_start_s + log.end_s
    rows = records.matchable(site, queue, end_s - PATIENCE_S)
    waiting = [
        OpenForecast(
            id=row.id,
            submit_s=row.instant_s + row.submit_in_s,
            procs=row.procs,
            walltime_s=row.walltime_s,
            is_ahead=row.submit_in_s > 0,
            longest_s=max(stated_waits(row), default=math.inf),
        )
        for row in rows
    ]
    count = records.put_waits(rows, match_starts(log, waiting))
    records.close(site, queue, end_s)
    return count


def _find_file(catalog: Catalog, site: str, queue: str, history: str) -> _HistoryFile | None:
    """Return the current history of a queue; None where there is none any more."""
    path = history
    log_queue: LogQueue = None if queue == ALL_QUEUES else queue
    if not history:
        entries = [q for s in catalog.sites if s.name == site for q in s.queues if q.name == queue]
        if not entries or entries[0].history is None:
            return None
        path, log_queue = entries[0].history, entries[0].of_log
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return _HistoryFile(path, log_queue, stat.st_mtime_ns, stat.st_size, None)
