"""Replay of a recorded history into a predictor, without information before its time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgrads.qbets.predictor import JobArrival, QueuePredictor, Settings
from vgrads.qbets.state_predictor import StatePredictor
from vgrads.traces.records import JobLog

SUBMIT, END, LEAVE, END_AT_ONCE = range(4)
Learner = QueuePredictor | StatePredictor
NEWEST, FEWEST = 10_000, 1_000  # submissions from which one forecast is learned


def queue_events(log: JobLog, ends: bool = False) -> Iterator[tuple[float, int, int]]:
    """Return ``(time, kind, row)`` in time order, submissions first among simultaneous ones.

    Submissions first: at the second of another job's start, that start is not known yet. Then, if
    requested, ends, then starts, which may need the processors of the ended jobs.
    """
    count = len(log)
    rows, kinds = np.tile(np.arange(count), 2), np.repeat([SUBMIT, LEAVE], count)
    times = np.concatenate([log.submit_s, log.start_s])
    if ends:
        started, run_s = np.flatnonzero(log.started), run_times(log)
        rows = np.concatenate([rows, started])
        times = np.concatenate([times, (log.start_s + run_s)[started]])
        kinds = np.concatenate([kinds, np.where(run_s[started] > 0, END, END_AT_ONCE)])
    order = np.lexsort((rows, kinds, times))
    return zip(times[order].tolist(), kinds[order].tolist(), rows[order].tolist(), strict=True)


def run_times(log: JobLog) -> NDArray[np.float64]:
    """Return the run time of each job; if unknown, its requested time."""
    return np.where(log.run_s < 0, np.maximum(log.request_s, 0.0), log.run_s)


def arrivals_of(log: JobLog, settings: Settings) -> list[JobArrival]:
    """Return every job as it was known at its submission, by the properties that distinguish jobs
    of this log."""
    users = log.user if _identifies_users(log) else np.full(len(log), -1)
    shapes = zip(log.procs.tolist(), log.request_s.tolist(), strict=True)
    others = zip(users.tolist(), log.queue.tolist(), strict=True)
    return [
        JobArrival(*settings.shape(*shape), *other)
        for shape, other in zip(shapes, others, strict=True)
    ]


def settings_for_log(settings: Settings, log: JobLog) -> Settings:
    """Return settings for questions to this log: properties that it lacks are ignored in questions.

    Requested times (or processors) that most jobs lack, or that are equal for all, are fixed to
    that value for every question: otherwise the question would be matched with the largest jobs, or
    with none. A user number that all jobs share identifies no user.
    """
    return replace(
        settings,
        knows_user=settings.knows_user and _identifies_users(log),
        procs=None if (procs := _only_value(log.procs, 1.0)) is None else int(procs),
        request_s=_only_value(log.request_s, -1.0),
    )


def _identifies_users(log: JobLog) -> bool:
    return len(np.unique(log.user[log.user >= 0])) > 1


def _only_value(column: NDArray[Any], unknown: float) -> float | None:
    """Return the value for every job: ``unknown`` if most lack it, the value that all have; None if
    they differ."""
    message = np.unique(column[column > 0])
    if 2 * int((column > 0).sum()) < max(1, len(column)):
        return unknown
    return float(message[0]) if len(message) == 1 else None


class HistoryReplay:
    """A replay of a history into a predictor. ``issued``: the bound issued to each job, NaN for
    none."""

    def __init__(self, log: JobLog, predictor: Learner) -> None:
        self.predictor = predictor
        self.issued = np.full(len(log), np.nan)
        self._started, self._arrivals = log.started.tolist(), arrivals_of(log, predictor.settings)
        self._events = queue_events(log, ends=predictor.follows_ends)
        self._next = next(self._events, None)

    def to(self, until_s: float = np.inf) -> None:
        """Replay everything up to and including an instant."""
        predictor, event = self.predictor, self._next
        while event is not None and event[0] <= until_s:
            at_s, kind, row = event
            if kind == SUBMIT:
                self._submit(row, at_s)
            elif kind != LEAVE:
                predictor.end(row, at_s)
            elif self._started[row]:
                predictor.start(row, at_s)
            else:
                predictor.withdraw(row, at_s)
            event = next(self._events, None)
        self._next = event
        if np.isfinite(until_s):
            predictor.advance(max(until_s, predictor.now_s))

    def _submit(self, row: int, at_s: float) -> None:
        if self.predictor.due:
            self.predictor.train()
        bound = self.predictor.submit(row, at_s, self._arrivals[row])
        if bound is not None:
            self.issued[row] = bound


def replay(log: JobLog, predictor: Learner, until_s: float = np.inf) -> NDArray[np.float64]:
    """Replay a history up to an instant; return the bound issued to each job, NaN if there was
    none."""
    passing = HistoryReplay(log, predictor)
    passing.to(until_s)
    return passing.issued


def make_predictor(settings: Settings, log: JobLog) -> Learner:
    """Return the predictor of a method, for jobs on this log's clock."""
    message = settings_for_log(settings, log)
    if settings.looks_at_state:
        return StatePredictor(message, log.unix_start_s)
    return QueuePredictor(message)


def learn(log: JobLog, settings: Settings, until_s: float = np.inf) -> QueuePredictor:
    """Return a predictor with all information available by ``until_s``, from past waits alone."""
    predictor = QueuePredictor(settings_for_log(settings, log))
    replay(log, predictor, until_s)
    return predictor


def _next_of(trainings: tuple[int, ...], count: int) -> int:
    """Return when to learn next: never after the last training."""
    return next((number for number in trainings if number > count), 2**62)


def learn_state(log: JobLog, settings: Settings, until_s: float = np.inf) -> StatePredictor | None:
    """Return the same from states of the queue, for one forecast; None if there is too little to
    learn from."""
    predictor = make_for_single_answer(log, settings, until_s)
    if predictor is not None:
        replay(log, predictor, until_s)
    return predictor


def make_for_single_answer(
    log: JobLog, settings: Settings, until_s: float
) -> StatePredictor | None:
    """Return a predictor that will learn from the newest submissions only, in two models: the first
    half is for training, the second for judging. None if there are too few for both."""
    existing = int(np.searchsorted(log.submit_s, until_s, side="right"))
    newest = min(existing, NEWEST)
    if newest < FEWEST:
        return None
    trainings = (newest // 2, newest * 4 // 5)
    return StatePredictor(
        settings_for_log(settings, log),
        log.unix_start_s,
        float(log.submit_s[existing - newest]),
        partial(_next_of, trainings),
    )
