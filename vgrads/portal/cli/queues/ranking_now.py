"""The ranking of queues from their histories, recorded as issued."""

from __future__ import annotations

from collections.abc import Callable

from vgrads.api.queues.forecast_scores import NO_RECORD
from vgrads.api.queues.history_files import Instant
from vgrads.api.queues.queries import HistorySource, QueueQuery
from vgrads.operations.questions import RankingRequest
from vgrads.operations.queue_questions import ForecastContext, learn_now
from vgrads.operations.ranking import rank_queues
from vgrads.portal.cli.options import answer_with
from vgrads.portal.cli.queues.asking import record_issued
from vgrads.portal.cli.queues.ranking_text import ranking_table
from vgrads.portal.cli.requests import CommandOutput
from vgrads.portal.cli.terminal import busy, console
from vgrads.portal.records.reading.forecast_scores import read_records
from vgrads.portal.records.reading.sites import choose_catalog
from vgrads.qbets.predictor import Settings


def rank_now(request: RankingRequest, output: CommandOutput) -> int:
    """``vgrads where``."""
    catalog = choose_catalog(request.sites)
    records = read_records(
        (site.name, queue.name) for site in catalog.sites for queue in site.queues
    )
    doing_what = busy(console(stderr=True), "learning from the histories of queues")
    with doing_what as doing:
        context = ForecastContext(
            learn=_make_learner(doing),
            record=lambda site, queue: records.get((site, queue), NO_RECORD),
        )
        document, result = rank_queues(request, catalog, context)
    record_issued(result.issued)
    answer_with(output.as_json, document, lambda: ranking_table(document))
    return 0


def _make_learner(notify: Callable[[str], None]) -> Callable[..., tuple[QueueQuery, None]]:
    def learn(source: HistorySource, at: Instant, settings: Settings) -> tuple[QueueQuery, None]:
        notify(f"learning from the history {source.file.name}")
        return learn_now(source, at, settings)

    return learn
