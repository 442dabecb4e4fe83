"""Questions to one queue's history, and their answers as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.progress import track
from rich.table import Table

from kernel.errors import InputError
from kernel.units import format_duration, format_instant
from portal.operations import Instant, open_history
from portal.progress import console
from qbets.backtest import BacktestRow
from qbets.backtest import backtest as run_backtest
from qbets.forecast import Bound, QueueForecast, forecast
from qbets.predictor import METHODS
from traces.history import history_name
from traces.records import JobLog
from vgrid.varq import Reservation, Trajectory


@dataclass(frozen=True, kw_only=True)
class AskedQueue:
    """A history, the instant at which it is asked, and what it says."""

    log: JobLog
    at_s: float
    forecast: QueueForecast

    @property
    def since(self) -> str:
        """RFC 3339 of the oldest history that still applies."""
        return format_instant(self.log.unix_start_s + self.forecast.since_s)


def ask_queue(
    history: Path, queue: str | None, at: Instant, method: str, format_name: str | None
) -> AskedQueue:
    """Open a history and learn from it what was known at an instant."""
    _check_method(method)
    log = open_history(history, format_name).only_queue(queue)
    at_s = log.instant(at)
    return AskedQueue(log=log, at_s=at_s, forecast=forecast(log, at_s, method))


def _check_method(method: str) -> None:
    if method not in METHODS:
        raise InputError(
            f"unknown method '{method}'", where="--method", fix=f"known: {', '.join(METHODS)}"
        )


def bound_text(answer: Bound, asked: AskedQueue) -> str:
    """GETBOUND in a sentence."""
    if answer.bound_s is None:
        return f"No bound can be given: {answer.reason}."
    return (
        f"A job like this waits at most {format_duration(answer.bound_s)} ({answer.bound_s:.0f} s) with probability "
        f"{answer.probability}, stated with confidence {answer.confidence} from {answer.jobs} waits since {asked.since}."
    )


def probability_json(
    asked: AskedQueue, chance: float, within_s: float, confidence: float
) -> dict[str, Any]:
    """``vgrads probability --json``."""
    return {
        "probability": chance, "within_s": within_s, "confidence": confidence, "method": asked.forecast.method,
        "jobs": len(asked.forecast.waits_s), "since": asked.since,
    }  # fmt: skip


def probability_text(answer: dict[str, Any]) -> str:
    """GETPROB in a sentence."""
    return (
        f"A job like this starts within {format_duration(answer['within_s'])} with probability {answer['probability']:.3f} "
        f"or more, stated with confidence {answer['confidence']} from {answer['jobs']} waits."
    )


def trajectory_text(path: Trajectory, wanted: Reservation) -> str:
    """VARQ in a sentence."""
    start = format_duration(wanted.start_by_s)
    if path.chosen is None:
        return (
            f"No instant of submission makes it run in {start} with probability {wanted.probability}; the best is in "
            f"{format_duration(path.submit_s[path.best])} with {path.probabilities[path.best]:.3f}."
        )
    return (
        f"Submit in {format_duration(path.submit_s[path.chosen])} asking for "
        f"{format_duration(path.walltimes_s[path.chosen])}: it then runs in {start} with probability "
        f"{path.probabilities[path.chosen]:.3f} or more."
    )


def backtest_all(
    histories: Sequence[Path],
    by: str,
    method: str,
    levels: tuple[float, float],
    format_name: str | None,
) -> list[BacktestRow]:
    """Backtest every log, as a whole or queue by queue, with a progress bar on the terminal."""
    _check_method(method)
    if by not in ("log", "queue"):
        raise InputError(f"'{by}' is not one of log, queue", where="--by")
    rows = []
    for path in track(histories, "backtest", console=console(stderr=True), transient=True):
        log = open_history(path, format_name)
        for queue in [None] if by == "log" else _queues(log):
            part = log.only_queue(queue)
            name = "*" if queue is None else log.queue_names.get(queue, str(queue))
            rows.append(run_backtest(part, history_name(path), name, method, *levels))
    return rows


def _queues(log: JobLog) -> list[int]:
    """Queue numbers, the busiest first."""
    codes = log.queue.tolist()
    return sorted(set(codes), key=lambda code: -codes.count(code))


def backtest_table(rows: Sequence[BacktestRow]) -> Table:
    """The rows for a terminal: coverage, worst 500 jobs, pinball loss, median bound, quick jobs bounded."""
    table = Table(box=SIMPLE_HEAD)
    for name in (
        "history",
        "queue",
        "scored",
        "cover",
        "worst",
        "pinball",
        "median",
        "quick",
        "jobs/s",
    ):
        table.add_column(name, justify="left" if name in ("history", "queue") else "right")
    for row in rows:
        table.add_row(
            row.history, row.queue, str(row.scored), _share(row.coverage), _share(row.worst_window_coverage),
            _time(row.pinball_s), _time(row.median_bound_s), _share(row.quick_bounded), f"{row.jobs_per_s:,.0f}",
        )  # fmt: skip
    return table


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _time(value: float | None) -> str:
    return "–" if value is None else format_duration(value)
