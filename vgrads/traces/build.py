"""Conversion of rows of any accounting format into a :class:`JobLog`: names become numbers, broken
lines are counted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, parse_duration
from vgrads.traces.records import JobLog

BROKEN_SHARE = 0.01
_RULE = re.compile(r"\s*-+(\s+-+)*\s*")


@dataclass(slots=True)
class AccountingJob:
    """One job of an accounting file, in seconds since 1970; ``start_s`` None: never started;
    ``bag`` as in JobLog."""

    submit_s: float
    start_s: float | None
    end_s: float
    procs: int
    request_s: float
    user: str
    queue: str
    bag: int | None = None


def refuse_broken(
    broken: Sequence[int], good: int, name: str, what: str, share: float = BROKEN_SHARE
) -> None:
    """Raise InputError if more than ``share`` of the lines are malformed."""
    if broken and len(broken) > share * (good + len(broken)):
        raise InputError(
            (
                f"{len(broken)} of {format_count(good + len(broken), 'line', 'are')} not valid "
                f"{what}, the first "
                "is line "
                f"{broken[0]}"
            ),
            where=name,
            fix="give --format if it is another format",
        )


def broken_warning(broken: Sequence[int]) -> tuple[str, ...]:
    """Return the warning that names the first skipped lines; empty if there are none."""
    if not broken:
        return ()
    lines = ", ".join(map(str, broken[:5])) + ("…" if len(broken) > 5 else "")
    return (f"skipped {len(broken)} broken line(s): {lines}",)


def requested_s(text: str) -> float:
    """Parse requested seconds; −1 for UNLIMITED, nothing, and any other text that is no
    duration."""
    try:
        return parse_duration(text)
    except InputError:
        return -1.0


def numbered(names: Iterable[str]) -> tuple[NDArray[np.int64], dict[int, str]]:
    """Return a number for each name, from 1 on in order of appearance, and the names by number."""
    codes: dict[str, int] = {}
    column = np.fromiter((codes.setdefault(name, len(codes) + 1) for name in names), dtype=np.int64)
    return column, {code: name for name, code in codes.items()}


def build_log(jobs: Sequence[AccountingJob], name: str, warnings: tuple[str, ...] = ()) -> JobLog:
    """Return columns on a clock whose zero is the first submission; jobs with decreasing times are
    omitted."""
    accounting_jobs = [
        job for job in jobs if (job.end_s if job.start_s is None else job.start_s) >= job.submit_s
    ]
    if not accounting_jobs:
        raise InputError("no job of the history has a known wait", where=name)
    accounting_jobs.sort(key=lambda job: job.submit_s)
    zero = accounting_jobs[0].submit_s
    submit = np.array([job.submit_s for job in accounting_jobs])
    left = np.array([job.end_s if job.start_s is None else job.start_s for job in accounting_jobs])
    started = np.array([job.start_s is not None for job in accounting_jobs])
    run = np.where(started, np.array([job.end_s for job in accounting_jobs]) - left, -1.0)
    user, users = numbered(job.user for job in accounting_jobs)
    queue, queues = numbered(job.queue for job in accounting_jobs)
    procs = np.array([job.procs for job in accounting_jobs], dtype=np.int64)
    return JobLog(
        name=name,
        submit_s=submit - zero,
        wait_s=left - submit,
        run_s=np.where(run < 0, -1.0, run),
        procs=procs,
        request_s=np.array([job.request_s for job in accounting_jobs]),
        user=user,
        user_names=users,
        queue=queue,
        started=started,
        unix_start_s=zero,
        max_procs=int(procs.max()),
        queue_names=queues,
        warnings=warnings,
        bag=None
        if accounting_jobs[0].bag is None
        else np.array([job.bag for job in accounting_jobs], dtype=np.int64),
    )


def is_padded(text: str) -> bool:
    """True for the output of ``sacct`` without ``-P``: columns of fixed width with a line of
    dashes."""
    first, second = (*text.split("\n", 2)[:2], "")[:2]
    return bool(_RULE.fullmatch(second)) and "submit" in first.lower()
