"""What histories of queues teach: learned once while their files do not change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from vgrads.api.queues.forecast_cache import cached, store, stored
from vgrads.api.queues.history_files import open_history
from vgrads.qbets.arrays import count_distinct_starts
from vgrads.qbets.predictor import Settings
from vgrads.qbets.state_forecast import (
    AnyForecast,
    StateForecast,
    find_present,
    make_forecast,
)
from vgrads.qbets.state_predictor import StatePredictor, list_anchors
from vgrads.qbets.viewed_log import choose_view_at, end_of, find_longest_delay_s, select_view
from vgrads.qbets.views import BEST
from vgrads.traces.log_queue import LogQueue
from vgrads.traces.records import JobLog

AS_QUESTION = Settings(method="state", knows_user=False)
"""Default settings of questions, offers and plans, in the view of all jobs; ``vgrads backtest``
tests the same."""
_IDENTIFYING = 64
"""First jobs of a history that identify it."""


def settings_at(log: JobLog, at_s: float | None, settings: Settings) -> Settings:
    """Return settings with the view that a history permits at an instant (None: its end), where
    they name none."""
    return replace(settings, view=choose_view_at(log, at_s)) if settings.view == BEST else settings


def learned_forecast(
    log: JobLog, at_s: float | None, settings: Settings, queue: LogQueue = None
) -> AnyForecast:
    """Return the forecast of a history at an instant (None: its end), in the view of the settings.
    The last replay of the history is stored, at three of its instants, and continued when the
    history has grown, in any file. At the instant at which the history was taken, the jobs that it
    lists as waiting and running are the queue."""
    settings = settings_at(log, at_s, settings)
    at_s = end_of(log, settings.view) if at_s is None else at_s
    result = make_forecast(log, at_s, settings, queue, _learn_predictor)
    if isinstance(result, StateForecast) and settings.sees_waiting:
        present = find_present(log, result.settings, at_s)
        if present is not None:
            return result.with_queue(present)
    return result


def _learn_predictor(log: JobLog, settings: Settings, until_s: float) -> StatePredictor:
    """Return a predictor at an instant, continued from the first stored replay that has the same
    events and what the instant needs.

    Stored are the end, an instant before which almost all jobs have appeared by the end (a job that
    waits at the end is reported only later), and the newest two anchors before the instant, from
    which questions at other instants continue.
    """
    anchors = _find_anchors(log, settings, until_s)
    keys = replay_keys(log, settings, until_s)
    predictor = _resume_replay(keys.values(), log, settings, until_s)
    predictor = predictor or StatePredictor(log, settings, until_s)
    stops = anchors | {"recent": log.end_s - find_longest_delay_s(log, settings.view)}
    # a replay only goes forward: the earliest stop first
    for name, stop_s in sorted(stops.items(), key=lambda item: item[1]):
        if predictor.now_s < stop_s < until_s:
            predictor.to(stop_s)
            store(keys[name], predictor)
    predictor.to(until_s)
    if until_s >= log.end_s:
        store(keys["end"], predictor)
    return predictor


def _find_anchors(log: JobLog, settings: Settings, until_s: float) -> dict[str, float]:
    """Return the instants of the newest two anchors before an instant."""
    viewed = select_view(log, settings.view)
    counts = list_anchors(viewed.count_at(until_s))[-2:]
    return {f"anchor {count}": float(viewed.shown_s[count - 1]) for count in reversed(counts)}


def replay_keys(log: JobLog, settings: Settings, until_s: float) -> dict[str, object]:
    """Return the keys of the stored replays of a history from which one up to an instant may
    continue, the newest first."""
    names = ("end", "recent", *_find_anchors(log, settings, until_s))
    return {name: ("replay", history_identity(log), settings, name) for name in names}


def history_identity(log: JobLog) -> str:
    """Return a digest of the first jobs of a history: they identify it, whatever its file's name,
    as long as it only grows."""
    first = hashlib.sha256(repr(log.unix_start_s).encode())
    for column in (log.submit_s, log.procs):
        first.update(np.ascontiguousarray(column[:_IDENTIFYING]).tobytes())
    return first.hexdigest()


def _resume_replay(
    keys: Iterable[object], log: JobLog, settings: Settings, until_s: float
) -> StatePredictor | None:
    """Return the first stored replay that the log continues."""
    for key in keys:
        result = stored(key)
        if isinstance(result, StatePredictor) and result.resumed(log, settings, until_s):
            return result
    return None


@lru_cache(maxsize=256)
def _cached_forecast(
    path: str, _changed_ns: int, queue: LogQueue, at_s: float | None, settings: Settings
) -> AnyForecast:
    def learn() -> AnyForecast:
        return learned_forecast(open_history(path), at_s, settings, queue)

    return cached(Path(path), ("forecast", queue, at_s, settings), learn)


def cached_forecast(
    path: str, queue: LogQueue, at_s: float | None, settings: Settings | None = None
) -> AnyForecast:
    """Return the forecast of a history at an instant (None: its end) for an unknown user, in the
    view that it permits unless ``settings`` name another, learned once while its file does not
    change."""
    changed_ns = Path(path).stat().st_mtime_ns
    chosen = settings or replace(AS_QUESTION, view=BEST)
    return _cached_forecast(path, changed_ns, queue, at_s, chosen)


@lru_cache(maxsize=256)
def _cached_counts(path: str, _changed_ns: int, queue: LogQueue) -> tuple[int, int]:
    log = open_history(path).only_queue(queue)
    return count_distinct_starts(log, log.end_s)


def cached_counts(path: str, queue: LogQueue) -> tuple[int, int]:
    """Return the number of started jobs of a history, and of the observations that they count as;
    counted once for a file."""
    return _cached_counts(path, Path(path).stat().st_mtime_ns, queue)
