"""What histories of queues teach: learned once while their files do not change."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from vgrads.api.queues.forecast_cache import cached, store, stored
from vgrads.api.queues.history_files import open_history
from vgrads.qbets.arrays import distinct_starts
from vgrads.qbets.predictor import Settings
from vgrads.qbets.state_forecast import AnyForecast, make_forecast
from vgrads.qbets.state_predictor import StatePredictor
from vgrads.traces.log_queue import LogQueue
from vgrads.traces.records import JobLog

AS_QUESTION = Settings(method="state", knows_user=False)
"""Default settings of questions, offers and plans; ``vgrads backtest`` tests the same."""


def learned_forecast(
    file: Path, log: JobLog, at_s: float, settings: Settings, queue: LogQueue = None
) -> AnyForecast:
    """Return the forecast of a history at an instant. The last replay of the file is stored, at its
    end and some days before, and continued when the file has grown."""

    def learn(whole: JobLog, chosen: Settings, until_s: float) -> StatePredictor:
        keys = [("replay", str(file.resolve()), chosen, where) for where in ("end", "anchor")]
        predictor = _resumed(keys, whole, chosen, until_s) or StatePredictor(whole, chosen, until_s)
        if predictor.now_s < predictor.stable_s < until_s:
            predictor.to(predictor.stable_s)
            store(keys[1], predictor)
        predictor.to(until_s)
        if until_s >= whole.end_s:
            store(keys[0], predictor)
        return predictor

    return make_forecast(log, at_s, settings, queue, learn)


def _resumed(
    keys: Sequence[object], log: JobLog, settings: Settings, until_s: float
) -> StatePredictor | None:
    """Return the first stored replay that the log continues."""
    for key in keys:
        result = stored(key)
        if isinstance(result, StatePredictor) and result.resumed(log, settings, until_s):
            return result
    return None


@lru_cache(maxsize=256)
def _cached_forecast(
    path: str, _changed_ns: int, queue: LogQueue, at_s: float, settings: Settings
) -> AnyForecast:
    def learn() -> AnyForecast:
        return learned_forecast(Path(path), open_history(path), at_s, settings, queue)

    return cached(Path(path), ("forecast", queue, at_s, settings), learn)


def cached_forecast(
    path: str, queue: LogQueue, at_s: float, settings: Settings | None = None
) -> AnyForecast:
    """Return the forecast of a history at an instant for an unknown user, learned once while its
    file does not change."""
    changed_ns = Path(path).stat().st_mtime_ns
    return _cached_forecast(path, changed_ns, queue, at_s, settings or AS_QUESTION)


@lru_cache(maxsize=256)
def _cached_counts(path: str, _changed_ns: int, queue: LogQueue) -> tuple[int, int]:
    log = open_history(path).only_queue(queue)
    return distinct_starts(log, log.end_s)


def cached_counts(path: str, queue: LogQueue) -> tuple[int, int]:
    """Return the number of started jobs of a history, and of the observations that they count as;
    counted once for a file."""
    return _cached_counts(path, Path(path).stat().st_mtime_ns, queue)
