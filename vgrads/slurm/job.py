"""A job and a partition as Slurm's commands show them.

States and their two letters: JOB STATE CODES in squeue(1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum


class JobState(Enum):
    """States of a job; the value is Slurm's long name."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    COMPLETING = "COMPLETING"
    CONFIGURING = "CONFIGURING"
    REQUEUED = "REQUEUED"

    @property
    def code(self) -> str:
        """The short name, as ``PD``."""
        return _CODES[self.value]

    @property
    def is_pending(self) -> bool:
        """Whether the job has not started, or waits to start again."""
        return self is JobState.PENDING

    @property
    def is_active(self) -> bool:
        """Whether the job occupies its cores."""
        return self in _ACTIVE

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended for good, or this attempt of it."""
        return not self.is_pending and not self.is_active

    @property
    def is_failure(self) -> bool:
        """Whether the job ended with another state than COMPLETED."""
        return self.is_terminal and self is not JobState.COMPLETED


_CODES = {
    "PENDING": "PD",
    "RUNNING": "R",
    "SUSPENDED": "S",
    "COMPLETED": "CD",
    "CANCELLED": "CA",
    "FAILED": "F",
    "TIMEOUT": "TO",
    "NODE_FAIL": "NF",
    "PREEMPTED": "PR",
    "BOOT_FAIL": "BF",
    "DEADLINE": "DL",
    "OUT_OF_MEMORY": "OOM",
    "COMPLETING": "CG",
    "CONFIGURING": "CF",
    "REQUEUED": "RQ",
}
_ACTIVE = (
    JobState.RUNNING,
    JobState.SUSPENDED,
    JobState.COMPLETING,
    JobState.CONFIGURING,
)


@dataclass(frozen=True, slots=True)
class Job:
    """One job, one started task of an array, or the pending tasks of an array in one row.

    Times are Unix seconds, durations seconds, memory MiB per node. ``id`` is unique; an array's
    tasks have ``array_id`` and ``array_index``, and the row of its pending tasks has
    ``pending_indices`` (``3-9%2``) instead of an index; ``array_limit`` is how many of the array
    may run at once (0: all). ``limit_s`` None is UNLIMITED.
    ``dependency`` is what is not yet satisfied. ``promise`` is the probability that the job's
    group keeps its deadline. ``system_comment`` says why a job failed where its state does not.
    """

    id: int
    name: str
    user: str
    uid: int
    state: JobState
    submit_s: float
    partition: str = "vgrads"
    account: str = ""
    group: str = ""
    gid: int = 0
    array_id: int | None = None
    array_index: int | None = None
    pending_indices: str = ""
    array_limit: int = 0
    reason: str = "None"
    exit_code: int = 0
    exit_signal: int = 0
    cancelled_by: int | None = None
    eligible_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    expected_start_s: float | None = None
    limit_s: float | None = None
    tasks: int = 1
    cpus_per_task: int = 1
    memory_mib: int = 0
    nodes: int = 1
    node_list: str = ""
    folder: str = "/"
    stdin: str = "/dev/null"
    stdout: str = ""
    stderr: str = ""
    command: str = ""
    comment: str = ""
    dependency: str = ""
    requeue: bool = True
    restarts: int = 0
    max_rss_kib: int | None = None
    cpu_s: float | None = None
    deadline_s: float | None = None
    promise: float | None = None
    system_comment: str = ""

    @property
    def cpus(self) -> int:
        """Processors of all tasks."""
        return self.tasks * self.cpus_per_task

    @property
    def array_job_id(self) -> int:
        """The id of the array, or of the job itself."""
        return self.id if self.array_id is None else self.array_id

    @property
    def shown_id(self) -> str:
        """The id as users see it: ``12``, ``12_3`` or ``12_[4-9%2]``."""
        if self.array_id is None:
            return str(self.id)
        if self.array_index is not None:
            return f"{self.array_id}_{self.array_index}"
        return f"{self.array_id}_[{self.pending_indices}]"

    def pending_tasks(self, indices: Iterable[int]) -> list[Job]:
        """Return the tasks for which the row of an array's pending tasks stands. Faster than
        ``dataclasses.replace``: an array may have 100,000 of them."""
        changed = ("array_index", "pending_indices")
        members = [Job.__dict__[item.name] for item in fields(Job) if item.name not in changed]
        shared = [(member.__set__, member.__get__(self)) for member in members]
        # the descriptors of slots also set the fields of a frozen class
        set_index, set_pending = (Job.__dict__[name].__set__ for name in changed)
        tasks = []
        for index in indices:
            task = object.__new__(Job)
            for set_value, value in shared:
                set_value(task, value)
            set_index(task, index)
            set_pending(task, "")
            tasks.append(task)
        return tasks

    def elapsed_s(self, now_s: float) -> float:
        """Seconds that the job has run."""
        if self.start_s is None or self.state.is_pending:
            return 0.0
        end_s = self.end_s if self.end_s is not None and self.state.is_terminal else now_s
        return max(0.0, end_s - self.start_s)


@dataclass(frozen=True)
class Partition:
    """A partition: nodes of one shape. ``nodes`` are names; memory is MiB per node.

    ``busy_cores`` of each node by its name; a node that is missing there is idle.
    """

    name: str
    default: bool = False
    state: str = "up"
    limit_s: float | None = None
    default_limit_s: float | None = None
    nodes: tuple[str, ...] = ()
    cores_per_node: int = 1
    memory_mib: int = 0
    priority: int = 1
    busy_cores: tuple[tuple[str, int], ...] = ()

    def busy(self, node: str) -> int:
        """Return how many cores of a node are in use."""
        return dict(self.busy_cores).get(node, 0)

    def node_state(self, node: str) -> str:
        """Return the state of a node by Slurm's long name."""
        if self.state != "up":
            return "down"
        busy = self.busy(node)
        if busy <= 0:
            return "idle"
        return "mixed" if busy < self.cores_per_node else "allocated"
