"""Answers of a queue's history for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from vgrads.api.queues.queries import AskedQueue
from vgrads.kernel.units import format_duration, format_share
from vgrads.qbets.backtest import BacktestRow
from vgrads.qbets.forecast import Bound
from vgrads.vgrid.varq import Reservation, Trajectory


def bound_text(answer: Bound, asked: AskedQueue) -> str:
    """GETBOUND in a sentence, and what stands beside it."""
    if answer.bound_s is None:
        return f"No bound can be given: {answer.reason}.{_merged_text(asked)}"
    if answer.method == "state":
        return (
            "A job like this, submitted now, waits at most "
            f"{format_duration(answer.bound_s)} ({answer.bound_s:.0f} s) with "
            f"probability {answer.probability}, by the state of the queue and how "
            f"{answer.jobs} such statements came true."
            + _merged_text(asked)
            + _downtime_text(asked)
        )
    return (
        f"A job like this waits at most {format_duration(answer.bound_s)} "
        f"({answer.bound_s:.0f} s) with probability "
        f"{answer.probability}, stated with confidence {answer.confidence} from "
        f"{answer.jobs} waits since {asked.since}." + _merged_text(asked) + _downtime_text(asked)
    )


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


def _merged_text(asked: AskedQueue) -> str:
    """That jobs of arrays were taken together, where that is most of them."""
    if asked.jobs is None or asked.distinct is None or asked.distinct > asked.jobs / 2:
        return ""
    return (
        f"\nOf the history's {asked.jobs} jobs {asked.distinct} are distinct: equal ones "
        "of one user that come and start within "
        "a minute are one observation (--no-arrays takes each)."
    )


def _downtime_text(asked: AskedQueue) -> str:
    stall = asked.forecast.downtime
    if stall is None:
        return ""
    return (
        f"\nThe queue may be down: nothing has started since {asked.instant(stall.since_s)}, "
        f"{stall.submissions} jobs came."
    )


def probability_text(answer: dict[str, Any], asked: AskedQueue) -> str:
    """GETPROB in a sentence."""
    if answer["method"] == "state":
        return (
            "A job like this, submitted now, starts within "
            f"{format_duration(answer['within_s'])} with probability "
            f"{answer['probability']:.3f}, by the state of the queue and how "
            f"{answer['jobs']} such statements came true." + _downtime_text(asked)
        )
    return (
        f"A job like this starts within {format_duration(answer['within_s'])} with "
        f"probability {answer['probability']:.3f} "
        f"or more, stated with confidence {answer['confidence']} from {answer['jobs']} waits."
        + _downtime_text(asked)
    )


def trajectory_text(path: Trajectory, wanted: Reservation) -> str:
    """VARQ in a sentence."""
    start = format_duration(wanted.start_by_s)
    if path.chosen is None:
        return (
            f"No instant of submission makes it run in {start} with probability "
            f"{wanted.probability}; the best is in "
            f"{format_duration(path.submit_s[path.best])} with {path.probabilities[path.best]:.3f}."
        )
    return (
        f"Submit in {format_duration(path.submit_s[path.chosen])} asking for "
        f"{format_duration(path.walltimes_s[path.chosen])}: it then runs in {start} with "
        "probability "
        f"{path.probabilities[path.chosen]:.3f} or more."
    )


def backtest_table(rows: Sequence[BacktestRow]) -> Table:
    """The rows for a terminal: coverage, worst 500 jobs, pinball loss, median bound, quick jobs
    bounded."""
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
            row.history,
            row.queue,
            str(row.scored),
            format_share(row.coverage),
            format_share(row.worst_window_coverage),
            format_duration(row.pinball_s),
            format_duration(row.median_bound_s),
            format_share(row.quick_bounded),
            f"{row.jobs_per_s:,.0f}",
        )
    return table
