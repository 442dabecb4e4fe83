"""Questions to one queue's history, and their answers as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from os import cpu_count
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.progress import track
from rich.table import Table

from kernel.errors import InputError
from kernel.units import format_duration, format_instant
from portal.operations import Instant, cached_forecast, open_history
from portal.progress import console, progress_bar, share_text, time_text
from portal.sites import resolve_history
from qbets.backtest import BacktestRow, Trial, backtest
from qbets.explain import Reason, explain
from qbets.forecast import Bound, QueueForecast, forecast
from qbets.predictor import Settings
from qbets.state_forecast import StateForecast, forecast_state
from traces.history import history_name
from traces.records import JobLog
from vgrid.varq import STEP_S, Reservation, Trajectory, trajectory

WAYS = ("log", "queue", "cluster")


@dataclass(frozen=True, kw_only=True)
class AskedQueue:
    """A history, the instant at which it is asked, and what it says."""

    log: JobLog
    at_s: float
    forecast: QueueForecast | StateForecast

    @property
    def since(self) -> str:
        """RFC 3339 of the oldest history that still applies."""
        return self.instant(self.forecast.since_s)

    def instant(self, log_s: float) -> str:
        """RFC 3339 of an instant of the log's clock."""
        return format_instant(self.log.unix_start_s + log_s)


def ask_queue(
    history: Path, queue: str | None, at: Instant, settings: Settings, format_name: str | None
) -> AskedQueue:
    """Open a history and learn from it what was known at an instant."""
    settings.check()
    history, log_queue = resolve_history(history)
    log = open_history(history, format_name).only_queue(log_queue if queue is None else queue)
    at_s = log.instant(at)
    if not settings.looks_at_state:
        return AskedQueue(log=log, at_s=at_s, forecast=forecast(log, at_s, settings))
    with console(stderr=True).status("learning from states of the queue"):
        return AskedQueue(log=log, at_s=at_s, forecast=forecast_state(log, at_s, settings))


def ask_log(
    path: str,
    log_queue: str | int | None,
    settings: Settings,
    learned: StateForecast | None = None,
) -> AskedQueue:
    """What the whole of a catalogue's history says; learned once as long as its file does not change."""
    log = open_history(path).only_queue(log_queue)
    if learned is not None:
        return AskedQueue(log=log, at_s=log.end_s, forecast=learned)
    known = cached_forecast(path, log_queue, log.end_s, settings)
    return AskedQueue(log=log, at_s=log.end_s, forecast=known)


def refuse_too_wide(asked: AskedQueue, procs: int) -> None:
    """InputError where the machine behind a history has not that many processors."""
    most = max(asked.log.max_procs or 0, int(asked.log.procs.max()))
    if procs > most:
        raise InputError(
            f"{procs} processors are more than the machine of this history has, {most}",
            where="--procs",
        )


def bound_text(answer: Bound, asked: AskedQueue) -> str:
    """GETBOUND in a sentence, and what stands beside it."""
    if answer.bound_s is None:
        return f"No bound can be given: {answer.reason}."
    if answer.method == "state":
        return (
            f"A job like this, submitted now, waits at most {format_duration(answer.bound_s)} ({answer.bound_s:.0f} s) with "
            f"probability {answer.probability}, by the state of the queue and how {answer.jobs} such statements came true."
            + _downtime_text(asked)
        )
    return (
        f"A job like this waits at most {format_duration(answer.bound_s)} ({answer.bound_s:.0f} s) with probability "
        f"{answer.probability}, stated with confidence {answer.confidence} from {answer.jobs} waits since {asked.since}."
        + _downtime_text(asked)
    )


def explanation_of(
    asked: AskedQueue, procs: int, walltime_s: float, probability: float
) -> dict[str, Any]:
    """Whose bound it is and why, and what of the state moved it; nothing moved one by past waits."""
    known = asked.forecast
    if not isinstance(known, StateForecast):
        return {
            "method": known.method,
            "why": "only past waits were asked, or too few are known to learn more",
            "moved": [],
        }
    choice = known.choice()
    reasons = [] if choice.whose == "qbets" else explain(known, procs, walltime_s, probability)
    return {"method": known.method, "why": choice.why, "moved": [_reason_json(r) for r in reasons]}


def _reason_json(reason: Reason) -> dict[str, Any]:
    return {
        "side": reason.side, "told": _reason_words(reason), "bound_s": reason.bound_s,
        "usual_bound_s": reason.usual_bound_s, "moved_s": reason.moved_s,
    }  # fmt: skip


def _reason_words(reason: Reason) -> str | None:
    """What is unusual, in words."""
    if reason.seconds is None:
        return reason.told
    now, usual = (format_duration(s) for s in reason.seconds)
    return f"{now}, usually {usual}"


def explanation_text(explanation: dict[str, Any]) -> str:
    """Why, and the sides of the state that moved the bound, the strongest first."""
    lines = [f"Answered by {explanation['method']}: {explanation['why']}."]
    for entry in explanation["moved"]:
        way = "longer" if entry["moved_s"] >= 0 else "shorter"
        told = f" ({entry['told']})" if entry["told"] else ""
        lines.append(
            f"  {format_duration(abs(entry['moved_s'])):>8} {way} because of {entry['side']}{told}"
        )
    return "\n".join(lines)


def _downtime_text(asked: AskedQueue) -> str:
    stall = asked.forecast.downtime
    if stall is None:
        return ""
    return f"\nThe queue may be down: nothing has started since {asked.instant(stall.since_s)}, {stall.submissions} jobs came."


def probability_json(
    asked: AskedQueue, chance: float, within_s: float, jobs: int
) -> dict[str, Any]:
    """``vgrads probability --json``."""
    settings = asked.forecast.settings
    return {
        "probability": chance, "within_s": within_s, "confidence": settings.confidence, "method": asked.forecast.method,
        "jobs": jobs, "since": asked.since, "downtime": downtime_json(asked),
    }  # fmt: skip


def downtime_json(asked: AskedQueue) -> dict[str, Any] | None:
    """The present stall of the queue, if there is one."""
    stall = asked.forecast.downtime
    return (
        {"since": asked.instant(stall.since_s), "submissions": stall.submissions} if stall else None
    )


def probability_text(answer: dict[str, Any], asked: AskedQueue) -> str:
    """GETPROB in a sentence."""
    return (
        f"A job like this starts within {format_duration(answer['within_s'])} with probability {answer['probability']:.3f} "
        f"or more, stated with confidence {answer['confidence']} from {answer['jobs']} waits."
        + _downtime_text(asked)
    )


def walk(asked: AskedQueue, wanted: Reservation, step_s: float = STEP_S) -> Trajectory:
    """VARQ over what is known: the state of the queue speaks of now, past waits of later instants."""
    known = asked.forecast
    if isinstance(known, StateForecast):
        return trajectory(known.floor, wanted, step_s, at_once=known)
    return trajectory(known, wanted, step_s)


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


@dataclass(frozen=True, kw_only=True)
class Work:
    """One history to backtest, in a process of its own."""

    path: Path
    by: str
    settings: Settings
    format_name: str | None


def backtest_all(works: Sequence[Work]) -> Iterator[list[Trial]]:
    """Backtest every history, in parallel over cores, with a progress bar; in the order given."""
    for work in works:
        work.settings.check()
        if work.by not in WAYS:
            raise InputError(f"'{work.by}' is not one of {', '.join(WAYS)}", where="--by")
    bar = console(stderr=True)
    if len(works) == 1:
        with progress_bar("backtest") as told:
            yield _trials(works[0], told)
        return
    with ProcessPoolExecutor(min(len(works), cpu_count() or 1)) as pool:
        yield from track(
            pool.map(_trials, works), "backtest", total=len(works), console=bar, transient=True
        )


def _trials(work: Work, told: Callable[[float, float], None] | None = None) -> list[Trial]:
    log = open_history(work.path, work.format_name)
    name = history_name(work.path)
    if work.by != "queue":
        return [backtest(log, name, "*", work.settings, told)]
    return [
        backtest(
            log.only_queue(code), name, log.queue_names.get(code, str(code)), work.settings, told
        )
        for code in _queues(log)
    ]


def _queues(log: JobLog) -> list[int]:
    """Queue numbers, the busiest first."""
    codes = log.queue.tolist()
    return sorted(set(codes), key=lambda code: -codes.count(code))


def backtest_rows(trials: Sequence[Trial], by: str) -> list[BacktestRow]:
    """Lines of the table."""
    if by == "cluster":
        return [row for trial in trials for row in trial.cluster_rows()]
    return [trial.row() for trial in trials]


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
            row.history, row.queue, str(row.scored), share_text(row.coverage), share_text(row.worst_window_coverage),
            time_text(row.pinball_s), time_text(row.median_bound_s), share_text(row.quick_bounded), f"{row.jobs_per_s:,.0f}",
        )  # fmt: skip
    return table
