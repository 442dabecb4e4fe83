"""Backtests of bounds: histories replayed, in parallel over cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from os import cpu_count
from pathlib import Path
from typing import Any, NamedTuple

from vgrads.api.queues.forecast_cache import store, stored
from vgrads.api.queues.forecast_scores import ALARM_LEVEL
from vgrads.api.queues.histories import history_identity
from vgrads.api.queues.history_files import open_history
from vgrads.api.queues.queries import reading_json
from vgrads.kernel.arrays import Bools
from vgrads.kernel.errors import InputError
from vgrads.kernel.process_pool import process_pool
from vgrads.qbets.backtest import BacktestRow, Trial, backtest_levels
from vgrads.qbets.predictor import Settings
from vgrads.qbets.views import VIEWS
from vgrads.traces.history import history_name
from vgrads.traces.log_queue import ALL_QUEUES, LogQueue
from vgrads.traces.reading_options import DETECTED, ReadingOptions
from vgrads.traces.records import JobLog

WAYS = ("log", "queue", "cluster", "group")


@dataclass(frozen=True, kw_only=True)
class BacktestJob:
    """One history to backtest, in a separate process, with bounds of these probabilities; None:
    that of the settings."""

    path: Path
    by: str
    settings: Settings
    reading: ReadingOptions = DETECTED
    probabilities: tuple[float, ...] | None = None


ProgressCallback = Callable[[float, float], None]
"""Called with the amount done, and the total."""


def backtest_all(
    replays: Sequence[BacktestJob], callback: ProgressCallback | None = None
) -> Iterator[list[Trial]]:
    """Backtest every history, in parallel over cores, in the given order; ``callback`` receives the
    progress."""
    # all are checked before any process is started
    for replay in replays:
        replay.settings.check()
        if replay.by not in WAYS:
            raise InputError(
                f"unknown value '{replay.by}'; choose one of {', '.join(WAYS)}", where="--by"
            )
        if replay.settings.view not in VIEWS:
            raise InputError(
                f"unknown value '{replay.settings.view}'; choose one of {', '.join(VIEWS)}",
                where="--view",
            )
    # a single one in this process, where it can report its progress
    if len(replays) == 1:
        yield _run_trials(replays[0], callback)
        return
    with process_pool(min(len(replays), cpu_count() or 1)) as pool:
        for done, trials in enumerate(pool.map(_run_trials, replays), start=1):
            yield trials
            if callback is not None:
                callback(done, len(replays))


def _run_trials(replay: BacktestJob, callback: ProgressCallback | None = None) -> list[Trial]:
    log = open_history(replay.path, replay.reading)
    trials = _list_trials(replay, log, callback)
    if replay.settings.looks_at_state:
        _keep_backtests(log, trials)
    return trials


class KeptBacktest(NamedTuple):
    """What the last backtest of a history, by the method of plans, found for a queue: waits
    scored, those within their bounds at :data:`ALARM_LEVEL`, and the day."""

    scored: int
    covered: int
    day: str


def _keep_backtests(log: JobLog, trials: Iterable[Trial]) -> None:
    day = datetime.now(UTC).date().isoformat()
    for trial in trials:
        scored = trial.scored
        if trial.probability == ALARM_LEVEL and scored.any():
            covered = int((trial.log.wait_s[scored] <= trial.issued_s[scored]).sum())
            kept = KeptBacktest(int(scored.sum()), covered, day)
            store(_name_backtest(log, trial.queue), kept)


def find_kept_backtest(log: JobLog, queue: LogQueue) -> KeptBacktest | None:
    """Return what the last backtest of a history found for a queue, or for all its jobs."""
    code = log.largest_queue(queue)
    names = ([_find_queue_name(log, code)] if code >= 0 else []) + [ALL_QUEUES]
    found = (stored(_name_backtest(log, name)) for name in names)
    return next((kept for kept in found if isinstance(kept, KeptBacktest)), None)


def _name_backtest(log: JobLog, queue: str) -> tuple[str, str, str]:
    return "backtest", history_identity(log), queue


def _list_trials(
    replay: BacktestJob, log: JobLog, callback: ProgressCallback | None
) -> list[Trial]:
    name = history_name(replay.path)
    settings = replay.settings
    levels = replay.probabilities or (settings.quantile,)
    if replay.by != "queue":
        return backtest_levels(log, name, ALL_QUEUES, settings, levels, callback)
    codes = _list_queues(log)
    if settings.looks_at_state:  # queues share the machine
        wholes = backtest_levels(log, name, ALL_QUEUES, settings, levels, callback)
        return [
            _select_part(whole, log.queue == code, _find_queue_name(log, code))
            for whole in wholes
            for code in codes
        ]
    trials = []
    for code in codes:
        part = log.only_queue(code)
        trials += backtest_levels(
            part, name, _find_queue_name(log, code), settings, levels, callback
        )
    return trials


def _select_part(trial: Trial, part: Bools, queue: str) -> Trial:
    """Return the results of these jobs only."""
    return replace(trial, queue=queue, log=trial.log.select(part), issued_s=trial.issued_s[part])


def _find_queue_name(log: JobLog, code: int) -> str:
    return log.queue_names.get(code, str(code))


def _list_queues(log: JobLog) -> list[int]:
    """Return queue numbers, the busiest first."""
    codes = log.queue.tolist()
    return sorted(set(codes), key=lambda code: -codes.count(code))


def histories_json(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """Return what was read of the file of each history."""
    logs = {trial.log.name: trial.log for trial in trials}
    return [{"file": name, "reading": reading_json(log)} for name, log in logs.items()]


def backtest_rows(trials: Sequence[Trial], by: str) -> list[BacktestRow]:
    """Return the rows of the table."""
    if by == "cluster":
        return [row for trial in trials for row in trial.cluster_rows()]
    if by == "group":
        return [row for trial in trials for row in trial.group_rows()]
    return [trial.row() for trial in trials]
