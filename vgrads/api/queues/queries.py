"""Questions to one queue's history: bound, probability, trajectory, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgrads.api.queues.histories import (
    Instant,
    cached_counts,
    cached_forecast,
    check_there,
    open_history,
)
from vgrads.api.queues.shelf import shelved
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_duration, format_instant
from vgrads.qbets.arrays import distinct_starts
from vgrads.qbets.explain import Reason, explain
from vgrads.qbets.predictor import NOBODY, Arrival, Settings
from vgrads.qbets.state_forecast import Known, StateForecast, known_of
from vgrads.traces.records import JobLog, LogQueue
from vgrads.vgrid.varq import STEP_S, Reservation, Trajectory, trajectory


@dataclass(frozen=True, kw_only=True)
class AskedQueue:
    """A history, the instant at which it is asked, and what it says.

    ``jobs``: how many had started by then, ``distinct`` as how many observations they count; None:
    not counted.
    """

    log: JobLog
    at_s: float
    forecast: Known
    jobs: int | None = None
    distinct: int | None = None

    @property
    def since(self) -> str:
        """RFC 3339 of the oldest history that still applies."""
        return self.instant(self.forecast.since_s)

    def instant(self, log_s: float) -> str:
        """RFC 3339 of an instant of the log's clock."""
        return format_instant(self.log.unix_start_s + log_s)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A history's file, which of its queues is meant (None: all jobs), in which format (None: found
    out), who asks."""

    file: Path
    queue: LogQueue = None
    format_name: str | None = None
    user: str | None = None


def ask_queue(source: Source, at: Instant, settings: Settings) -> AskedQueue:
    """Open a history and learn from it what was known at an instant; learned once for a file's
    content."""
    settings.check()

    def learn_it() -> AskedQueue:
        whole = open_history(source.file, source.format_name)
        asker = NOBODY if source.user is None else Arrival(user=whole.user_code(source.user))
        log = whole.only_queue(source.queue)
        at_s = log.instant(at)
        jobs, distinct = distinct_starts(log, at_s)
        return AskedQueue(
            log=log,
            at_s=at_s,
            forecast=known_of(log, at_s, settings, asker),
            jobs=jobs,
            distinct=distinct if settings.arrays else jobs,
        )

    check_there(source.file)
    return shelved(
        source.file,
        ("asked", source.queue, source.format_name, source.user, at, settings),
        learn_it,
    )


def ask_log(
    path: str,
    log_queue: LogQueue,
    settings: Settings,
    learned: StateForecast | None = None,
) -> AskedQueue:
    """What the whole of a catalogue's history says; learned once as long as its file does not
    change."""
    log = open_history(path).only_queue(log_queue)
    known = learned or cached_forecast(path, log_queue, log.end_s, settings)
    jobs, distinct = cached_counts(path, log_queue)
    return AskedQueue(
        log=log,
        at_s=log.end_s,
        forecast=known,
        jobs=jobs,
        distinct=distinct if settings.arrays else jobs,
    )


def refuse_too_wide(asked: AskedQueue, procs: int) -> None:
    """InputError where the machine behind a history has not that many processors."""
    most = max(asked.log.max_procs or 0, int(asked.log.procs.max()))
    if procs > most:
        raise InputError(
            f"{procs} processors are more than the machine of this history has, {most}",
            where="--procs",
        )


def explanation_of(
    asked: AskedQueue, procs: int, walltime_s: float, probability: float
) -> dict[str, Any]:
    """Whose bound it is and why, and what of the state moved it; nothing moved one by past
    waits."""
    known = asked.forecast
    if not isinstance(known, StateForecast):
        return {
            "method": known.method,
            "why": "only past waits were asked, or too few are known to learn more",
            "moved": [],
        }
    choice = known.choice(known.burst(procs, walltime_s))
    reasons = [] if choice.whose == "qbets" else explain(known, procs, walltime_s, probability)
    return {"method": known.method, "why": choice.why, "moved": [_reason_json(r) for r in reasons]}


def _reason_json(reason: Reason) -> dict[str, Any]:
    return {
        "side": reason.side,
        "told": _reason_words(reason),
        "bound_s": reason.bound_s,
        "usual_bound_s": reason.usual_bound_s,
        "moved_s": reason.moved_s,
    }


def _reason_words(reason: Reason) -> str | None:
    """What is unusual, in words."""
    if reason.seconds is None:
        return reason.told
    now, usual = (format_duration(s) for s in reason.seconds)
    return f"{now}, usually {usual}"


def walk(asked: AskedQueue, wanted: Reservation, step_s: float = STEP_S) -> Trajectory:
    """VARQ over what is known: the later an instant, the less the present state of the queue says
    of it."""
    return trajectory(asked.forecast, wanted, step_s)
