"""Bags in a queue history: tasks of one user that were submitted close to each other."""

from __future__ import annotations

import numpy as np

from bags.workload import Bags
from kernel.errors import InputError
from traces.records import JobLog

GAP_S = 120.0
"""Longest pause between two submissions of one bag: the delay that Iosup, Jan, Sonmez and Epema took for groups
of jobs (Euro-Par 2007, doi:10.1007/978-3-540-74466-5_42)."""


def extract_bags(log: JobLog, gap_s: float = GAP_S) -> Bags:
    """All bags of a history, single jobs as bags of one; a parallel job counts as a task of its processor time.

    InputError where the history does not name users, or nothing in it ran.
    """
    if not gap_s >= 0:
        raise InputError(f"{gap_s} is below 0", where="gap")
    ran = log.select(log.started & (log.run_s > 0))
    if len(ran) == 0:
        raise InputError("no job of this history ran", where=log.name)
    if (ran.user < 0).all():
        raise InputError(
            "does not name users: there is no telling which jobs belong together", where=log.name
        )
    order = np.lexsort((ran.submit_s, ran.user))
    user, submit = ran.user[order], ran.submit_s[order]
    begins = np.ones(len(order), dtype=np.bool_)
    begins[1:] = (np.diff(user) != 0) | (np.diff(submit) > gap_s)
    bag = np.cumsum(begins) - 1
    starts = np.flatnonzero(begins)
    sizes = np.diff(np.append(starts, len(order)))
    when = np.argsort(submit[starts], kind="stable")
    place = np.empty(len(when), dtype=np.int64)
    place[when] = np.arange(len(when))
    tasks = np.argsort(place[bag], kind="stable")
    work = (ran.run_s * np.maximum(ran.procs, 1))[order]
    found = Bags(
        submit_s=submit[starts][when], user=_ranks(user[starts][when]), home=np.zeros(len(when), dtype=np.int64),
        first=np.concatenate([[0], np.cumsum(sizes[when])]).astype(np.int64), runtime_s=work[tasks],
    )  # fmt: skip
    found.check()
    return found


def _ranks(users: np.ndarray) -> np.ndarray:
    """Users by how many bags they submitted, 0 the busiest."""
    names, counts = np.unique(users, return_counts=True)
    rank = np.empty(len(names), dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(names))
    return np.asarray(rank[np.searchsorted(names, users)])
