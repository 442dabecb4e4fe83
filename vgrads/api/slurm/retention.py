"""Removes what is stored of jobs that have ended: files soon, jobs after a stated time."""

from __future__ import annotations

from collections.abc import Callable

from vgrads.api.slurm.folders import JobFolders
from vgrads.api.slurm.journal import JobJournal
from vgrads.api.slurm.records import MIN_JOB_AGE_S
from vgrads.api.slurm.table import JobTable

KEEP_S = 90 * 86_400.0
_LOOK_S = 60.0


def remove_ended(table: JobTable, folders: JobFolders, before_s: float = float("inf")) -> None:
    """Remove environment and script of jobs that had ended by then: all, where no service runs."""
    for number in table.ended_before(before_s):
        folders.remove(number)


class JobRetention:
    """What is removed when. ``keep_s``: how long ended jobs are listed, in seconds."""

    def __init__(
        self, journal: JobJournal, folders: JobFolders, keep_s: float, clock: Callable[[], float]
    ) -> None:
        self._journal, self._folders, self._keep_s, self._clock = journal, folders, keep_s, clock
        self._looked_s = clock()

    def look(self) -> None:
        """Remove environment and script of jobs that can no longer be requeued, and old jobs."""
        now_s, table = self._clock(), self._journal.table
        remove_ended(table, self._folders, now_s - MIN_JOB_AGE_S)
        if now_s - self._looked_s > _LOOK_S:
            self._looked_s = now_s
            for number in table.older_than(now_s - self._keep_s):
                self._journal.write({"removed": number}, durable=False)
