"""How long jobs have waited for a node, and when the next ones will start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vgrads.api.slurm.records import JobRecord
from vgrads.api.slurm.table import JobTable

_MOST = 200
"""Past waits that count: the newest ones."""


@dataclass(frozen=True)
class ExpectedWait:
    """Seconds from submission to start: the middle of past waits, and the bound of most (.95);
    None where they are too few to support it."""

    middle_s: float
    bound_s: float | None = None

    def latest_s(self, submit_s: float) -> float | None:
        """Return the instant by which most of the jobs start that are submitted at an instant."""
        return None if self.bound_s is None else submit_s + self.bound_s


def expected_wait(table: JobTable, partition: str) -> ExpectedWait | None:
    """Return how long jobs of a partition wait that nothing holds back; None without any record."""
    waits = sorted(_list_past_waits(table, partition))
    if not waits:
        return None
    return ExpectedWait(waits[len(waits) // 2], covering(waits, 0.95))


def covering(waits_s: Sequence[float], probability: float) -> float | None:
    """Return the wait that the next job does not exceed with this probability, of ascending ones;
    None where so few cannot support it.

    >>> covering(range(1, 19), 0.95), covering(range(1, 20), 0.95), covering([], 0.5)
    (None, 19, None)
    """
    # the next wait is as likely to have any of n + 1 ranks among those of the past
    rank = math.ceil(probability * (len(waits_s) + 1) - 1e-9)
    return waits_s[rank - 1] if rank <= len(waits_s) else None


def _list_past_waits(table: JobTable, partition: str) -> Sequence[float]:
    waits: list[float] = []
    for number in reversed(table.submissions):
        first = table.submissions[number][0]
        if first.submission.partition == partition and _waited_for_a_node(first):
            waits.append(max(0.0, (first.start_s or 0.0) - first.submission.submit_s))
        if len(waits) == _MOST:
            break
    return waits


def _waited_for_a_node(record: JobRecord) -> bool:
    submission = record.submission
    delayed = (
        submission.dependency
        or submission.hold
        or submission.begin_s is not None
        or record.restarts
    )
    return record.start_s is not None and not delayed
