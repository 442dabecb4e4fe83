"""Why jobs wait: on hold, for a time, for other jobs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable

from vgrads.api.slurm.records import ON_HOLD, JobRecord
from vgrads.api.slurm.table import JobTable
from vgrads.slurm.dependencies import DependencyView, Outcome, dependency_status
from vgrads.slurm.job import Job

NEVER = "DependencyNeverSatisfied"
WAITS = "Dependency"
_AT_START = {"after", "aftercorr"}
"""Kinds of dependencies that may change before all tasks of an array have ended."""
Why = tuple[str, str]
"""The reason why a job waits (empty: nothing holds it back), and what it still depends on."""


class WaitingJobs:
    """What the jobs of a table wait for."""

    def __init__(self, table: JobTable, clock: Callable[[], float]) -> None:
        self._table, self._clock = table, clock
        self._dependents: defaultdict[int, set[int]] = defaultdict(set)  # target → submissions
        self._delayed: dict[int, float] = {}  # submission → when it may start
        self._deadlines: dict[int, float] = {}  # submission → when its jobs may start at the latest
        self._after: set[int] = set()  # submissions that wait for starts, or minutes after them

    def register(self, first: JobRecord) -> None:
        """Note what the jobs of a submission wait for."""
        submission = first.submission
        if submission.begin_s is not None and submission.begin_s > self._clock():
            self._delayed[submission.id] = submission.begin_s
        if submission.last_start_s < math.inf:
            self._deadlines[submission.id] = submission.last_start_s
        for target in self._table.dependency(first).targets:
            record = self._table.records.get(target.job)
            self._dependents[record.submission.id if record else target.job].add(submission.id)
            if target.kind == "after":
                self._after.add(submission.id)

    def take_due(self) -> list[int]:
        """Return the submissions whose time has come."""
        due = [number for number, at_s in self._delayed.items() if at_s <= self._clock()]
        for number in due:
            del self._delayed[number]
        return due

    def take_late(self) -> list[int]:
        """Return the submissions whose jobs can no longer end before their deadline."""
        late = [number for number, at_s in self._deadlines.items() if at_s < self._clock()]
        for number in late:
            del self._deadlines[number]
        return late

    def forget(self, number: int) -> None:
        """Forget what a submission waits for: all its jobs have ended."""
        self._delayed.pop(number, None)
        self._deadlines.pop(number, None)
        self._after.discard(number)

    def after_starts(self) -> list[int]:
        """Return the submissions that wait for starts of others, or for minutes after them."""
        # a copy, because some may be forgotten while they are looked at
        return list(self._after)

    def dependents(self, number: int, over: bool) -> list[int]:
        """Return the submissions that a change of this one may release; ``over``: all its jobs
        have ended."""
        dependents = self._dependents.get(number, set())
        if over:
            self._dependents.pop(number, None)
            name = self._table.submissions[number][0].submission.name
            return [*dependents, *self._singletons(name)]
        if len(self._table.submissions[number]) == 1:
            return list(dependents)
        return [other for other in dependents if self._kinds(other) & _AT_START]

    def _kinds(self, number: int) -> set[str]:
        records = self._table.submissions.get(number)
        targets = self._table.dependency(records[0]).targets if records else ()
        return {target.kind for target in targets}

    def _singletons(self, name: str) -> Iterable[int]:
        for number in self._table.unfinished:
            first = self._table.submissions[number][0]
            if first.reason == WAITS and first.submission.name == name:
                yield number

    def judge(self, first: JobRecord) -> Callable[[JobRecord], Why]:
        """Return what tells why a job of a submission waits."""
        targets = self._table.dependency(first).targets
        delayed = self._delayed.get(first.submission.id, 0.0) > self._clock()
        each = any(target.kind == "aftercorr" for target in targets)
        common = None if each else self._dependency_of(first)

        def why(record: JobRecord) -> Why:
            if record.hold:
                return ON_HOLD, record.dependency
            if delayed:
                return "BeginTime", record.dependency
            outcome, left = common or self._dependency_of(record)
            if outcome is Outcome.NEVER:
                return NEVER, left
            return (WAITS if outcome is Outcome.WAITING else ""), left

        return why

    def _dependency_of(self, record: JobRecord) -> tuple[Outcome, str]:
        dependency = self._table.dependency(record)
        if not dependency.targets:
            return Outcome.SATISFIED, ""
        earlier: list[Job] = []
        if any(target.kind == "singleton" for target in dependency.targets):
            earlier = list(self._earlier(record))
        view = DependencyView(lambda n: list(self._table.select([n])), self._clock(), earlier)
        status = dependency_status(dependency, record.view(), view)
        return status.outcome, status.text

    def _earlier(self, record: JobRecord) -> Iterable[Job]:
        mine = record.submission
        for number in self._table.unfinished:
            other = self._table.submissions[number][0].submission
            if number < mine.id and (other.name, other.user) == (mine.name, mine.user):
                yield self._table.submissions[number][0].view()
