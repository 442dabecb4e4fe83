"""Replay of a recorded history into a predictor, without information before its time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vgrads.qbets.events import arrivals_of, queue_events, settings_for_log
from vgrads.qbets.predictor import QueuePredictor, Settings
from vgrads.qbets.state.queue_tables import LEAVE, SUBMIT
from vgrads.qbets.state_predictor import StatePredictor
from vgrads.traces.records import JobLog

Learner = QueuePredictor | StatePredictor


class HistoryReplay:
    """A replay of a history into a predictor. ``issued``: the bound issued to each job, NaN for
    none."""

    def __init__(self, log: JobLog, predictor: Learner) -> None:
        self.predictor = predictor
        if isinstance(predictor, StatePredictor):
            self.issued = predictor.issued
            return
        self.issued = np.full(len(log), np.nan)
        self._started, self._arrivals = log.started.tolist(), arrivals_of(log, predictor.settings)
        self._events, self._place = queue_events(log), 0

    def to(self, until_s: float = np.inf) -> None:
        """Replay everything up to and including an instant."""
        if isinstance(self.predictor, StatePredictor):
            self.predictor.to(until_s)
            return
        last = int(np.searchsorted(self._events.times, until_s, side="right"))
        part = self._events.part(self._place, last)
        for at_s, kind, row in zip(*(column.tolist() for column in part), strict=True):
            self._apply(self.predictor, at_s, kind, row)
        self._place = max(self._place, last)
        if np.isfinite(until_s):
            self.predictor.advance(max(until_s, self.predictor.now_s))

    def _apply(self, predictor: QueuePredictor, at_s: float, kind: int, row: int) -> None:
        if kind == SUBMIT:
            bound = predictor.submit(row, at_s, self._arrivals[row])
            if bound is not None:
                self.issued[row] = bound
        elif kind == LEAVE and self._started[row]:
            predictor.start(row, at_s)
        else:
            predictor.withdraw(row, at_s)


def replay(log: JobLog, predictor: Learner, until_s: float = np.inf) -> NDArray[np.float64]:
    """Replay a history up to an instant; return the bound issued to each job, NaN if there was
    none."""
    passing = HistoryReplay(log, predictor)
    passing.to(until_s)
    return passing.issued


def make_predictor(settings: Settings, log: JobLog) -> Learner:
    """Return the predictor of a method, for jobs on this log's clock."""
    if settings.looks_at_state:
        return StatePredictor(log, settings)
    return QueuePredictor(settings_for_log(settings, log))


def learn(log: JobLog, settings: Settings, until_s: float = np.inf) -> QueuePredictor:
    """Return a predictor with all information available by ``until_s``, from past waits alone."""
    predictor = QueuePredictor(settings_for_log(settings, log))
    replay(log, predictor, until_s)
    return predictor


def learn_state(log: JobLog, settings: Settings, until_s: float = np.inf) -> StatePredictor:
    """Return the same from states of the queue, for questions at that instant only: what a replay
    of the whole history would have learned by then, without what it has forgotten."""
    predictor = StatePredictor(log, settings, until_s)
    predictor.to(until_s)
    return predictor
