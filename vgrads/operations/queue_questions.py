"""The queue of a question: which history and which present count, and whether its job can ever
start there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vgrads.api.queues.forecast_scores import NO_RECORD, QueueRecord
from vgrads.api.queues.history_files import Instant
from vgrads.api.queues.issuing import ForecastTarget
from vgrads.api.queues.live_queue import (
    QueueView,
    choose_view,
    learn_present,
    learned_unix_s,
    make_present_forecast,
)
from vgrads.api.queues.queries import HistorySource, QueueQuery, ask_queue
from vgrads.api.queues.site_snapshots import SiteSnapshot, refresh_snapshot
from vgrads.api.wiring import is_real
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, format_duration
from vgrads.operations.questions import QuestionAtPlace
from vgrads.qbets.predictor import Settings
from vgrads.qbets.views import BEST
from vgrads.traces.log_queue import ALL_QUEUES
from vgrads.traces.reading_options import DETECTED
from vgrads.vgrid.catalog import Catalog, Queue, Site
from vgrads.vgrid.closures import Availability, ClosedForecast, find_availability

Json = dict[str, Any]
LEARNING = "the state of the queue is being learned and will answer soon; past waits answer now"
GROWING = "the newest jobs of the history are being learned; what was learned before them answers"
_USER_NAMED = (
    "the history alone answers, because a user is named, whom its site may name differently"
)
Learn = Callable[[HistorySource, Instant, Settings], tuple[QueueQuery, str | None]]
"""Returns what a history teaches, and why that is not its state of now; None if it is."""
Present = Callable[[QueueQuery, str, SiteSnapshot | None], tuple[QueueQuery, QueueView]]
"""Returns the query of a real queue, named, as its site listed it, and what was seen."""
Record = Callable[[str, str], QueueRecord]
"""Returns how the answers about a queue, by site and name, have scored."""


def choose_settings(question: QuestionAtPlace, quantile: float, view: str) -> Settings:
    """Return how the queue of a question is learned."""
    settings = Settings(
        method=question.method,
        confidence=question.confidence,
        arrays=question.arrays,
        knows_user=question.user is not None,
        view=view,
    )
    return settings.for_bounds(quantile)


def describe_no_record(_site: str, _queue: str) -> QueueRecord:
    """Return that nothing is recorded: there is no database."""
    return NO_RECORD


def learn_now(source: HistorySource, at: Instant, settings: Settings) -> tuple[QueueQuery, None]:
    """Learn from a history, once for a file's content."""
    return ask_queue(source, at, settings), None


def add_present(
    query: QueueQuery, queue: str, snapshot: SiteSnapshot | None
) -> tuple[QueueQuery, QueueView]:
    """Return the query of a real queue as its site listed it last, and what was seen."""
    forecast, view = make_present_forecast(query.forecast, query.log, queue, snapshot)
    if view.source != "site":
        return replace(query, forecast=forecast), view
    at_s = view.as_of_unix_s - query.log.unix_start_s
    return replace(query, at_s=at_s, forecast=forecast), view


@dataclass(frozen=True, kw_only=True)
class ForecastContext:
    """Where questions are asked: the sites, how histories are learned and sites list their queues,
    how answers have scored, who asks."""

    catalog: Callable[[], Catalog | None] = lambda: None
    learn: Learn = learn_now
    snapshot: Callable[[Site], SiteSnapshot | None] = refresh_snapshot
    present: Present = add_present
    record: Record = describe_no_record
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """The widest and longest job that can ever start; ``place``: where, with a verb."""

    place: str
    procs: int
    walltime_s: float = math.inf

    def check(self, procs: int, walltime_s: float) -> None:
        """Raise InputError, with the field, for a job that can never start."""
        if procs > self.procs:
            raise InputError(
                f"{format_count(procs, 'processor', 'are')} more than {self.place} ({self.procs})",
                where="procs",
            )
        if walltime_s > self.walltime_s:
            requested, longest = map(format_duration, (walltime_s, self.walltime_s))
            raise InputError(
                f"a requested time of {requested} is more than {self.place} ({longest})",
                where="walltime_s",
            )


def find_limits(site: Site, queue: Queue, snapshot: SiteSnapshot | None) -> JobLimits:
    """Return the limits of a queue: the stricter of what the site file and the site itself
    state. How wide the jobs of its history were does not matter."""
    stated = snapshot.limits_of(queue.name) if snapshot is not None else None
    procs, walltime_s = [queue.max_procs, site.procs], [queue.max_walltime_s]
    if stated is not None and stated.max_procs is not None:
        procs.append(stated.max_procs)
    if stated is not None and stated.max_walltime_s is not None:
        walltime_s.append(stated.max_walltime_s)
    place = f"'{site.name}/{queue.name}' permits"
    return JobLimits(place=place, procs=min(procs), walltime_s=min(walltime_s))


@dataclass(frozen=True, kw_only=True)
class OpenQueue:
    """The queue of a question, learned. ``reason``: why another method answers than the one that
    was requested; None if it does not. ``record``: how its answers have scored; of answers about
    the past nothing."""

    query: QueueQuery
    view: QueueView
    target: ForecastTarget
    limits: JobLimits
    reason: str | None = None
    record: QueueRecord = NO_RECORD


def find_queue(catalog: Catalog, site_name: str, name: str) -> tuple[Site, Queue]:
    """Return a queue with a history. Raise InputError, with the field, for any other."""
    site = next((s for s in catalog.sites if s.name == site_name), None)
    if site is None:
        choices = ", ".join(s.name for s in catalog.sites)
        raise InputError(f"no site '{site_name}'", where="site", fix=f"choose one of {choices}")
    names = ", ".join(q.name for q in site.queues) or "none"
    if "," in name:
        raise InputError(
            f"'{name}' names several queues", where="queue", fix="ask for each of them"
        )
    queue = next((q for q in site.queues if q.name == name), None)
    if queue is None:
        raise InputError(
            f"no queue '{name}' at site '{site_name}'", where="queue", fix=f"it has: {names}"
        )
    if queue.history is None:
        raise InputError(
            f"queue '{site_name}/{name}' has no history",
            where="queue",
            fix="add one: vgrads sites collect, or POST /v1/sites/{site}/history",
        )
    return site, queue


def open_queue(
    question: QuestionAtPlace, context: ForecastContext, quantile: float = 0.95
) -> OpenQueue:
    """Return what answers a question. Raise InputError where there is no such queue, or its job can
    never start there."""
    if question.history is not None:
        return _open_file(question, question.history, context, quantile)
    catalog = context.catalog()
    if catalog is None:
        raise InputError(f"no site '{question.site}'", where="site")
    site, queue = find_queue(catalog, question.site, question.queue)
    # what is listed now does not concern an answer about the past
    is_live = is_real(site) and question.live and question.at is None and question.user is None
    snapshot = context.snapshot(site) if is_live else None
    limits = find_limits(site, queue, snapshot)
    limits.check(question.procs, question.walltime_s)
    source = HistorySource(
        file=Path(str(queue.history)),
        queue=queue.of_log,
        reading=question.reading or DETECTED,
        user=question.user,
    )

    def learn(view: str) -> tuple[QueueQuery, str | None]:
        return context.learn(source, question.at, choose_settings(question, quantile, view))

    if is_live and question.method == "state":
        query, reason = learn_present(learn, snapshot, lambda learned: _learned_unix_s(learned[0]))
        query, view = context.present(query, queue.name, snapshot)
    else:
        query, reason = learn(BEST)
        view = choose_view(query.log, query.at_s, query.forecast)
        if is_real(site) and question.live and question.user is not None:
            view = replace(view, reason=_USER_NAMED)
    query = replace(query, availability=_find_availability(site, queue, question, query, snapshot))
    target = ForecastTarget(
        site=site.name,
        queue=queue.name,
        owner=context.owner,
        is_live=is_real(site) and question.at is None,
        retrospective=question.at is not None and query.at_s < query.log.end_s,
    )
    record = _record_of(target, context)
    return OpenQueue(
        query=query, view=view, target=target, limits=limits, reason=reason, record=record
    )


def _record_of(target: ForecastTarget, context: ForecastContext) -> QueueRecord:
    return NO_RECORD if target.retrospective else context.record(target.site, target.queue)


def _learned_unix_s(query: QueueQuery) -> float:
    return learned_unix_s(query.forecast, query.log)


def _find_availability(
    site: Site,
    queue: Queue,
    question: QuestionAtPlace,
    query: QueueQuery,
    snapshot: SiteSnapshot | None,
) -> Availability:
    """Return the closures of a queue from the instant of a question on."""
    now_s = time.time()
    if question.at is not None:
        now_s = query.log.unix_start_s + query.at_s
    reported = {} if snapshot is None else {site.name: snapshot.closures}
    return find_availability(site, queue.name, now_s, reported)


def explain_closure(query: QueueQuery, shape: tuple[int, float], probability: float) -> str | None:
    """Say which closure moves the bound of a shape, and which request it would not move; None if
    none does."""
    starts = query.starts
    if not isinstance(starts, ClosedForecast):
        return None
    return starts.explanation(*shape, probability, query.forecast.settings.confidence)


def _open_file(
    question: QuestionAtPlace, source: HistorySource, context: ForecastContext, quantile: float
) -> OpenQueue:
    source = replace(source, user=question.user, reading=question.reading or DETECTED)
    query, _ = context.learn(source, question.at, choose_settings(question, quantile, BEST))
    log = query.log
    # headers of archives may state fewer processors than a job had
    widest = max(log.max_procs or 0, int(log.procs.max(initial=0)))
    limits = JobLimits(place="the machine of this history has", procs=widest)
    limits.check(question.procs, question.walltime_s)
    path = str(source.file.resolve())
    queue = ALL_QUEUES if source.queue is None else str(source.queue)
    target = ForecastTarget(
        site=path, queue=queue, history=path, retrospective=query.at_s < log.end_s
    )
    view = choose_view(log, query.at_s, query.forecast)
    record = _record_of(target, context)
    return OpenQueue(query=query, view=view, target=target, limits=limits, record=record)
