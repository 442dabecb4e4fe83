"""A submission as it was made, and what became of each of its jobs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from vgrads.slurm.job import Job, JobState
from vgrads.slurm.patterns import PatternValues, expand_pattern

FIRST_ID = 2_000_000_001
"""Ids below are those of a real Slurm: its largest is 67,108,863 (MaxJobId in slurm.conf(5))."""
MIN_JOB_AGE_S = 300.0
"""Seconds for which squeue lists a job that has ended."""
GROUP_COMMENT = "vgrads:"
"""A comment that begins so names the group of a job."""
_NOT_STORED = ("submission", "position", "view_alone")
_OF_ATTEMPT = (
    *("cancelled_by", "code", "cpu_s", "end_s", "lost", "max_rss_kib", "node"),
    *("reason", "signal", "start_s", "why"),
)
"""What is new with each generation of a job."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
RunKey = tuple[str, str, float | None]
ON_HOLD = "JobHeldUser"
_NOT_ELIGIBLE = (ON_HOLD, "Dependency", "DependencyNeverSatisfied")
NOT_RELEASED: dict[str, object] = {"bag": -1, "task": -1}
"""How a job changes that is no task of a bag any more."""


@dataclass(frozen=True)
class StoredSubmission:
    """One submission: a job, or an array with ``indices``. Times are Unix seconds, durations
    seconds, memory MiB. ``id`` is that of its first job; the others follow. Paths may have the
    patterns of sbatch. ``kind`` is the digest of the script."""

    id: int
    request: str
    submit_s: float
    name: str
    user: str
    uid: int
    gid: int
    group: str
    host: str
    folder: str
    submit_folder: str
    umask: int
    command: str
    kind: str
    partition: str = ""
    account: str = ""
    tasks: int = 1
    cpus_per_task: int = 1
    memory_mib: int = 0
    limit_s: float | None = None
    stdin: str = "/dev/null"
    stdout: str = ""
    stderr: str = ""
    indices: tuple[int, ...] = ()
    array_limit: int = 0
    dependency: str = ""
    kill_on_invalid: bool = False
    requeue: bool = True
    hold: bool = False
    comment: str = ""
    deadline_s: float | None = None
    begin_s: float | None = None
    least_limit_s: float | None = None

    @property
    def last_start_s(self) -> float:
        """Return the last instant at which one of its jobs may start and end before the deadline by
        its time limit; infinity without a deadline, and in a group, which keeps all its jobs."""
        if self.deadline_s is None or self.comment.startswith(GROUP_COMMENT):
            return math.inf
        return self.deadline_s - (self.least_limit_s or self.limit_s or 0.0)

    @property
    def promise_group(self) -> str:
        """Return the group of its jobs: that of its comment; with a deadline alone, all jobs of
        its name; else none."""
        if self.comment.startswith(GROUP_COMMENT):
            return self.comment[len(GROUP_COMMENT) :]
        return self.name if self.deadline_s is not None else ""

    @property
    def run_key(self) -> RunKey:
        """Return what its jobs' run time is learned by: name, script, requested time."""
        return self.name, self.kind, self.limit_s

    @property
    def count(self) -> int:
        """Return how many jobs it has."""
        return len(self.indices) or 1

    @property
    def cpus(self) -> int:
        """Return the processors of one of its jobs."""
        return self.tasks * self.cpus_per_task


def without_controls(text: str) -> str:
    """Return a text without control characters: lists of jobs have one line for each."""
    return _CONTROL.sub(" ", text)


def submission_from(stated: Mapping[str, Any]) -> StoredSubmission:
    """Return a submission from its JSON."""
    # a journal of another version may have fields that this one does not know
    names = {field.name for field in fields(StoredSubmission)}
    values = {name: value for name, value in stated.items() if name in names}
    return StoredSubmission(**{**values, "indices": tuple(values.get("indices", ()))})


class JobRecord:
    """One job and its state."""

    __slots__ = (
        "attempts",
        "bag",
        "cancelled_by",
        "code",
        "cpu_s",
        "dependency",
        "end_s",
        "hold",
        "lost",
        "max_rss_kib",
        "node",
        "position",
        "reason",
        "restarts",
        "signal",
        "start_s",
        "state",
        "submission",
        "task",
        "view_alone",
        "why",
    )

    def __init__(self, submission: StoredSubmission, position: int) -> None:
        self.submission, self.position = submission, position
        self.view_alone: Job | None = None  # clients list the same jobs again and again
        self.state, self.reason = JobState.PENDING, "None"
        self.hold = submission.hold
        self.dependency = submission.dependency  # what is not satisfied yet, as squeue shows it
        self.bag = self.task = -1  # where it was released
        self.node, self.restarts, self.code, self.signal = "", 0, 0, 0
        self.start_s: float | None = None
        self.end_s: float | None = None
        self.cancelled_by: int | None = None
        self.max_rss_kib: int | None = None
        self.cpu_s: float | None = None
        self.lost = 0  # how often the node of this generation was lost
        self.why = ""  # why it failed, where state and exit code do not tell
        self.attempts: Sequence[Mapping[str, Any]] = ()  # how earlier generations ended

    @property
    def id(self) -> int:
        return self.submission.id + self.position

    @property
    def index(self) -> int | None:
        indices = self.submission.indices
        return indices[self.position] if indices else None

    @property
    def is_released(self) -> bool:
        """Return True where it is a task of a bag."""
        return self.bag >= 0

    def fresh(self, ended: Mapping[str, Any]) -> dict[str, object]:
        """Return how it changes to be run again; ``ended``: how it has changed by its end, where
        that is not stored yet."""
        now = {name: getattr(self, name) for name in _OF_ATTEMPT}
        attempt = {**now, "state": self.state.value, **ended}
        new = JobRecord(self.submission, self.position)
        cleared = {name: getattr(new, name) for name in _OF_ATTEMPT}
        attempts = [*self.attempts, {name: attempt[name] for name in ("state", *_OF_ATTEMPT)}]
        more = {"state": "PENDING", "restarts": self.restarts + 1, "attempts": attempts}
        return {**NOT_RELEASED, **cleared, **more}

    def change(self, changes: Mapping[str, Any]) -> None:
        """Apply changes that were stored."""
        self.view_alone = None
        for name, value in changes.items():
            setattr(self, name, JobState(value) if name == "state" else value)

    def changes(self) -> dict[str, Any]:
        """Return what differs from a new job."""
        new = JobRecord(self.submission, self.position)
        names = [name for name in self.__slots__ if name not in _NOT_STORED]
        changed = {n: getattr(self, n) for n in names if getattr(self, n) != getattr(new, n)}
        if "state" in changed:
            changed["state"] = self.state.value
        return changed

    def view(self, pending: str = "") -> Job:
        """Return the job as Slurm's commands show it; ``pending``: indices of an array's pending
        tasks, for which it stands."""
        if pending:
            return self._view(pending)
        if self.view_alone is None:
            self.view_alone = self._view()
        return self.view_alone

    def earlier(self) -> list[Job]:
        """Return its earlier attempts, each as the job that it was."""
        views = []
        for number, attempt in enumerate(self.attempts):
            record = JobRecord(self.submission, self.position)
            record.change({**attempt, "restarts": number})
            views.append(record.view())
        return views

    def _view(self, pending: str = "") -> Job:
        stated, values = self.submission, self._pattern_values()
        is_array = bool(stated.indices)
        stdout = without_controls(expand_pattern(stated.stdout, values))
        return Job(
            id=stated.id if pending else self.id,
            name=stated.name,
            user=stated.user,
            uid=stated.uid,
            state=self.state,
            submit_s=stated.submit_s,
            partition=stated.partition,
            account=stated.account,
            group=stated.group,
            gid=stated.gid,
            array_id=stated.id if is_array else None,
            array_index=None if pending else self.index,
            pending_indices=pending,
            array_limit=stated.array_limit,
            reason=self.reason,
            exit_code=self.code,
            exit_signal=self.signal,
            cancelled_by=self.cancelled_by,
            eligible_s=self._eligible_s(),
            expected_start_s=stated.begin_s if self.reason == "BeginTime" else None,
            start_s=self.start_s,
            end_s=self.end_s,
            limit_s=stated.limit_s,
            tasks=stated.tasks,
            cpus_per_task=stated.cpus_per_task,
            memory_mib=stated.memory_mib,
            node_list=self.node,
            folder=without_controls(stated.folder),
            stdin=without_controls(stated.stdin),
            stdout=stdout,
            # sbatch writes both outputs into one file unless another is stated
            stderr=without_controls(expand_pattern(stated.stderr, values))
            if stated.stderr
            else stdout,
            command=without_controls(stated.command),
            comment=stated.comment,
            dependency=self.dependency,
            requeue=stated.requeue,
            restarts=self.restarts + self.lost,
            max_rss_kib=self.max_rss_kib,
            cpu_s=self.cpu_s,
            deadline_s=stated.deadline_s,
            system_comment=without_controls(self.why),
        )

    def _eligible_s(self) -> float | None:
        """Return since when it may start; None where it may not: such jobs are not listed by sacct,
        unless their ids are stated."""
        if self.reason in _NOT_ELIGIBLE:
            return None
        return max(self.submission.submit_s, self.submission.begin_s or 0.0)

    def _pattern_values(self) -> PatternValues:
        stated = self.submission
        return PatternValues(
            job=self.id,
            name=stated.name,
            user=stated.user,
            node=self.node,
            array_id=stated.id if stated.indices else None,
            array_index=self.index,
        )
