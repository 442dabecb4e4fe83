"""What the executor keeps of jobs that it was given, and of the sets that hold slots for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_vgrads.graph import document_of
from snakemake_executor_plugin_vgrads.promise import Promised
from vgrads.portal.client import RunHandle


@dataclass(slots=True)
class HandedOver:
    """A job that was handed over. ``name``: its task's in the round; ``after``: answers up to this
    number are about earlier releases; ``state``: as vgrads told last; ``dropped``: it is to be left
    if it has not begun."""

    info: SubmittedJobInfo
    task: str
    command: str
    memory_mib: float
    round: Round | None = None
    name: str = ""
    after: int = 0
    state: str = "released"
    dropped: bool = False

    @property
    def waits(self) -> bool:
        """True where it has not begun, and is to."""
        return self.state == "released" and not self.dropped

    @property
    def is_tried_again(self) -> bool:
        """True where Snakemake hands it over once more after a failure."""
        job = self.info.job
        return bool(job.restart_times > job.attempt - 1)


@dataclass(slots=True)
class Round:
    """A set that holds slots for the jobs that are left: the first one, and another where one could
    not keep all.

    ``done``: how often it was told of a task that it is done; Snakemake, which then looks at its
    outputs, may want it again.
    """

    promised: Promised
    run: RunHandle
    tasks: set[str] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)
    over: bool = False

    def take(self, jobs: Sequence[HandedOver]) -> bool:
        """These jobs are this round's from now on; True where it does not know all their tasks."""
        for job in jobs:
            times = self.done[job.task]
            job.round, job.state = self, "released"
            job.name = f"{job.task}~{times}" if times else job.task
        return any(job.name not in self.tasks for job in jobs)

    def extend(
        self, unfinished: Iterable[Mapping[str, Any]], jobs: Iterable[HandedOver]
    ) -> list[dict[str, Any]]:
        """Rows that add tasks of the graph as it is now that the round does not know, those of jobs
        that are done again among them."""
        left = {task["id"]: task for task in unfinished}
        again = [
            {**left[job.task], "id": job.name, "parents": []}
            for job in jobs
            if job.name != job.task
        ]
        rows = [
            {
                "workflow": self.promised.workflow,
                "task": task["id"],
                "document": document_of(task),
            }
            for task in (*left.values(), *again)
            if task["id"] not in self.tasks
        ]
        self.tasks.update(row["task"] for row in rows)
        return rows

    def release_rows(self, jobs: Iterable[HandedOver]) -> list[dict[str, Any]]:
        """Rows that have jobs begun."""
        return [
            {
                "workflow": self.promised.workflow,
                "task": job.name,
                "command": job.command,
                "memory_mib": job.memory_mib,
            }
            for job in jobs
        ]

    def give_up_rows(self, tasks: Iterable[str], reason: str) -> list[dict[str, Any]]:
        """Rows that say of tasks that nobody waits for them any more."""
        where = self.promised.workflow
        return [{"workflow": where, "task": task, "reason": reason} for task in tasks]

    def running(self, jobs: Iterable[HandedOver]) -> set[str]:
        """Tasks that it runs now; none where it is over."""
        mine = (job for job in jobs if job.round is self and job.state == "running")
        return set() if self.over else {job.task for job in mine}

    def tells_of(self, job: HandedOver, row: Mapping[str, Any]) -> bool:
        """True where an answer of this round is about a job as it was released last."""
        return (
            job.round is self
            and row["workflow"] == self.promised.workflow
            and row["task"] == job.name
            and not 0 < row["release"] <= job.after
        )


def task_behind(name: str) -> str:
    """The task behind one that is done again in its round."""
    return name.partition("~")[0]
