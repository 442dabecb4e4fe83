"""Queries to one queue's history: bound, probability, trajectory, and reasons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vgrads.api.queues.forecast_cache import cached
from vgrads.api.queues.histories import (
    cached_counts,
    cached_forecast,
    learned_forecast,
    settings_at,
)
from vgrads.api.queues.history_files import Instant, check_there, open_history
from vgrads.kernel.units import format_instant
from vgrads.qbets.arrays import count_distinct_starts
from vgrads.qbets.explain import BoundReason, explain
from vgrads.qbets.predictor import Settings
from vgrads.qbets.state_forecast import AnyForecast, StateForecast, choose_user, find_instant
from vgrads.qbets.viewed_log import end_of
from vgrads.traces.log_queue import LogQueue
from vgrads.traces.reading_options import DETECTED, ReadingOptions
from vgrads.traces.records import JobLog
from vgrads.vgrid.closures import ALWAYS, Availability, ClosedForecast, close_forecast
from vgrads.vgrid.varq import STEP_S, Reservation, Trajectory, evaluate_trajectory


@dataclass(frozen=True, kw_only=True)
class QueueQuery:
    """A history, the instant of the query, and the forecast.

    ``jobs``: number of jobs started by then, ``distinct``: number of observations that they count
    as; None: not counted. ``availability``: closures of its site.
    """

    log: JobLog
    at_s: float
    forecast: AnyForecast
    jobs: int | None = None
    distinct: int | None = None
    availability: Availability = ALWAYS

    @property
    def starts(self) -> AnyForecast | ClosedForecast:
        """The forecast with the closures of the site: what every answer is read from."""
        return close_forecast(self.forecast, self.availability)

    def separate(self) -> QueueQuery:
        """Return the same with a forecast whose caches end with the result: for many shapes, which
        a shared forecast would keep."""
        return replace(self, forecast=replace(self.forecast))

    @property
    def since(self) -> str:
        """RFC 3339 of the oldest history that still applies."""
        return self.instant(self.forecast.since_s)

    def instant(self, log_s: float) -> str:
        """Return the RFC 3339 form of an instant of the log's clock."""
        return format_instant(self.log.unix_start_s + log_s)


@dataclass(frozen=True, kw_only=True)
class HistorySource:
    """A history's file, its queue (None: all jobs), how to read it, the user of the query."""

    file: Path
    queue: LogQueue = None
    reading: ReadingOptions = DETECTED
    user: str | None = None


def ask_queue(source: HistorySource, at: Instant, settings: Settings) -> QueueQuery:
    """Open a history and learn from it as of an instant of its machine; learned once for a file's
    content."""
    settings.check()

    def learn_it() -> QueueQuery:
        whole = open_history(source.file, source.reading)
        log = whole.only_queue(source.queue)
        used = settings_at(whole, None if at is None else whole.instant(at), settings)
        at_s = end_of(whole, used.view) if at is None else whole.instant(at)
        jobs, distinct = count_distinct_starts(log, at_s)
        return QueueQuery(
            log=log,
            at_s=at_s,
            forecast=learned_forecast(whole, at_s, used, source.queue),
            jobs=jobs,
            distinct=distinct if settings.arrays else jobs,
        )

    check_there(source.file)
    key = ("asked", source.queue, source.reading, at, settings)
    result = cached(source.file, key, learn_it)
    if source.user is None:
        return result
    # the user is no part of the key: what was learned serves all users
    user = open_history(source.file, source.reading).user_code(source.user)
    return replace(result, forecast=choose_user(result.forecast, user))


def ask_log(
    path: str,
    log_queue: LogQueue,
    settings: Settings,
    learned: StateForecast | None = None,
) -> QueueQuery:
    """Return the forecast of the whole history of a catalogue; learned once while its file does not
    change."""
    log = open_history(path).only_queue(log_queue)
    forecast = learned or cached_forecast(path, log_queue, None, settings)
    jobs, distinct = cached_counts(path, log_queue)
    return QueueQuery(
        log=log,
        at_s=find_instant(forecast, log),
        forecast=forecast,
        jobs=jobs,
        distinct=distinct if settings.arrays else jobs,
    )


def list_machine_queues(query: QueueQuery) -> list[str]:
    """Return the other queues whose jobs count for the forecast, by name: those of its machine."""
    forecast = query.forecast
    if not isinstance(forecast, StateForecast) or forecast.asker.queue < 0:
        return []
    own = query.log.queue_names.get(forecast.asker.queue, "")
    return sorted(query.log.named_queues - frozenset(own.split(",")))


def explain_bound(
    query: QueueQuery, procs: int, walltime_s: float, probability: float
) -> dict[str, Any]:
    """Return the method of a bound and its reason, the other queues of the machine, and the effects
    of its state; bounds from past waits have no such effects."""
    forecast = query.forecast
    if not isinstance(forecast, StateForecast):
        return {
            "method": forecast.method,
            "why": "the method uses only past waits, or too few jobs are known",
            "queues": [],
            "moved": [],
        }
    choice = forecast.choice(forecast.job_class(procs, walltime_s).group)
    explanation = None
    if choice.whose != "qbets":
        explanation = explain(forecast, procs, walltime_s, probability)
    queues = list_machine_queues(query)
    if explanation is None:
        return {"method": forecast.method, "why": choice.why, "queues": queues, "moved": []}
    return {
        "method": forecast.method,
        "why": choice.why,
        "queues": queues,
        "usual_bound_s": explanation.usual_bound_s,
        "moved": [_describe_reason(r) for r in explanation.reasons],
    }


def _describe_reason(reason: BoundReason) -> dict[str, Any]:
    return {
        "side": reason.side,
        "reason": reason.text,
        "moved_s": reason.moved_s,
    }


def reading_json(log: JobLog, more: Iterable[str] = ()) -> dict[str, Any] | None:
    """Return what became of the lines of a history's file, and warnings on its values, with
    ``more``; None if it was not read from a file."""
    if log.report is None:
        return None
    return log.report.as_json() | {"warnings": [*log.warnings, *more]}


def walk(query: QueueQuery, reservation: Reservation, step_s: float = STEP_S) -> Trajectory:
    """Compute VARQ from the forecast: the later an instant, the less weight the current state of
    the queue has."""
    return evaluate_trajectory(query.starts, reservation, step_s)
