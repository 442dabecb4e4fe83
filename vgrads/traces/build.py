"""Rows of any accounting format → a :class:`JobLog`: names become numbers, broken lines are
counted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import parse_duration
from vgrads.traces.records import JobLog

BROKEN_SHARE = 0.01
_RULE = re.compile(r"\s*-+(\s+-+)*\s*")


@dataclass(slots=True)
class Job:
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
    """InputError where more than ``share`` of the lines are not what they should be."""
    if broken and len(broken) > share * (good + len(broken)):
        raise InputError(
            (
                f"{len(broken)} of {good + len(broken)} lines are no {what}, the first is line "
                f"{broken[0]}"
            ),
            where=name,
            fix="give --format if it is another format",
        )


def broken_warning(broken: Sequence[int]) -> tuple[str, ...]:
    """The warning that names the first skipped lines; empty where all were good."""
    if not broken:
        return ()
    lines = ", ".join(map(str, broken[:5])) + ("…" if len(broken) > 5 else "")
    return (f"skipped {len(broken)} broken line(s): {lines}",)


def requested_s(text: str) -> float:
    """Requested seconds; −1 for UNLIMITED, nothing, and whatever else is no duration."""
    try:
        return parse_duration(text)
    except InputError:
        return -1.0


def numbered(names: Iterable[str]) -> tuple[NDArray[np.int64], dict[int, str]]:
    """A number for each name, from 1 on in order of appearance, and the names by number."""
    codes: dict[str, int] = {}
    column = np.fromiter((codes.setdefault(name, len(codes) + 1) for name in names), dtype=np.int64)
    return column, {code: name for name, code in codes.items()}


def build_log(jobs: Sequence[Job], name: str, warnings: tuple[str, ...] = ()) -> JobLog:
    """Columns on a clock whose zero is the first submission; jobs that went back in time are left
    out."""
    kept = [
        job for job in jobs if (job.end_s if job.start_s is None else job.start_s) >= job.submit_s
    ]
    if not kept:
        raise InputError("no job of the history has a known wait", where=name)
    kept.sort(key=lambda job: job.submit_s)
    zero = kept[0].submit_s
    submit = np.array([job.submit_s for job in kept])
    left = np.array([job.end_s if job.start_s is None else job.start_s for job in kept])
    started = np.array([job.start_s is not None for job in kept])
    run = np.where(started, np.array([job.end_s for job in kept]) - left, -1.0)
    user, users = numbered(job.user for job in kept)
    queue, queues = numbered(job.queue for job in kept)
    procs = np.array([job.procs for job in kept], dtype=np.int64)
    return JobLog(
        name=name,
        submit_s=submit - zero,
        wait_s=left - submit,
        run_s=np.where(run < 0, -1.0, run),
        procs=procs,
        request_s=np.array([job.request_s for job in kept]),
        user=user,
        user_names=users,
        queue=queue,
        started=started,
        unix_start_s=zero,
        max_procs=int(procs.max()),
        queue_names=queues,
        warnings=warnings,
        bag=None if kept[0].bag is None else np.array([job.bag for job in kept], dtype=np.int64),
    )


def is_padded(text: str) -> bool:
    """True for what ``sacct`` prints without ``-P``: columns of fixed width, ruled off with
    dashes."""
    first, second = (*text.split("\n", 2)[:2], "")[:2]
    return bool(_RULE.fullmatch(second)) and "submit" in first.lower()
