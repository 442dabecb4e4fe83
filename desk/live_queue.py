"""A queue as its site tells it now: looked into, or put behind the history as what a job would find."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from desk.queries import AskedQueue
from desk.wiring import open_batch
from drivers.api import QueuedJob, SlotSpec
from kernel.errors import InputError, SiteError
from qbets.predictor import Settings
from qbets.replay import run_times
from qbets.state_forecast import forecast_state
from traces.records import COLUMNS, JobLog
from vgrid.catalog import Catalog

Json = dict[str, Any]
_LATER_S = 1e9  # what has not happened yet happens after everything that is asked about


def with_live(log: JobLog, jobs: Sequence[QueuedJob], now_s: float, queue: int = -1) -> JobLog:
    """Ended jobs of the history, and those that wait or run now; what becomes of these lies in the future.

    Users of the site and of the history are not matched: a live job's user is new here.
    """
    users = {name: number for number, name in enumerate(sorted({job.user for job in jobs}))}
    newest = int(log.user.max(initial=0)) + 1
    rows = [_row(job, now_s, newest + users[job.user], queue) for job in jobs]
    known = log.start_s + run_times(log) <= now_s  # whatever goes on, the site tells
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(log, name)[known], np.array([row[name] for row in rows], dtype=getattr(log, name).dtype)])
        for name in COLUMNS
    }  # fmt: skip
    order = np.argsort(columns["submit_s"], kind="stable")
    return replace(log, bag=None, **{name: column[order] for name, column in columns.items()})


def _row(job: QueuedJob, now_s: float, user: int, queue: int) -> dict[str, float]:
    if job.left_s is not None:  # it runs: since when follows from its request
        start_s = now_s - max(0.0, job.requested_s - job.left_s)
        wait_s, run_s, submit_s = 0.0, _LATER_S, start_s
    else:
        submit_s = now_s - (job.waited_s or 0.0)
        wait_s, run_s = _LATER_S, -1.0
    return {
        "submit_s": submit_s, "wait_s": wait_s, "run_s": run_s, "procs": max(1, job.procs), "request_s": job.requested_s,
        "user": user, "queue": queue, "started": True,
    }  # fmt: skip


def ask_live(
    asked: AskedQueue, catalog: Catalog | None, name: str, settings: Settings
) -> AskedQueue:
    """The question put again to a queue of a catalogue (``SITE/QUEUE``) as its site tells it at this moment."""
    site, _, queue = name.partition("/")
    if catalog is None or not queue:
        raise InputError("--live asks SITE/QUEUE of the database", where=name)
    jobs = [job for job in open_batch(catalog.site(site)).queue() if job.queue == queue]
    now_s = time.time() - asked.log.unix_start_s
    log = with_live(asked.log, jobs, now_s)
    return AskedQueue(log=log, at_s=now_s, forecast=forecast_state(log, now_s, settings))


def look_into_queue(catalog: Catalog, name: str, job: tuple[int, float] | None) -> Json:
    """Everybody's jobs at a batch site, and for a job of ours (processors, seconds) the site's own forecast."""
    site = catalog.site(name)
    driver = open_batch(site)
    jobs = driver.queue()
    answer: Json = {
        "site": name,
        "waiting": [_job(j) for j in jobs if j.left_s is None],
        "running": [_job(j) for j in jobs if j.left_s is not None],
    }
    if job is not None:
        spec = SlotSpec(
            id="forecast", name="forecast", site=name, queue=site.queues[0].name if site.queues else "", procs=job[0], duration_s=job[1]
        )  # fmt: skip
        try:
            answer["forecast_start_in_s"] = driver.start_estimate_s(spec)
        except SiteError as error:
            if error.transient:
                raise
            answer |= {"forecast_start_in_s": None, "forecast_refused": error.what}
    return answer


def _job(job: QueuedJob) -> Json:
    return {
        "queue": job.queue, "user": job.user, "procs": job.procs, "requested_s": job.requested_s,
        "waited_s": job.waited_s, "left_s": job.left_s,
    }  # fmt: skip
