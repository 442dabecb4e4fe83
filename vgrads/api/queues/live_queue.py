"""A queue as its site tells it now: looked into, or as what a job of ours would find."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vgrads.api.queues.queries import AskedQueue
from vgrads.api.wiring import open_batch
from vgrads.drivers.api import QueuedJob, SlotSpec
from vgrads.kernel.errors import InputError, SiteError
from vgrads.qbets.predictor import Arrival
from vgrads.qbets.state_forecast import Known, StateForecast, aged
from vgrads.traces.records import JobLog
from vgrads.vgrid.catalog import Catalog, Site

Json = dict[str, Any]


def as_told(known: Known, jobs: Sequence[QueuedJob], now_s: float) -> Known:
    """What is known of a queue, for the jobs that its site tells of now; past waits stay as they
    are.

    Users of the site and of the history are not matched: nobody knows who is who.
    """
    if not isinstance(known, StateForecast):
        return known
    waiting = [(job.waited_s or 0.0, _arrival(job)) for job in jobs if job.left_s is None]
    running = [
        (max(0.0, job.requested_s - job.left_s), _arrival(job))
        for job in jobs
        if job.left_s is not None
    ]
    return known.told(waiting, running, now_s)


def _of_queue(jobs: Sequence[QueuedJob], queue: str) -> list[QueuedJob]:
    """Those that wait or run in a queue; who waits for any queue (named nowhere) waits in each, who
    for several in these."""
    return [job for job in jobs if not job.queue or queue in job.queue.split(",")]


def _arrival(job: QueuedJob) -> Arrival:
    return Arrival(procs=max(1, job.procs), request_s=job.requested_s)


def ask_live(asked: AskedQueue, catalog: Catalog | None, name: str) -> AskedQueue:
    """The question put again to a queue of a catalogue (``SITE/QUEUE``) as its site tells it at
    this moment."""
    site, _, queue = name.partition("/")
    if catalog is None or not queue:
        raise InputError("--live asks SITE/QUEUE of the database", where=name)
    jobs = open_batch(catalog.site(site)).queue()
    found = known_now(asked.forecast, asked.log, queue, jobs)
    return replace(asked, at_s=time.time() - asked.log.unix_start_s, forecast=found)


def jobs_now(site: Site) -> Sequence[QueuedJob] | None:
    """Everybody's jobs at a real batch site; None where it does not answer."""
    try:
        return open_batch(site).queue()
    except SiteError:
        return None


def known_now(known: Known, log: JobLog, queue: str, jobs: Sequence[QueuedJob] | None) -> Known:
    """What is known of a real queue at this moment: as its site tells of its jobs, or, where it
    does not answer, aged."""
    now_s = time.time() - log.unix_start_s
    if jobs is None:
        return aged(known, max(0.0, now_s - log.end_s))
    return as_told(known, _of_queue(jobs, queue), now_s)


def look_into_queue(catalog: Catalog, name: str, job: tuple[int, float] | None) -> Json:
    """Everybody's jobs at a batch site, and for a job of ours (processors, seconds) the site's own
    forecast."""
    site = catalog.site(name)
    batch = open_batch(site)
    jobs = batch.queue()
    answer: Json = {
        "site": name,
        "waiting": [_job(j) for j in jobs if j.left_s is None],
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
