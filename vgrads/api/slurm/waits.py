"""How long jobs have waited for a node, and when the next ones will start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgrads.api.slurm.records import JobRecord
from vgrads.api.slurm.table import JobTable

_MOST = 200
"""Past waits that count: the newest ones."""


@dataclass(frozen=True)
class ExpectedWait:
    """Seconds from submission to start: the middle of past waits, and the bound of most (.95)."""

    middle_s: float
    bound_s: float


def expected_wait(table: JobTable, partition: str) -> ExpectedWait | None:
    """Return how long jobs of a partition wait that nothing holds back; None without any record."""
    waits = sorted(_past_waits(table, partition))
    if not waits:
        return None
    return ExpectedWait(waits[len(waits) // 2], waits[min(len(waits) - 1, int(0.95 * len(waits)))])


def _past_waits(table: JobTable, partition: str) -> Sequence[float]:
    waits: list[float] = []
    for number in reversed(table.submissions):
        first = table.submissions[number][0]
        if first.submission.partition == partition and _waited_for_a_node(first):
            waits.append(max(0.0, (first.start_s or 0.0) - first.submission.submit_s))
        if len(waits) == _MOST:
            break
    return waits


def _waited_for_a_node(record: JobRecord) -> bool:
    stated = record.submission
    delayed = stated.dependency or stated.hold or stated.begin_s is not None or record.restarts
    return record.start_s is not None and not delayed
