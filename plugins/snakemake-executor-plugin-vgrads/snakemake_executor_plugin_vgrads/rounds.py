"""The executor's records of submitted jobs and of the sets that hold slots for them."""

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
class SubmittedJob:
    """A submitted job. ``name``: of its task in the round; ``after``: updates up to this number
    concern earlier releases; ``state``: as last reported by vgrads; ``dropped``: not to be started
    if it has not started."""

    info: SubmittedJobInfo
    task: str
    command: str
    memory_mib: float
    round: SlotRound | None = None
    name: str = ""
    after: int = 0
    state: str = "released"
    dropped: bool = False

    @property
    def waits(self) -> bool:
        """Return True where the job has not started and is not dropped."""
        return self.state == "released" and not self.dropped

    @property
    def is_retried(self) -> bool:
        """Return True where Snakemake submits the job again after a failure."""
        job = self.info.job
        return bool(job.restart_times > job.attempt - 1)


@dataclass(slots=True)
class SlotRound:
    """A set that holds slots for the remaining jobs: the first one, and a new one where it could
    not complete all of them.

    ``done``: how often a task was reported done. Snakemake checks its outputs and may request it
    again.
    """

    promised: Promised
    run: RunHandle
    tasks: set[str] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)
    over: bool = False

    def take(self, jobs: Sequence[SubmittedJob]) -> bool:
        """Assign these jobs to this round. Return True where some of their tasks are not in it."""
        for job in jobs:
            times = self.done[job.task]
            job.round, job.state = self, "released"
            job.name = f"{job.task}~{times}" if times else job.task
        return any(job.name not in self.tasks for job in jobs)

    def extend(
        self, unfinished: Iterable[Mapping[str, Any]], jobs: Iterable[SubmittedJob]
    ) -> list[dict[str, Any]]:
        """Return rows that add the tasks of the current graph that are not in the round, including
        those of jobs that are run again."""
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

    def release_rows(self, jobs: Iterable[SubmittedJob]) -> list[dict[str, Any]]:
        """Return rows that release jobs."""
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
        """Return rows that give up tasks."""
        where = self.promised.workflow
        return [{"workflow": where, "task": task, "reason": reason} for task in tasks]

    def running(self, jobs: Iterable[SubmittedJob]) -> set[str]:
        """Return the tasks that the round is running; none where it is terminal."""
        mine = (job for job in jobs if job.round is self and job.state == "running")
        return set() if self.over else {job.task for job in mine}

    def describes(self, job: SubmittedJob, row: Mapping[str, Any]) -> bool:
        """Return True where an update of this round concerns the latest release of a job."""
        return (
            job.round is self
            and row["workflow"] == self.promised.workflow
            and row["task"] == job.name
            and not 0 < row["release"] <= job.after
        )


def task_behind(name: str) -> str:
    """Return the original task of one that is run again in its round."""
    return name.partition("~")[0]
