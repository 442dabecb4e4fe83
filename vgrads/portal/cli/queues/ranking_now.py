"""The ranking of queues from their histories, recorded as issued."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vgrads.api.queues.history_files import Instant
from vgrads.api.queues.queries import HistorySource, QueueQuery
from vgrads.kernel.errors import InputError
from vgrads.operations.forecast_lists import WITHIN_S, HowToAnswer
from vgrads.operations.queue_questions import ForecastContext, learn_now
from vgrads.operations.ranking import QUANTILES, rank_queues
from vgrads.portal.cli.queues.asking import record_issued
from vgrads.portal.cli.terminal import busy, console
from vgrads.portal.records.reading.forecast_scores import warnings_of
from vgrads.portal.records.reading.sites import choose_catalog
from vgrads.qbets.predictor import Settings

Json = dict[str, Any]


def rank_now(sites: Path | None, procs: int, walltime_s: float, live: bool) -> Json:
    """Rank all queues. Raise InputError where neither a queue nor a cloud can run such a job."""
    catalog = choose_catalog(sites)
    keys = [(site.name, queue.name) for site in catalog.sites for queue in site.queues]
    how = HowToAnswer(
        quantiles=QUANTILES, within_s=WITHIN_S, warnings=warnings_of(keys), kind="where", live=live
    )
    with busy(console(stderr=True), "learning from the histories of queues") as doing:
        context = ForecastContext(learn=_learner(doing))
        document, result = rank_queues(catalog, context, (procs, walltime_s), how)
    if not document["queues"] and document["cloud"] is None:
        reasons = "; ".join(
            f"{row['site']}/{row['queue']}: {row['error']}" for row in document["left_out"]
        )
        raise InputError(
            f"no queue and no cloud of these sites can run such a job: {reasons or 'no queues'}",
            where="--procs, --walltime",
        )
    record_issued(result.issued)
    return document


def _learner(notify: Callable[[str], None]) -> Callable[..., tuple[QueueQuery, bool]]:
    def learn(source: HistorySource, at: Instant, settings: Settings) -> tuple[QueueQuery, bool]:
        notify(f"learning from {source.file.name}")
        return learn_now(source, at, settings)

    return learn
