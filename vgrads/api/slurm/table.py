"""All jobs of a service: the fold of what was stored."""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from vgrads.api.slurm.records import FIRST_ID, JobRecord, RunKey, StoredSubmission, submission_from
from vgrads.slurm.arrays import format_indices
from vgrads.slurm.dependencies import Dependency, parse_dependency
from vgrads.slurm.job import Job, JobState

_RUNS = 100
"""So many run times of a name, script and limit count: the newest ones."""

PromisePoint = tuple[float, float | None]
"""Unix seconds, and the probability that a group keeps its deadline; None: none can be given."""


def promise_event(
    group: str, at_s: float, probability: float | None, began_s: float
) -> dict[str, Any]:
    """Return the event that stores a promise; ``began_s``: earlier ones are of another run."""
    return {"promise": group, "at_s": at_s, "probability": probability, "began_s": began_s}


class JobTable:
    """All jobs that are not yet removed, by id; the fold of what was stored."""

    def __init__(self) -> None:
        self.submissions: dict[int, list[JobRecord]] = {}
        self.records: dict[int, JobRecord] = {}
        self.requests: dict[str, int] = {}
        self.groups: defaultdict[str, list[int]] = defaultdict(list)  # name → submissions
        self.unfinished: dict[int, int] = {}  # how many jobs of a submission have not ended
        self._active: Counter[int] = Counter()  # those of them that are tasks of bags
        self._ended: dict[int, float] = {}  # when all jobs of a submission had ended
        self.bags: dict[int, list[Any]] = {}  # number of a bag → shape of its jobs
        self.runs_s: defaultdict[RunKey, deque[float]] = defaultdict(lambda: deque(maxlen=_RUNS))
        self.promises: dict[str, list[PromisePoint]] = {}  # of the current run of each group
        self.next_id = FIRST_ID

    def apply(self, event: Mapping[str, Any]) -> None:
        """Apply a stored event."""
        if "submitted" in event:
            self.add(submission_from(event["submitted"]))
        elif "jobs" in event:
            for number in event["jobs"]:
                self._change(self.records[number], event["changes"])
        elif "released" in event:
            for place, number in enumerate(event["released"]):
                changes = {"bag": event["bag"], "task": event["task"] + place}
                self._change(self.records[number], changes)
        elif "bag" in event:
            self.bags[event["bag"]] = event["shape"]
        elif "next_id" in event:
            self.next_id = event["next_id"]
        else:
            self._apply_to_submission(event)

    def _apply_to_submission(self, event: Mapping[str, Any]) -> None:
        """Apply a stored event of a submission, or of a group of them."""
        if "updated" in event:
            self._update(event["updated"], event["fields"])
        elif "removed" in event:
            self.remove(event["removed"])
        elif "promise" in event:
            points = self.promises.get(event["promise"], [])
            current = [point for point in points if point[0] >= event["began_s"]]
            self.promises[event["promise"]] = [*current, (event["at_s"], event["probability"])]
        else:
            raise ValueError("no event of jobs")

    def _change(self, record: JobRecord, changes: Mapping[str, Any]) -> None:
        """Change a job, and count what that changes."""
        number = record.submission.id
        was_open, was_active = not record.state.is_terminal, self._is_active(record)
        record.change(changes)
        is_open = not record.state.is_terminal
        self._active[number] += self._is_active(record) - was_active
        if was_open == is_open:
            return
        if record.state is JobState.COMPLETED:
            self.runs_s[record.submission.run_key].append(
                (record.end_s or 0.0) - (record.start_s or 0.0)
            )
        left = self.unfinished.pop(number, 0) + is_open - was_open
        if left:
            self.unfinished[number] = left
            self._ended.pop(number, None)
        else:
            self._ended[number] = record.end_s or 0.0

    @staticmethod
    def _is_active(record: JobRecord) -> bool:
        return record.is_released and not record.state.is_terminal

    def active(self, number: int) -> int:
        """Return how many unfinished jobs of a submission are tasks of bags."""
        return self._active[number]

    def ended_before(self, time_s: float) -> list[int]:
        """Return the submissions whose jobs had all ended then; each once."""
        over = [number for number, end_s in self._ended.items() if end_s < time_s]
        for number in over:
            del self._ended[number]
        return over

    def older_than(self, time_s: float) -> list[int]:
        """Return the submissions whose jobs had all ended by then."""
        return [
            number
            for number, records in self.submissions.items()
            if number not in self.unfinished and max(r.end_s or 0.0 for r in records) < time_s
        ]

    def add(self, submission: StoredSubmission) -> list[JobRecord]:
        """Add a submission; return its jobs."""
        records = [JobRecord(submission, position) for position in range(submission.count)]
        self.submissions[submission.id] = records
        self.records |= {record.id: record for record in records}
        self.requests[submission.request] = submission.id
        self.unfinished[submission.id] = submission.count
        if submission.promise_group:
            self.groups[submission.promise_group].append(submission.id)
        self.next_id = max(self.next_id, submission.id + submission.count)
        return records

    def _update(self, number: int, fields: Mapping[str, Any]) -> None:
        """Change what was stated of a submission."""
        records = self.submissions[number]
        before = records[0].submission
        after = replace(before, **fields)
        for record in records:
            record.submission, record.view_alone = after, None
        if before.promise_group:
            self._leave(before.promise_group, number)
        if after.promise_group:
            insort(self.groups[after.promise_group], number)

    def _leave(self, group: str, number: int) -> None:
        self.groups[group].remove(number)
        if not self.groups[group]:
            # the promises were about these jobs: a later group of this name has others
            self.promises.pop(group, None)

    def remove(self, number: int) -> None:
        """Remove a submission."""
        self.unfinished.pop(number, None)
        records = self.submissions.pop(number, [])
        if records and (group := records[0].submission.promise_group):
            self._leave(group, number)
        for record in records:
            self.records.pop(record.id, None)
            self.requests.pop(record.submission.request, None)

    def snapshot(self) -> Iterator[dict[str, Any]]:
        """Yield events that build this table."""
        # an id is never given again, even if its job and all later ones were removed
        yield {"next_id": self.next_id}
        for number, shape in self.bags.items():
            yield {"bag": number, "shape": shape}
        for records in self.submissions.values():
            yield {"submitted": asdict(records[0].submission)}
            for record in records:
                if changes := record.changes():
                    yield {"jobs": [record.id], "changes": changes}
        for group, points in self.promises.items():
            for at_s, probability in points:
                yield promise_event(group, at_s, probability, points[0][0])

    def select(
        self,
        numbers: Collection[int] | None,
        since_s: float = 0.0,
        selects: Callable[[StoredSubmission], bool] = lambda _: True,
    ) -> Iterator[Job]:
        """Yield jobs as Slurm's commands show them: those of these ids, or all; the pending tasks
        of an array as one. ``since_s``: without those that ended before; ``selects``: whether a
        submission is meant at all."""
        for records in self._chosen(numbers):
            if selects(records[0].submission):
                yield from self._rows([r for r in records if r.end_s is None or r.end_s >= since_s])

    def _chosen(self, numbers: Collection[int] | None) -> Iterator[list[JobRecord]]:
        if numbers is None:
            yield from self.submissions.values()
            return
        for number in sorted(numbers):
            if number in self.submissions:
                yield self.submissions[number]
            elif number in self.records:
                yield [self.records[number]]

    def _rows(self, records: list[JobRecord]) -> Iterator[Job]:
        if not records:
            return
        if not records[0].submission.indices:
            yield records[0].view()
            return
        pending: dict[str, list[JobRecord]] = {}
        for record in records:
            # a requeued task has its own number of restarts, which a common row cannot show
            if record.state is JobState.PENDING and not record.restarts:
                pending.setdefault(record.reason, []).append(record)
            else:
                yield record.view()
        for waiting in pending.values():
            indices = [index for record in waiting if (index := record.index) is not None]
            limit = records[0].submission.array_limit
            yield waiting[0].view(format_indices(indices, limit or None))

    def records_of(self, jobs: Iterable[Job]) -> list[JobRecord]:
        """Return the records of shown jobs; a row of pending tasks stands for all of them."""
        records: list[JobRecord] = []
        for job in jobs:
            array = self.submissions.get(job.array_job_id)
            if job.array_index is not None and array:
                records.append(array[array[0].submission.indices.index(job.array_index)])
            elif job.pending_indices and array:
                records += [r for r in array if r.state is JobState.PENDING]
            else:
                records.append(self.records[job.id])
        # an array has one row per reason to wait, and each stands for all of its pending tasks
        return list(dict.fromkeys(records))

    def dependency(self, record: JobRecord) -> Dependency:
        """Return what a job depends on."""
        return parse_dependency(record.submission.dependency)
