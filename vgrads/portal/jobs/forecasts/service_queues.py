"""The queues of a service for questions about them: learned in the background, listed by their
sites in the background, and both used again while they last."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgrads.kernel.errors import InputError, VgradsError
from vgrads.portal.jobs.learned_states import LearnedStates
from vgrads.qbets.views import BEST, FULL
from vgrads.vgrid.catalog import Catalog, Site

if TYPE_CHECKING:
    from vgrads.api.queues.history_files import Instant
    from vgrads.api.queues.live_queue import QueueView
    from vgrads.api.queues.queries import HistorySource, QueueQuery
    from vgrads.api.queues.site_snapshots import SiteSnapshot
    from vgrads.operations.queue_questions import ForecastContext, Record
    from vgrads.qbets.predictor import Settings
    from vgrads.qbets.state_forecast import StateForecast
    from vgrads.traces.log_queue import LogQueue

_MOST = 64  # queues; the columns of a long history take 10 ms to select, and megabytes
_LOOK_S = 2.0  # between checks whether a site may be asked again
_AGE_STEP_S = 60.0  # in which the age of a queue that its site does not list counts
_log = logging.getLogger("vgrads.sites")


class _Recent:
    """The newest values of a cache by key, each valid for a state. Thread-safe."""

    def __init__(self) -> None:
        self._values: OrderedDict[object, tuple[object, Any]] = OrderedDict()

    def get(self, key: object, state: object, make: Callable[[], Any]) -> Any:
        """Return the value of a key; made where there is none for this state."""
        entry = self._values.get(key)
        if entry is None or entry[0] != state:
            entry = self._values[key] = (state, make())
        with suppress(KeyError):  # another thread may have removed it
            self._values.move_to_end(key)
            while len(self._values) > _MOST:
                self._values.popitem(last=False)
        return entry[1]


class ServiceQueues:
    """What a service knows of its queues: :meth:`context` is where questions are asked."""

    def __init__(
        self, catalog: Callable[[], Catalog], learned: LearnedStates, record: Record
    ) -> None:
        self._catalog, self._learned, self._record = catalog, learned, record
        self._queries, self._present = _Recent(), _Recent()
        self._former: dict[tuple[str, LogQueue, str], StateForecast] = {}
        self._snapshots: dict[str, tuple[object, SiteSnapshot | None]] = {}
        self._asking: dict[str, threading.Thread] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="queues of sites")

    def start(self) -> None:
        """List the queues of real sites from now on, as often as these permit."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; a site that is being asked is not waited for."""
        self._stopped.set()

    def warm_up(self) -> None:
        """Learn from all histories in advance, those of real sites with all jobs; unreadable ones
        are reported when they are queried."""
        # imported late: this runs while the service answers
        from vgrads.api.wiring import is_batch_system

        for site in self._catalog().sites:
            for queue in site.queues:
                with suppress(VgradsError):
                    if queue.history is not None and not self._stopped.is_set():
                        view = FULL if is_batch_system(site) else BEST
                        self._learned.find(queue.history, queue.of_log, view)

    def context(self, catalog: Catalog | None = None, owner: str = "") -> ForecastContext:
        """Return where a user's questions are asked: over all sites, or those of a catalogue."""
        # imported late: the service starts without forecasts
        from vgrads.operations.queue_questions import ForecastContext

        chosen = self._catalog if catalog is None else lambda: catalog
        return ForecastContext(
            catalog=chosen,
            learn=self.learn,
            snapshot=self.snapshot,
            present=self.present,
            record=self._record,
            owner=owner,
        )

    def learn(
        self,
        source: HistorySource,
        at: Instant,  # noqa: ARG002 always now
        settings: Settings,
    ) -> tuple[QueueQuery, str | None]:
        """Return what a history teaches: its state if that is learned, otherwise the state before
        the history has grown, otherwise past waits; and the reason where that is not the state."""
        try:
            return self._learn(source, settings)
        except InputError as error:  # the path of the file is not for readers
            raise InputError(
                f"its history cannot be used: {error.what}", where="history"
            ) from error

    def _learn(self, source: HistorySource, settings: Settings) -> tuple[QueueQuery, str | None]:
        # imported late, as above
        from vgrads.api.queues.histories import history_identity
        from vgrads.api.queues.history_files import check_there, open_history
        from vgrads.api.queues.queries import ask_log
        from vgrads.operations.queue_questions import GROWING, LEARNING

        path, learned, reason = str(source.file), None, None
        check_there(source.file)
        if settings.looks_at_state:
            place = (path, source.queue, settings.view)
            key = (history_identity(open_history(path)), source.queue, settings.view)
            settled = self._learned.settled(*place)  # before it is read: it may settle meanwhile
            learned = self._learned.find(*place)
            if learned is not None:
                self._former[key] = learned
            elif settled:
                reason = self._learned.problem(*place) or None
            else:  # of the same history before it has grown
                learned = self._former.get(key)
                reason = LEARNING if learned is None else GROWING
            settings = replace(settings, method="qbets")
        state = (Path(path).stat().st_mtime_ns, id(learned))
        query: QueueQuery = self._queries.get(
            (path, source.queue, settings),
            state,
            lambda: ask_log(path, source.queue, settings, learned),
        )
        return query, reason

    def snapshot(self, site: Site) -> SiteSnapshot | None:
        """Return the queue of a site as anybody listed it last; never asks the site."""
        # imported late, as above
        from vgrads.api.queues.site_snapshots import derive_snapshot_file, read_snapshot

        changed: object = None
        with suppress(OSError):
            changed = derive_snapshot_file(site).stat().st_mtime_ns
        entry = self._snapshots.get(site.name)
        if entry is None or entry[0] != changed:
            stored = read_snapshot(site)
            if stored is None and entry is not None:  # the disk may be full: that of before
                stored = entry[1]
            entry = self._snapshots[site.name] = (changed, stored)
        return entry[1]

    def present(
        self, query: QueueQuery, queue: str, snapshot: SiteSnapshot | None
    ) -> tuple[QueueQuery, QueueView]:
        """Return the query of a queue as its site listed it; made once for a listing."""
        # imported late, as above
        from vgrads.operations.queue_questions import add_present

        taken_s = 0.0 if snapshot is None else snapshot.taken_unix_s
        problem = None if snapshot is None else snapshot.problem
        result: tuple[QueueQuery, QueueView, QueueQuery] = self._present.get(
            (id(query), queue),  # the value has the query, so that no other gets its number
            (taken_s, problem, int((time.time() - taken_s) / _AGE_STEP_S)),
            lambda: (*add_present(query, queue, snapshot), query),
        )
        return result[:2]

    def _run(self) -> None:
        # imported late, as above
        from vgrads.api.queues.site_snapshots import may_list
        from vgrads.api.wiring import is_batch_system

        while not self._stopped.wait(_LOOK_S):
            for site in self._catalog().sites:
                if not is_batch_system(site):
                    continue
                busy = self._asking.get(site.name)
                if not (busy and busy.is_alive()) and may_list(site, self.snapshot(site)):
                    thread = threading.Thread(target=self._ask, args=(site,), daemon=True)
                    self._asking[site.name] = thread
                    thread.start()

    def _ask(self, site: Site) -> None:
        # imported late, as above
        from vgrads.api.queues.site_snapshots import derive_snapshot_file, refresh_snapshot

        try:
            snapshot = refresh_snapshot(site)
        except Exception:
            _log.exception("the queue of site '%s' cannot be listed; trying again", site.name)
            return
        changed: object = None
        with suppress(OSError):
            changed = derive_snapshot_file(site).stat().st_mtime_ns
        self._snapshots[site.name] = (changed, snapshot)
