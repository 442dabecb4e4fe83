"""What several commands show of a job in the same words: instants, priority, resources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vgrads.slurm.job import Job
from vgrads.slurm.limits import format_memory
from vgrads.slurm.times import format_instant

_FIRST_PRIORITY = 4294901760
_NOT_RUNNABLE = ("JobHeldUser", "JobHeldAdmin")


@dataclass(frozen=True)
class JobTexts:
    """The instant of the answer, how instants are printed, and the name of the cluster."""

    now_s: float
    instant: Callable[[float | None, str], str] = format_instant
    cluster: str = "vgrads"

    def start_s(self, job: Job) -> float | None:
        """Return when the job started or is expected to start."""
        return job.expected_start_s if job.state.is_pending else job.start_s

    def end_s(self, job: Job) -> float | None:
        """Return when the job ended or will have reached its limit."""
        if job.state.is_terminal:
            return job.end_s
        start_s = self.start_s(job)
        return None if start_s is None or job.limit_s is None else start_s + job.limit_s

    def start(self, job: Job) -> str:
        """Return the start for squeue."""
        start_s = job.end_s if job.start_s is None and job.state.is_terminal else self.start_s(job)
        return self.instant(start_s, "N/A")

    def end(self, job: Job) -> str:
        """Return the end for squeue."""
        return self.instant(self.end_s(job), "N/A")

    def submit(self, job: Job) -> str:
        """Return when the job was submitted."""
        return self.instant(job.submit_s, "N/A")

    def eligible(self, job: Job) -> str:
        """Return since when the job may start."""
        return self.instant(job.eligible_s, "N/A")

    def pending_time(self, job: Job) -> str:
        """Return the seconds from submission to start."""
        start_s = self.now_s if job.start_s is None else job.start_s
        return str(max(0, int(start_s - job.submit_s)))

    def priority(self, job: Job) -> int:
        """Return a number that is larger for earlier jobs; 0 for one that is held."""
        if job.state.is_pending and job.reason in _NOT_RUNNABLE:
            return 0
        return max(1, _FIRST_PRIORITY - job.array_job_id % _FIRST_PRIORITY)

    def resources(self, job: Job) -> str:
        """Return processors, memory and nodes as one text."""
        memory = format_memory(job.memory_mib)
        return f"cpu={job.cpus},mem={memory},node={job.nodes},billing={job.cpus}"
