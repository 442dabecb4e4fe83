"""Would the bounds have held? Histories replayed, in parallel over cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from os import cpu_count
from pathlib import Path

from vgrads.api.queues.histories import open_history
from vgrads.kernel.errors import InputError
from vgrads.qbets.backtest import BacktestRow, Trial, backtest
from vgrads.qbets.predictor import Settings
from vgrads.traces.history import history_name
from vgrads.traces.records import JobLog

WAYS = ("log", "queue", "cluster")


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One history to backtest, in a process of its own."""

    path: Path
    by: str
    settings: Settings
    format_name: str | None


Told = Callable[[float, float], None]
"""Called with what is done, and of how much."""


def backtest_all(replays: Sequence[Replay], told: Told | None = None) -> Iterator[list[Trial]]:
    """Backtest every history, in parallel over cores, in the order given; ``told`` hears how far it
    is."""
    for replay in replays:
        replay.settings.check()
        if replay.by not in WAYS:
            raise InputError(f"'{replay.by}' is not one of {', '.join(WAYS)}", where="--by")
    if len(replays) == 1:
        yield _trials(replays[0], told)
        return
    with ProcessPoolExecutor(min(len(replays), cpu_count() or 1)) as pool:
        for done, trials in enumerate(pool.map(_trials, replays), start=1):
            yield trials
            if told is not None:
                told(done, len(replays))


def _trials(replay: Replay, told: Told | None = None) -> list[Trial]:
    log = open_history(replay.path, replay.format_name)
    name = history_name(replay.path)
    if replay.by != "queue":
        return [backtest(log, name, "*", replay.settings, told)]
    return [_of_queue(replay, log, name, code, told) for code in _queues(log)]


def _of_queue(replay: Replay, log: JobLog, name: str, code: int, told: Told | None) -> Trial:
    queue = log.queue_names.get(code, str(code))
    return backtest(log.only_queue(code), name, queue, replay.settings, told)


def _queues(log: JobLog) -> list[int]:
    """Queue numbers, the busiest first."""
    codes = log.queue.tolist()
    return sorted(set(codes), key=lambda code: -codes.count(code))


def backtest_rows(trials: Sequence[Trial], by: str) -> list[BacktestRow]:
    """Lines of the table."""
    if by == "cluster":
        return [row for trial in trials for row in trial.cluster_rows()]
    return [trial.row() for trial in trials]
