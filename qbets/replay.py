"""A recorded history fed to a predictor, with nothing told before its time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from qbets.predictor import Arrival, QueuePredictor, Settings
from traces.records import JobLog

_SUBMIT, _LEAVE = 0, 1


def queue_events(log: JobLog, until_s: float = np.inf) -> Iterator[tuple[float, int, int]]:
    """``(time, kind, row)`` in time order, submissions first among simultaneous ones.

    Submissions first: whoever submits at the very second in which another job starts does not know
    that yet.
    """
    rows = np.tile(np.arange(len(log)), 2)
    times = np.concatenate([log.submit_s, log.start_s])
    kinds = np.repeat([_SUBMIT, _LEAVE], len(log))
    order = np.lexsort((rows, kinds, times))
    order = order[times[order] <= until_s]
    return zip(times[order].tolist(), kinds[order].tolist(), rows[order].tolist(), strict=True)


def replay(log: JobLog, predictor: QueuePredictor, until_s: float = np.inf) -> NDArray[np.float64]:
    """Feed a history up to an instant; the bound issued to each job, NaN where there was none."""
    issued = np.full(len(log), np.nan)
    started = log.started.tolist()
    arrivals = [
        Arrival(*row)
        for row in zip(log.procs.tolist(), log.request_s.tolist(), log.user.tolist(), strict=True)
    ]
    for at_s, kind, row in queue_events(log, until_s):
        if kind == _SUBMIT:
            bound = predictor.submit(row, at_s, arrivals[row])
            if bound is not None:
                issued[row] = bound
        elif started[row]:
            predictor.start(row, at_s)
        else:
            predictor.withdraw(row, at_s)
    if np.isfinite(until_s):
        predictor.advance(max(until_s, predictor.now_s))
    return issued


def learn(log: JobLog, settings: Settings, until_s: float = np.inf) -> QueuePredictor:
    """A predictor that knows everything that had become known by ``until_s``."""
    predictor = QueuePredictor(settings)
    replay(log, predictor, until_s)
    return predictor
