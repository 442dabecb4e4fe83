"""A queue as its site reports it now: its jobs, or the forecast for a job of ours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vgrads.api.queues.queries import QueueQuery
from vgrads.api.wiring import open_batch
from vgrads.drivers.api import QueuedJob, SlotSpec
from vgrads.kernel.errors import InputError, SiteError
from vgrads.qbets.predictor import JobArrival
from vgrads.qbets.state_forecast import AnyForecast, StateForecast, aged
from vgrads.traces.log_queue import SiteQueue
from vgrads.traces.records import JobLog
from vgrads.vgrid.catalog import Catalog, Site, split_queue_name

Json = dict[str, Any]


def with_queue(
    forecast: AnyForecast, jobs: Sequence[QueuedJob], now_s: float, log: JobLog | None = None
) -> AnyForecast:
    """Return the forecast of a queue for the jobs that its site reports now; past waits are
    unchanged.

    Users of the site and of the history are not matched, because their names differ; queues are,
    by name in the ``log``.
    """
    if not isinstance(forecast, StateForecast):
        return forecast
    waiting = [(job.waited_s or 0.0, _arrival(job, log)) for job in jobs if job.left_s is None]
    running = [
        (max(0.0, job.requested_s - job.left_s), _arrival(job, log))
        for job in jobs
        if job.left_s is not None
    ]
    return forecast.with_queue(waiting, running, now_s)


def _of_queue(
    jobs: Sequence[QueuedJob], queue: str, forecast: AnyForecast, log: JobLog
) -> Sequence[QueuedJob]:
    """Return the jobs that count for a queue: those of the queues of its history where the forecast
    was learned from all of these, all jobs where it has other names; else those that wait or run in
    it. Jobs without a queue wait in each, jobs for several queues in these."""
    names = frozenset({queue})
    if isinstance(forecast, StateForecast) and forecast.asker.queue >= 0:
        names = log.named_queues if queue in log.named_queues else frozenset()
    return [j for j in jobs if not (j.queue and names) or names & frozenset(j.queue.split(","))]


def _arrival(job: QueuedJob, log: JobLog | None) -> JobArrival:
    queue = -1
    if log is not None and job.queue:
        name = job.queue.partition(",")[0]
        queue = log.largest_queue(SiteQueue(name))
        queue = log.named_queue(name) if queue < 0 else queue
    return JobArrival(procs=max(1, job.procs), request_s=job.requested_s, queue=queue)


def ask_live(query: QueueQuery, catalog: Catalog | None, name: str) -> QueueQuery:
    """Repeat a query for a queue of a catalogue (``SITE/QUEUE``) as its site reports it now."""
    site, queue = split_queue_name(name)
    if catalog is None or queue is None:
        raise InputError("--live needs SITE/QUEUE of the database", where=name)
    jobs = open_batch(catalog.site(site)).queue()
    forecast = forecast_now(query.forecast, query.log, queue, jobs)
    return replace(query, at_s=time.time() - query.log.unix_start_s, forecast=forecast)


def jobs_now(site: Site) -> Sequence[QueuedJob] | None:
    """Return the jobs of all users at a real batch site; None if it does not answer."""
    try:
        return open_batch(site).queue()
    except SiteError:
        return None


def forecast_now(
    forecast: AnyForecast, log: JobLog, queue: str, jobs: Sequence[QueuedJob] | None
) -> AnyForecast:
    """Return the current forecast of a real queue: with the jobs that its site reports, or, if it
    does not answer, aged."""
    now_s = time.time() - log.unix_start_s
    if jobs is None:
        return aged(forecast, max(0.0, now_s - log.end_s))
    return with_queue(forecast, _of_queue(jobs, queue, forecast, log), now_s, log)


def look_into_queue(catalog: Catalog, name: str, job: tuple[int, float] | None) -> Json:
    """Return the jobs of all users at a batch site, and for a job of ours (processors, seconds) the
    site's own start estimate."""
    site = catalog.site(name)
    batch = open_batch(site)
    jobs = batch.listed_jobs()
    answer: Json = {
        "site": name,
        "waiting": [_job(j) for j in jobs if j.left_s is None and j.eligible],
        "ineligible": [_job(j) for j in jobs if not j.eligible],
        "running": [_job(j) for j in jobs if j.left_s is not None],
    }
    if job is not None:
        spec = SlotSpec(
            id="forecast",
            name="forecast",
            site=name,
            queue=site.queues[0].name if site.queues else "",
            procs=job[0],
            duration_s=job[1],
        )
        try:
            answer["forecast_start_in_s"] = batch.start_estimate_s(spec)
        except SiteError as error:
            if error.transient:
                raise
            answer |= {"forecast_start_in_s": None, "forecast_refused": error.what}
    return answer


def _job(job: QueuedJob) -> Json:
    return {
        "queue": job.queue,
        "user": job.user,
        "procs": job.procs,
        "requested_s": job.requested_s,
        "waited_s": job.waited_s,
        "left_s": job.left_s,
    }
