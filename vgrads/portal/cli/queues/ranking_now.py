"""The ranking of queues from their histories, recorded as issued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vgrads.api.queues.forecasts import WITHIN_S, HowToAnswer
from vgrads.api.queues.histories import AS_QUESTION
from vgrads.api.queues.queries import QueueQuery, ask_log
from vgrads.api.queues.ranking import QUANTILES, rank_queues
from vgrads.kernel.errors import InputError
from vgrads.portal.cli.terminal import busy, console
from vgrads.portal.records.forecasts.journal import ForecastJournal
from vgrads.portal.records.reading.forecast_scores import warnings_of
from vgrads.portal.records.reading.sites import choose_catalog
from vgrads.vgrid.catalog import Queue, Site

Json = dict[str, Any]


def rank_now(sites: Path | None, procs: int, walltime_s: float) -> Json:
    """Rank all queues. Raise InputError where neither a queue nor a cloud can run such a job."""
    catalog = choose_catalog(sites)
    keys = [(site.name, queue.name) for site in catalog.sites for queue in site.queues]
    how = HowToAnswer(
        quantiles=QUANTILES, within_s=WITHIN_S, warnings=warnings_of(keys), kind="where"
    )
    with busy(console(stderr=True), "learning from the histories of queues") as doing:

        def ask(site: Site, queue: Queue) -> QueueQuery:
            doing(f"learning from the history of {site.name}/{queue.name}")
            return ask_log(str(queue.history), queue.of_log, AS_QUESTION)

        document, result = rank_queues(catalog, ask, (procs, walltime_s), how)
    if not document["queues"] and document["cloud"] is None:
        reasons = "; ".join(
            f"{row['site']}/{row['queue']}: {row['error']}" for row in document["left_out"]
        )
        raise InputError(
            f"no queue and no cloud of these sites can run such a job: {reasons or 'no queues'}",
            where="--procs, --walltime",
        )
    ForecastJournal().append(result.issued)
    return document
