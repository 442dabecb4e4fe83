"""Scores of forecasts, after what was issued and what has started since are taken into account."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.operations.questions import ScoreRequest
from vgrads.portal.cli.options import answer_with
from vgrads.portal.cli.queues.ranking_text import score_text, scores_table
from vgrads.portal.cli.requests import CommandOutput
from vgrads.portal.cli.terminal import busy, console
from vgrads.portal.jobs.forecasts.scoring import ForecastScorer
from vgrads.portal.records.reading import forecast_scores
from vgrads.portal.records.reading.sites import choose_catalog
from vgrads.portal.records.store import Store
from vgrads.vgrid.catalog import Catalog, Site, choose_queue, split_queue_name

Json = dict[str, Any]
_WHOLE = "*"
"""Instead of a queue: all jobs of a file."""


def score_now(request: ScoreRequest, output: CommandOutput) -> int:
    """``vgrads score``."""
    if request.site is None:
        document = score_all(request.sites)
        answer_with(output.as_json, document, lambda: scores_table(document))
    else:
        document = score_queue(request.site, request.queue, request.sites)
        answer_with(output.as_json, document, lambda: score_text(document))
    return 0


def score_all(sites: Path | None) -> Json:
    """Return the scores of all queues and of the promises."""
    with Store() as store:
        _update(store, choose_catalog(sites))
        return forecast_scores.read_all_scores(store.reader)


def score_queue(place: str, queue: str | None, sites: Path | None) -> Json:
    """Return the score of a queue: of a site, ``SITE/QUEUE`` or both words, or of a file, without a
    queue as a whole. Raise InputError where there is neither such a queue nor a record of one."""
    catalog = choose_catalog(sites)
    if Path(place).is_file():
        place, queue = str(Path(place).resolve()), queue or _WHOLE
    elif queue is None:
        place, queue = split_queue_name(place)
        if queue is None:
            queue = choose_queue(_find_site(catalog, place), None, "QUEUE").name
    with Store() as store:
        _update(store, catalog)
        result = forecast_scores.queue_score(store.reader, place, queue)
    if not result["records"]["issued"] and not Path(place).is_file():
        _refuse_unknown(catalog, place, queue)
    return result


def _update(store: Store, catalog: Catalog) -> None:
    scorer = ForecastScorer(store)
    with busy(console(stderr=True), "scoring"):
        scorer.fold()
        scorer.score(catalog)


def _find_site(catalog: Catalog, name: str) -> Site:
    names = {site.name: site for site in catalog.sites}
    if name not in names:
        raise InputError(f"no site '{name}'", where="SITE", fix=f"known: {', '.join(names)}")
    return names[name]


def _refuse_unknown(catalog: Catalog, site: str, queue: str) -> None:
    if choose_queue(_find_site(catalog, site), queue, "QUEUE").history is None:
        raise InputError(
            f"queue '{site}/{queue}' has no history, so nothing was forecast",
            where="QUEUE",
            fix=f"add one: vgrads sites collect {site}",
        )
