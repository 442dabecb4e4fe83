"""Replay of a recorded history into a predictor, without information before its time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vgrads.qbets.events import adapt_settings, make_arrivals, make_events
from vgrads.qbets.past_replay import NONE, FurtherBounds
from vgrads.qbets.predictor import QueuePredictor, Settings
from vgrads.qbets.state.queue_tables import LEAVE, SUBMIT
from vgrads.qbets.state_predictor import StatePredictor
from vgrads.qbets.viewed_log import select_view
from vgrads.traces.records import JobLog

Learner = QueuePredictor | StatePredictor


class HistoryReplay:
    """A replay of a history into a predictor."""

    def __init__(self, log: JobLog, predictor: Learner) -> None:
        self.predictor = predictor
        # it holds the log and its events, and replays them itself
        if isinstance(predictor, StatePredictor):
            return
        view = predictor.settings.view
        self._viewed = select_view(log, view)
        log = self._viewed.log
        self._issued = np.full(len(log), np.nan)
        self._started, self._arrivals = log.started.tolist(), make_arrivals(log, predictor.settings)
        self._times = log.submit_s.tolist(), log.wait_s.tolist()
        self._events, self._place = make_events(log, view=view), 0

    @property
    def issued(self) -> NDArray[np.float64]:
        """The bound issued to each job, NaN for none."""
        return self.issued_at(None)

    def issued_at(self, level: float | None) -> NDArray[np.float64]:
        """Return the same at a further level of the predictor; None: that of its settings."""
        if isinstance(self.predictor, StatePredictor):
            return self.predictor.issued_at(level)
        return self._viewed.in_history(self._issued)

    def to(self, until_s: float = np.inf) -> None:
        """Replay everything up to and including an instant."""
        if isinstance(self.predictor, StatePredictor):
            self.predictor.to(until_s)
            return
        last = int(np.searchsorted(self._events.times, until_s, side="right"))
        part = self._events.part(self._place, last)
        for at_s, kind, row in zip(*(column.tolist() for column in part), strict=True):
            self._apply(self.predictor, at_s, kind, row)
        # an instant before the last one must not replay events twice
        self._place = max(self._place, last)
        if np.isfinite(until_s):
            # jobs that outlive their bound are misses even where no event follows
            self.predictor.advance(max(until_s, self.predictor.now_s))

    def _apply(self, predictor: QueuePredictor, at_s: float, kind: int, row: int) -> None:
        if kind == SUBMIT:
            bound = predictor.submit(row, at_s, self._arrivals[row])
            if bound is not None:
                self._issued[row] = bound
        # a job appears here only after its start: its submission and wait are learned at once
        elif not predictor.settings.sees_waiting:
            submit_s, wait_s = (column[row] for column in self._times)
            predictor.show(row, submit_s, wait_s, self._arrivals[row])
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


def make_predictor(settings: Settings, log: JobLog, further: FurtherBounds = NONE) -> Learner:
    """Return the predictor of a method, for jobs on this log's clock. ``further``: bounds from the
    state beside that of the settings."""
    if settings.looks_at_state:
        return StatePredictor(log, settings, further=further)
    return QueuePredictor(adapt_settings(settings, log))


def learn(log: JobLog, settings: Settings, until_s: float = np.inf) -> QueuePredictor:
    """Return a predictor with all information available by ``until_s``, from past waits alone."""
    predictor = QueuePredictor(adapt_settings(settings, log))
    replay(log, predictor, until_s)
    return predictor


def learn_state(log: JobLog, settings: Settings, until_s: float = np.inf) -> StatePredictor:
    """Return the same from states of the queue, for questions at that instant only: what a replay
    of the whole history would have learned by then, without what it has forgotten."""
    predictor = StatePredictor(log, settings, until_s)
    predictor.to(until_s)
    return predictor
