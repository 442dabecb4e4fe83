"""What scancel and scontrol request of jobs, apart from their end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vgrads.api.slurm.bags import ShapeBags
from vgrads.api.slurm.folders import JobFolders
from vgrads.api.slurm.journal import JobJournal
from vgrads.api.slurm.outcomes import place_of
from vgrads.api.slurm.records import ON_HOLD, JobRecord
from vgrads.api.slurm.shapes import Partitions
from vgrads.api.slurm.updates import BEFORE_START, NOT_PENDING, updated_fields
from vgrads.api.slurm.waiting import WaitingJobs
from vgrads.slurm.errors import SlurmError, command_error
from vgrads.slurm.job import JobState
from vgrads.slurm.scontrol import ControlQuery

_OF_PROGRAM = {"limit_s", "requeue"}
"""What the program on the node reads of that."""


class JobControl:
    """Changes jobs. ``consider`` releases those that nothing holds back; ``run_again`` makes a job
    pending anew."""

    def __init__(
        self,
        bags: ShapeBags,
        folders: JobFolders,
        journal: JobJournal,
        waiting: WaitingJobs,
        consider: Callable[[Sequence[JobRecord]], None],
        run_again: Callable[[JobRecord], None],
    ) -> None:
        self._bags, self._folders = bags, folders
        self._journal, self._waiting = journal, waiting
        self._consider, self._run_again = consider, run_again

    def jobs_of(self, number: int) -> list[JobRecord]:
        """Return the jobs of a submission."""
        return self._journal.table.submissions[number]

    def signal(self, records: Sequence[JobRecord], number: int, to: str) -> None:
        """Send a signal to jobs that run: to their ``batch`` shell, their ``steps``, or ``all``
        their processes."""
        for record in records:
            if record.state is JobState.RUNNING:
                self._folders.send(*place_of(record), "signal", str(number), to)

    def hold(self, records: Sequence[JobRecord], hold: bool) -> list[JobRecord]:
        """Hold jobs, or release those on hold; return those that run already."""
        if hold:
            self._bags.withdraw(records)
        # what a node has taken could not be withdrawn: it runs
        changed = [record for record in records if not record.is_released]
        self._bags.change(changed, {"hold": hold, "reason": ON_HOLD if hold else "None"})
        for record in changed:
            self._consider([record])
        return [record for record in records if record.is_released] if hold else []

    def update(self, number: int, fields: Mapping[str, Any]) -> bool:
        """Change what was stated of a submission. Return False, and change nothing, where that is
        possible only before a job starts, and a node has one. Raise OSError."""
        records = self.jobs_of(number)
        pending = [record for record in records if record.state is JobState.PENDING]
        if fields.keys() & (BEFORE_START | {"limit_s"}):
            # withdrawn before it is changed, so that no node takes it with what was stated before
            self._bags.withdraw(pending)
        if fields.keys() & BEFORE_START and any(record.is_released for record in pending):
            # nothing is changed: what was withdrawn above is released again
            self._consider(records)
            return False
        if spec := {name: fields[name] for name in _OF_PROGRAM & fields.keys()}:
            self._folders.change(number, spec)
        self._journal.write({"updated": number, "fields": dict(fields)})
        if "dependency" in fields:
            self._bags.change(pending, {"dependency": fields["dependency"]})
        if "limit_s" in fields:
            self._send_limit(records, fields["limit_s"])
        # it may wait for other jobs now
        self._waiting.forget(number)
        self._waiting.register(records[0])
        self._consider(records)
        return True

    def _send_limit(self, records: Sequence[JobRecord], limit_s: float | None) -> None:
        for record in records:
            if record.is_released and not record.state.is_terminal:
                text = "inf" if limit_s is None else str(limit_s)
                self._folders.send(*place_of(record), "limit", text)

    def requeue(self, record: JobRecord) -> bool:
        """Run a job again; return False where its files are gone."""
        if not self._folders.exists(record.submission.id):
            return False
        if record.is_released and not record.state.is_terminal:
            self._folders.send(*place_of(record), "requeue")
        else:
            self._run_again(record)
        return True


def update_jobs(
    records: Sequence[JobRecord], query: ControlQuery, control: JobControl, partitions: Partitions
) -> list[tuple[str, str]]:
    """Change the submissions of jobs; return those that could not be changed, with the reasons.
    Raise SlurmError for single tasks of an array."""
    if query.ids.tasks:
        message = "single tasks of an array cannot be updated by vgrads; name the whole array"
        raise command_error("scontrol", message)
    problems = []
    for first in {record.submission.id: record for record in records}.values():
        number = first.submission.id
        try:
            jobs = control.jobs_of(number)
            fields = updated_fields(jobs, query.changes, partitions)
        except SlurmError as error:
            problems.append((str(number), error.what))
            continue
        if fields and not control.update(number, fields):
            problems.append((str(number), NOT_PENDING))
        elif query.changes.priority == 0:
            control.hold([record for record in jobs if not record.state.is_terminal], True)
    return problems
