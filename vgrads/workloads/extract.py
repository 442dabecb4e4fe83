"""Bags in a queue history: as recorded in its log, else tasks of one user that were submitted close
to each other."""

from __future__ import annotations

import numpy as np

from vgrads.kernel.errors import InputError
from vgrads.kernel.streams import stream
from vgrads.traces.records import Bools, Ints, JobLog
from vgrads.workloads.workload import BagColumns

GAP_S = 120.0
"""Longest pause between two submissions of one bag: the delay used by Iosup, Jan, Sonmez and Epema
for groups of jobs (Euro-Par 2007, doi:10.1007/978-3-540-74466-5_42)."""


def extract_bags(log: JobLog, gap_s: float | None = None, seed: int = 0) -> BagColumns:
    """Return all bags of a history, single jobs as bags of one; a parallel job counts as a task of
    its processor time.

    Without ``gap_s`` (seconds) bags are those recorded in the log itself, else jobs that one user
    submitted within :data:`GAP_S`. Users get their numbers, which are priorities, at random
    (``seed``). Raises InputError where the history does not name users, or no job in it ran.
    """
    if gap_s is not None and not gap_s >= 0:
        raise InputError(f"{gap_s} is below 0", where="gap")
    ran = log.select(log.started & (log.run_s > 0))
    if len(ran) == 0:
        raise InputError("no job of this history ran", where=log.name)
    if (ran.user < 0).all():
        raise InputError("does not name users, so jobs cannot be grouped into bags", where=log.name)
    order, begins = _sort_into_runs(ran, gap_s)
    user, submit = ran.user[order], ran.submit_s[order]
    bag = np.cumsum(begins) - 1
    starts = np.flatnonzero(begins)
    sizes = np.diff(np.append(starts, len(order)))
    when = np.argsort(submit[starts], kind="stable")
    place = np.empty(len(when), dtype=np.int64)
    place[when] = np.arange(len(when))
    tasks = np.argsort(place[bag], kind="stable")
    work = (ran.run_s * np.maximum(ran.procs, 1))[order]
    bags = BagColumns(
        submit_s=submit[starts][when],
        user=_number_users(user[starts][when], seed),
        home=np.zeros(len(when), dtype=np.int64),
        first=np.concatenate([[0], np.cumsum(sizes[when])]).astype(np.int64),
        runtime_s=work[tasks],
    )
    bags.check()
    return bags


def _sort_into_runs(log: JobLog, gap_s: float | None) -> tuple[Ints, Bools]:
    """Return jobs in an order in which those of a bag are adjacent, and where in it bags begin."""
    begins = np.ones(len(log), dtype=np.bool_)
    if gap_s is None and log.bag is not None:
        order = np.lexsort((log.submit_s, log.bag, log.user))
        user, bag = log.user[order], log.bag[order]
        # a job without a bag is one of its own
        begins[1:] = (np.diff(user) != 0) | (np.diff(bag) != 0) | (bag[1:] < 0)
        return order, begins
    order = np.lexsort((log.submit_s, log.user))
    longest_s = GAP_S if gap_s is None else gap_s
    begins[1:] = (np.diff(log.user[order]) != 0) | (np.diff(log.submit_s[order]) > longest_s)
    return order, begins


def _number_users(users: Ints, seed: int) -> Ints:
    """Number users independently of how much they submit."""
    names = np.unique(users)
    numbers = stream(seed, "priorities").permutation(len(names))
    return np.asarray(numbers[np.searchsorted(names, users)])
