"""A queue as its site lists it: for forecasts, and to look at."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar

from vgrads.api.queues.site_snapshots import SiteSnapshot, refresh_snapshot
from vgrads.api.wiring import open_batch
from vgrads.drivers.api import QueuedJob, SlotSpec
from vgrads.kernel.errors import SiteError
from vgrads.kernel.units import format_count, format_duration, format_instant
from vgrads.qbets.blend import FADES_S
from vgrads.qbets.predictor import JobArrival
from vgrads.qbets.state_forecast import (
    AnyForecast,
    PresentQueue,
    StateForecast,
    age_forecast,
    find_instant,
)
from vgrads.qbets.views import BEST, ENDED, FULL, STARTED
from vgrads.traces.log_queue import SiteQueue
from vgrads.traces.records import JobLog
from vgrads.vgrid.catalog import Catalog

Json = dict[str, Any]
_RECENT_S = 120.0
"""Age up to which a listed queue counts as the present one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """What an answer knows of the present queue. ``source``: ``site`` (listed by it at
    ``as_of_unix_s``), ``history`` (as its history states it at that instant) or ``past`` (a real
    queue whose present is unknown, for the ``reason``). ``view``: which jobs are known
    (:data:`vgrads.qbets.views.VIEWS`). ``waiting``, ``running``: numbers of jobs, None where
    unknown."""

    source: str
    as_of_unix_s: float
    view: str = FULL
    waiting: int | None = None
    running: int | None = None
    reason: str = ""

    def as_json(self) -> Json:
        """The field ``queue_view`` of answers; ``age_s`` of a listed queue."""
        is_listed = self.source == "site"
        return {
            "source": self.source,
            "view": self.view,
            "as_of": format_instant(self.as_of_unix_s),
            "age_s": max(0.0, time.time() - self.as_of_unix_s) if is_listed else None,
            "waiting": self.waiting,
            "running": self.running,
            "reason": self.reason or None,
        }

    @property
    def sentence(self) -> str:
        """The view in words, without a full stop; empty where all jobs of a history are known."""
        jobs = ""
        if self.waiting is not None:
            jobs = f": {format_count(self.waiting, 'job', 'wait')}"
            jobs += f", {self.running} run" if self.running is not None else ""
        if self.source == "site":
            age = format_duration(round(max(0.0, time.time() - self.as_of_unix_s)))
            return f"queue as of {age} ago{jobs}{self._because}"
        as_of = format_instant(self.as_of_unix_s)
        if self.source == "past":
            hidden = _HIDDEN.get(self.view, "")
            history = f"its history ends {as_of}{hidden and f' and shows {hidden}'}"
            return f"the present queue is not known, {history}{self._because}"
        if self.view != FULL:
            shows = f"the history shows {_HIDDEN[self.view]} as of {as_of}; with them the bound"
            return f"{shows} would be tighter{self._because}"
        if self.waiting is None:
            return self.reason
        return f"queue as of {as_of}, when the history was taken{jobs}"

    @property
    def _because(self) -> str:
        return f" ({self.reason})" if self.reason else ""


_HIDDEN = {STARTED: "no waiting jobs", ENDED: "neither waiting nor running jobs"}
"""What a view lacks."""


def choose_view(log: JobLog, at_s: float, forecast: AnyForecast) -> QueueView:
    """Return the view of a forecast from a history alone, at an instant of its clock."""
    waiting, view = log.waiting, forecast.settings.view
    is_listed = waiting is not None and waiting.is_listed and at_s >= waiting.taken_s
    return QueueView(
        source="history",
        as_of_unix_s=log.unix_start_s + at_s,
        view=view,
        waiting=len(waiting) if waiting is not None and is_listed and view == FULL else None,
    )


Learned = TypeVar("Learned")


def learn_present(
    learn: Callable[[str], Learned],
    snapshot: SiteSnapshot | None,
    instant_unix_s: Callable[[Learned], float],
) -> Learned:
    """Learn the history of a real queue in the view that fits what is known of its present: with
    all jobs where its site lists it; otherwise with those that the history shows, but without those
    that waited when it was taken where that is long ago. ``instant_unix_s``: when that is; infinite
    for what was not learned with waiting jobs."""
    if _is_usable(snapshot):
        return learn(FULL)
    result = learn(BEST)
    return learn(ENDED) if time.time() - instant_unix_s(result) > FADES_S else result


def learned_unix_s(forecast: AnyForecast, log: JobLog) -> float:
    """Return when the queue of a history was as its forecast has it; infinite for a forecast that
    was learned without waiting jobs."""
    if not forecast.settings.sees_waiting:
        return math.inf
    return log.unix_start_s + find_instant(forecast, log)


def _is_usable(snapshot: SiteSnapshot | None) -> TypeGuard[SiteSnapshot]:
    """True for a queue that its site has listed, with the jobs of all users."""
    return snapshot is not None and snapshot.is_listed and not snapshot.is_hidden


def make_present_forecast(
    forecast: AnyForecast,
    log: JobLog,
    queue: str,
    snapshot: SiteSnapshot | None,
    now_unix_s: float | None = None,
) -> tuple[AnyForecast, QueueView]:
    """Return the forecast of a real queue as its site listed it last, and what was seen. Where
    nothing is listed, the state of the history is aged: past waits weigh more, and the queue is
    never taken as empty. ``now_unix_s``: the instant of the question; None for the current time."""
    now_unix_s = time.time() if now_unix_s is None else now_unix_s
    now_s = now_unix_s - log.unix_start_s
    if not _is_usable(snapshot):
        at_s = find_instant(forecast, log)
        view = QueueView(
            source="past",
            as_of_unix_s=log.unix_start_s + at_s,
            view=forecast.settings.view,
            reason=_explain_snapshot(snapshot),
        )
        return age_forecast(forecast, max(0.0, now_s - at_s)), view
    taken_s = snapshot.taken_unix_s - log.unix_start_s
    jobs = _select_queue(snapshot.jobs, queue, forecast, log)
    view = QueueView(
        source="site",
        as_of_unix_s=snapshot.taken_unix_s,
        waiting=sum(job.left_s is None for job in jobs),
        running=sum(job.left_s is not None for job in jobs),
        reason=snapshot.problem,
    )
    # a forecast from past waits has no state that could be replaced
    if not isinstance(forecast, StateForecast):
        return forecast, view
    age_s = snapshot.age_s(now_unix_s)
    result = forecast.with_queue(_convert_jobs(jobs, taken_s, log, forecast))
    return (result if age_s <= _RECENT_S else age_forecast(result, age_s)), view


def _explain_snapshot(snapshot: SiteSnapshot | None) -> str:
    if snapshot is None:
        return "its site has not been asked yet"
    if snapshot.is_hidden:
        return "its site shows users their own jobs alone"
    return snapshot.problem or "its site has not been asked yet"


def _convert_jobs(
    jobs: Sequence[QueuedJob], taken_s: float, log: JobLog, forecast: StateForecast
) -> PresentQueue:
    """Return jobs for a forecast. Users of the site and of the history are not matched, because
    their names may differ; queues are, by name."""
    codes: dict[str, int] = {}

    def arrival(job: QueuedJob) -> JobArrival:
        # a job for several queues counts as one of the first
        name = job.queue.partition(",")[0]
        if name not in codes:
            code = log.largest_queue(SiteQueue(name)) if name else -1
            codes[name] = log.named_queue(name) if name and code < 0 else code
        procs, request_s = forecast.settings.shape(max(1, job.procs), job.requested_s)
        return JobArrival(procs=procs, request_s=request_s, queue=codes[name])

    return PresentQueue(
        taken_s=taken_s,
        waiting=[(job.waited_s or 0.0, arrival(job)) for job in jobs if job.left_s is None],
        running=[
            (max(0.0, job.requested_s - job.left_s), arrival(job))
            for job in jobs
            if job.left_s is not None
        ],
    )


def _select_queue(
    jobs: Sequence[QueuedJob], queue: str, forecast: AnyForecast, log: JobLog
) -> Sequence[QueuedJob]:
    """Return the jobs that can start and count for a queue: those of the queues of its history
    where the forecast was learned from all of these, all jobs where it has other names; else those
    that wait or run in it. Jobs without a queue wait in each, jobs for several queues in these."""
    names = frozenset({queue})
    if isinstance(forecast, StateForecast) and forecast.asker.queue >= 0:
        names = log.named_queues if queue in log.named_queues else frozenset()
    return [
        job
        for job in jobs
        if job.eligible and (not (job.queue and names) or names & frozenset(job.queue.split(",")))
    ]


def look_into_queue(catalog: Catalog, name: str, job: tuple[int, float] | None) -> Json:
    """Return the jobs of all users at a batch site, and for a job of ours (processors, seconds) the
    site's own start estimate. Raise SiteError where the site has never listed its queue."""
    site = catalog.site(name)
    batch = open_batch(site)
    snapshot = refresh_snapshot(site)
    if not snapshot.is_listed:
        raise SiteError(snapshot.problem or "has not listed its queue", site=name, transient=True)
    jobs = snapshot.jobs
    answer: Json = {
        "site": name,
        "taken": format_instant(snapshot.taken_unix_s),
        "hidden": snapshot.is_hidden,
        "problem": snapshot.problem or None,
        "waiting": [_convert_job(j) for j in jobs if j.left_s is None and j.eligible],
        "ineligible": [_convert_job(j) for j in jobs if not j.eligible],
        "running": [_convert_job(j) for j in jobs if j.left_s is not None],
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
            # a lasting refusal is an answer, too: the site would not take such a job
            if error.transient:
                raise
            answer |= {"forecast_start_in_s": None, "forecast_refused": error.what}
    return answer


def _convert_job(job: QueuedJob) -> Json:
    return {
        "queue": job.queue,
        "user": job.user,
        "procs": job.procs,
        "requested_s": job.requested_s,
        "waited_s": job.waited_s,
        "left_s": job.left_s,
    }
