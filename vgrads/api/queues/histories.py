"""Histories of queues: read once, learned from once, as long as their files do not change."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from pathlib import Path

from vgrads.api.queues.shelf import shelved
from vgrads.kernel.errors import InputError
from vgrads.qbets.arrays import distinct_starts
from vgrads.qbets.predictor import Settings
from vgrads.qbets.state_forecast import Known, known_of
from vgrads.traces.records import JobLog, LogQueue

AS_ASKED = Settings(method="state", knows_user=False)
"""What questions, offers and plans ask unless they are told otherwise; ``vgrads backtest`` proves
the same."""
Instant = float | datetime | None


@lru_cache(maxsize=64)
def _cached_log(path: str, _changed_ns: int, format_name: str | None) -> JobLog:
    from vgrads.traces.history import read_history  # noqa: PLC0415 late: what was learned before needs none of it

    return read_history(path, format_name)


def open_history(path: str | Path, format_name: str | None = None) -> JobLog:
    """A history, read once as long as its file does not change."""
    file = Path(path)
    check_there(file)
    return _cached_log(str(file), file.stat().st_mtime_ns, format_name)


def check_there(file: Path) -> None:
    """InputError where there is no such file."""
    if not file.is_file():
        raise InputError("no such file", where=str(file))


@lru_cache(maxsize=256)
def _cached_forecast(
    path: str, _changed_ns: int, queue: LogQueue, at_s: float, settings: Settings
) -> Known:
    def learn() -> Known:
        return known_of(open_history(path).only_queue(queue), at_s, settings)

    return shelved(Path(path), ("forecast", queue, at_s, settings), learn)


def cached_forecast(
    path: str, queue: LogQueue, at_s: float, settings: Settings | None = None
) -> Known:
    """What a history says at an instant to somebody of whom nothing is known, learned once as long
    as its file does not change."""
    changed_ns = Path(path).stat().st_mtime_ns
    return _cached_forecast(path, changed_ns, queue, at_s, settings or AS_ASKED)


@lru_cache(maxsize=256)
def _cached_counts(path: str, _changed_ns: int, queue: LogQueue) -> tuple[int, int]:
    log = open_history(path).only_queue(queue)
    return distinct_starts(log, log.end_s)


def cached_counts(path: str, queue: LogQueue) -> tuple[int, int]:
    """Jobs of a history that started, and as how many observations they count; counted once for a
    file."""
    return _cached_counts(path, Path(path).stat().st_mtime_ns, queue)
