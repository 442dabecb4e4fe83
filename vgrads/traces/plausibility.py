"""Whether the values of a history are likely: what cannot be right, and what most likely caused
it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from vgrads.kernel.units import format_count, format_duration, format_instant
from vgrads.traces.records import JobLog

_ENOUGH = 100  # jobs; fewer may be alike by chance
_YEAR_S = 365.25 * 86400.0
_FIRST_UNIX_S = 20 * _YEAR_S  # no accounting is older than 1990
_ROUNDING = 1.05
"""Jobs that follow each other seem to overlap where times are rounded: 243 of 240 processors in
HPC2N-2002."""
_GAP_S = 14 * 86400.0


def find_implausible(log: JobLog) -> tuple[str, ...]:
    """Return warnings on unlikely values of a history, each with its probable cause."""
    return tuple(_find_implausible(log, time.time()))


def _find_implausible(log: JobLog, now_s: float) -> Iterator[str]:
    yield from _check_clock(log, now_s)
    if len(log) < _ENOUGH:
        return
    if log.procs.max() == 1:
        yield "every job has 1 processor: is the column with the processors missing?"
    both = (log.request_s > 0) & (log.run_s > 0)
    if both.sum() >= _ENOUGH:
        requested_s, ran_s = (
            float(np.median(log.request_s[both])),
            float(np.median(log.run_s[both])),
        )
        if requested_s < ran_s:
            yield (
                f"jobs request {format_duration(requested_s)} and run {format_duration(ran_s)} "
                "(medians): are minutes read as seconds?"
            )
    # users that are not known share one negative number
    if len(np.unique(log.user)) == 1 and log.user[0] >= 0:
        yield "all jobs are of one user: was the history written without 'allusers'?"
    if (log.wait_s == 0).mean() >= 0.5:
        share = (log.wait_s == 0).mean()
        yield f"{share:.0%} of the waits are 0: are starts written as submissions?"
    yield from _find_gaps(log)
    yield from _check_concurrency(log)


def _check_clock(log: JobLog, now_s: float) -> Iterator[str]:
    first_s, last_s = log.unix_start_s, log.unix_start_s + log.end_s
    if 0 < first_s + float(log.submit_s[0]) < _FIRST_UNIX_S and log.unix_start_s:
        yield (
            f"the first job was submitted at {format_instant(first_s)}: does its clock count "
            "from another year?"
        )
    if last_s > now_s + 86400.0:
        yield f"the history ends in the future, at {format_instant(last_s)}: is its clock wrong?"


def _find_gaps(log: JobLog) -> Iterator[str]:
    gaps_s = np.diff(log.submit_s)
    if not len(gaps_s) or float(gaps_s.max()) < _GAP_S:
        return
    where = int(gaps_s.argmax())
    begin = format_instant(log.unix_start_s + float(log.submit_s[where]))
    count = int((gaps_s >= _GAP_S).sum())
    others = f" and {format_count(count - 1, 'other time')}" if count > 1 else ""
    yield (
        f"no job was submitted for {format_duration(float(gaps_s[where]))} from {begin}{others}: "
        "is a part of the history missing?"
    )


def count_peak_procs(log: JobLog) -> int:
    """Return the most processors that ran jobs at one instant, of jobs whose run time is known."""
    rows = log.started & (log.run_s > 0)
    times = np.concatenate([log.start_s[rows], (log.start_s + log.run_s)[rows]])
    changes = np.concatenate([log.procs[rows], -log.procs[rows]])
    order = np.lexsort((changes, times))  # what ends makes room for what starts
    return int(np.cumsum(changes[order]).max(initial=0))


def _check_concurrency(log: JobLog) -> Iterator[str]:
    """Compare with the size that the log itself states; a format that states none has that of its
    widest job."""
    if log.max_procs > int(log.procs.max()):
        yield from find_more_than_stated(log, log.max_procs)


def find_more_than_stated(log: JobLog, procs: int) -> Iterator[str]:
    """Yield a warning if more processors ran jobs at once than the machine is said to have."""
    peak = count_peak_procs(log)
    if peak > _ROUNDING * procs:
        yield (
            f"{format_count(peak, 'processor')} ran jobs at once, {procs:,} are stated: do widths "
            "count hardware threads, or jobs of another machine?"
        )
