"""What a service does with issued forecasts in the background: store, compare, score, warn."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from vgrads.api.queues.forecast_scores import NO_RECORD, QueueRecord
from vgrads.kernel.errors import SiteError
from vgrads.portal.jobs.forecasts.estimates import take_estimates
from vgrads.portal.jobs.forecasts.scoring import ForecastScorer
from vgrads.portal.jobs.learned_states import LearnedStates
from vgrads.portal.records.forecasts.journal import ForecastJournal
from vgrads.portal.records.forecasts.rows import ForecastRecords
from vgrads.portal.records.reading.forecast_scores import (
    QueueKey,
    read_all_scores,
    record_with,
)
from vgrads.portal.records.store import Store
from vgrads.qbets.views import BEST, FULL
from vgrads.vgrid.catalog import Catalog

Json = dict[str, Any]
_LOOK_S = 2.0  # between checks for new forecasts
_SCORE_S = 60.0  # between checks for changed histories
_FRESH_S = 10.0  # a reading of the scores
_FIRST_S = 10.0  # before the first: the service starts to answer
_log = logging.getLogger("vgrads.forecasts")


class ForecastUpkeep:
    """A thread of the service. ``journal``: where its answers are recorded."""

    def __init__(
        self, store: Store, catalog: Callable[[], Catalog], learned: LearnedStates
    ) -> None:
        self._store, self._catalog, self._learned = store, catalog, learned
        self._is_prepared = False
        self.journal = ForecastJournal(store.url)
        self._scores: Json = {}
        self._queues: Mapping[QueueKey, QueueRecord] = {}
        self._loaded_s = -math.inf
        self._scorer, self._records = ForecastScorer(store), ForecastRecords(store.engine)
        self._stopped = threading.Event()
        self._scored_s = time.monotonic() - _SCORE_S + _FIRST_S
        self._thread = threading.Thread(target=self._run, daemon=True, name="forecasts")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop it; what is not stored yet remains in the journal."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def look(self) -> None:
        """Store what was issued, compare it, and score what has started, where that is due."""
        if self._scorer.fold():
            take_estimates(self._records, self._catalog())
        if time.monotonic() - self._scored_s >= _SCORE_S:
            self.score()

    def score(self) -> None:
        """Score what has started, now."""
        self._scored_s = time.monotonic()
        self._scorer.fold()
        self._scorer.score(self._catalog())
        self._load_scores()

    def scores(self) -> Json:
        """Return the scores of all queues of sites and of the promises, a few seconds old at most.
        What was asked at the command line about a file is not for users, who would see its
        path."""
        if time.monotonic() - self._loaded_s > _FRESH_S:
            self._load_scores()
        return self._scores

    def record(self, site: str, queue: str) -> QueueRecord:
        """Return how the answers about a queue have scored, a minute ago at most."""
        return self._queues.get((site, queue), NO_RECORD)

    def _load_scores(self) -> None:
        self._scores, self._loaded_s = (
            read_all_scores(self._store.reader, files=False),
            time.monotonic(),
        )
        self._queues = {
            (site, queue): record_with(self._store.reader, site, queue, entry["warning"])
            for entry in self._scores["queues"]
            for site, queue in [(entry["site"], entry["queue"])]
        }

    def _load_earlier(self) -> bool:
        """Load the scores of before; return True where the database does not answer."""
        try:
            self._load_scores()
        except SiteError as error:
            _log.warning("the scores of forecasts cannot be read; trying again: %s", error)
            return True
        return False

    def prepare(self) -> None:
        """Prepare for many questions, once a queue is learned; does nothing before."""
        queues = [q for s in self._catalog().sites for q in s.queues if q.history is not None]
        places = [
            (str(queue.history), queue.of_log, view) for queue in queues for view in (BEST, FULL)
        ]
        for place in places:
            if self._is_prepared or not self._learned.settled(*place):
                continue
            learned = self._learned.find(*place)
            if learned is not None:
                # imported late: nothing is learned yet when the service starts
                from vgrads.operations import forecast_lists

                forecast_lists.prepare(learned)
                self._is_prepared = True

    def _run(self) -> None:
        lost = self._load_earlier()
        while not self._stopped.is_set():
            try:
                self.look()
                self.prepare()
                lost = False
            except SiteError as error:
                if not lost:
                    _log.warning("forecasts cannot be stored; trying again: %s", error)
                lost = True
            except Exception:
                _log.exception("forecasts cannot be scored; trying again")
            self._stopped.wait(_LOOK_S)
