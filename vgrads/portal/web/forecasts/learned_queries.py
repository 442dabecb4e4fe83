"""Queries of queues that are asked again and again: opened once while history and state last."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vgrads.portal.jobs.learned_states import LearnedStates
from vgrads.vgrid.catalog import Queue

if TYPE_CHECKING:
    from vgrads.api.queues.queries import QueueQuery
    from vgrads.qbets.state_forecast import StateForecast
    from vgrads.traces.log_queue import LogQueue

_MOST = 64  # queues; the columns of a long history take 10 ms to select, and megabytes


class LearnedQueries:
    """Queries by learned states, or by past waits until these are learned."""

    def __init__(self, learned: LearnedStates) -> None:
        self._learned = learned
        self._queries: OrderedDict[
            tuple[str, int, LogQueue], tuple[StateForecast | None, QueueQuery]
        ] = OrderedDict()

    def of(self, queue: Queue) -> QueueQuery:
        """Return the query of a queue that has a history."""
        # imported late: the service starts without forecasts
        from vgrads.api.queues.histories import AS_QUESTION
        from vgrads.api.queues.queries import ask_log

        path, log_queue = str(queue.history), queue.of_log
        learned = self._learned.find(path, log_queue)
        key = (path, Path(path).stat().st_mtime_ns, log_queue)
        entry = self._queries.get(key)
        if entry is None or entry[0] is not learned:
            query = ask_log(path, log_queue, replace(AS_QUESTION, method="qbets"), learned)
            entry = self._queries[key] = (learned, query)
            while len(self._queries) > _MOST:
                self._queries.popitem(last=False)
        return entry[1]
