"""Records of the answers that commands give about queues."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from vgrads.api.queues.issuing import ForecastTarget, Statement, issue_answer
from vgrads.api.queues.queries import QueueQuery
from vgrads.kernel.errors import VgradsError
from vgrads.portal.records.forecasts.journal import ForecastJournal
from vgrads.portal.records.reading.reader import open_reader
from vgrads.traces.log_queue import ALL_QUEUES


def record_answer(
    query: QueueQuery,
    source: tuple[Path, str | None],
    shape: tuple[int, float],
    stated: Statement,
    live: bool = False,
) -> Callable[[], None]:
    """Record an answer about HISTORY and its queue. Return what remains to be done once the answer
    is printed: at a live Slurm site, to take the site's own estimate."""
    with suppress(OSError, VgradsError):  # an answer does not depend on its record
        target = replace(
            _target(*source, live), retrospective=not live and query.at_s < query.log.end_s
        )
        forecast = issue_answer(query, target, shape, stated)
        ForecastJournal().append([forecast])
        if live:
            from vgrads.portal.cli.queues.estimate_now import take_estimate  # noqa: PLC0415 late: needs the database

            return partial(take_estimate, forecast)
    return lambda: None


def _target(history: Path, queue: str | None, live: bool) -> ForecastTarget:
    if history.is_file():
        path = str(history.resolve())
        return ForecastTarget(site=path, queue=queue or ALL_QUEUES, history=path)
    with open_reader() as reader:
        rows = reader.rows("SELECT document FROM site WHERE name = :name", name=history.parts[0])
    document = json.loads(rows[0][0]) if rows else {}
    names = [entry["name"] for entry in document.get("queue", ())]
    name = history.parts[1] if len(history.parts) == 2 else names[0]
    is_real = document.get("driver", "simulated") not in ("simulated", "local")
    return ForecastTarget(site=history.parts[0], queue=name, is_live=live or is_real)
