"""Scores of forecasts, after what was issued and what has started since are taken into account."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.portal.cli.terminal import busy, console
from vgrads.portal.jobs.forecasts.scoring import ForecastScorer
from vgrads.portal.records.reading import forecast_scores
from vgrads.portal.records.reading.sites import choose_catalog
from vgrads.portal.records.store import Store
from vgrads.vgrid.catalog import Catalog

Json = dict[str, Any]


def score_all(sites: Path | None) -> Json:
    """Return the scores of all queues and of the promises."""
    with Store() as store:
        _update(store, choose_catalog(sites))
        return forecast_scores.all_scores(store.reader)


def score_queue(site: str, queue: str, sites: Path | None) -> Json:
    """Return the score of a queue. Raise InputError where there is neither such a queue nor a
    record of one."""
    catalog, name = (
        choose_catalog(sites),
        str(Path(site).resolve()) if Path(site).is_file() else site,
    )
    with Store() as store:
        _update(store, catalog)
        result = forecast_scores.queue_score(store.reader, name, queue)
    if not result["records"]["issued"]:
        _refuse_unknown(catalog, site, queue)
    return result


def _update(store: Store, catalog: Catalog) -> None:
    scorer = ForecastScorer(store)
    with busy(console(stderr=True), "scoring"):
        scorer.fold()
        scorer.score(catalog)


def _refuse_unknown(catalog: Catalog, site: str, queue: str) -> None:
    if Path(site).is_file():
        return
    names = {entry.name: [q.name for q in entry.queues] for entry in catalog.sites}
    if site not in names:
        raise InputError(f"no site '{site}'", where="SITE", fix=f"known: {', '.join(names)}")
    if queue not in names[site]:
        has = ", ".join(names[site]) or "none"
        raise InputError(
            f"no queue '{queue}' at site '{site}'", where="QUEUE", fix=f"it has: {has}"
        )
    entry = next(q for q in catalog.site(site).queues if q.name == queue)
    if entry.history is None:
        raise InputError(
            f"queue '{site}/{queue}' has no history, so nothing was forecast",
            where="QUEUE",
            fix=f"add one: vgrads sites collect {site}",
        )
