"""Snakemake's graph as the tasks of a workflow set."""

from __future__ import annotations

from typing import Any

from workflows.snakemake_jobs import ABOUT, tasks_of

OWN_MIB = 250.0
"""What a Snakemake takes that begins one job (120 MiB for a small workflow), beside what its rule asks for."""


def documents_of(dag: Any) -> list[dict[str, Any]]:
    """Tasks of all jobs that are still to be run.

    Where nobody states how long a job takes, its limit (``runtime``) stands there until its rule was learned.
    """
    found = []
    for task in tasks_of(dag):
        about = task.pop(ABOUT)
        if "runtime_s" not in task and about["limit_s"]:
            task["runtime_s"] = about["limit_s"]
        if about["gpus"]:
            task["resources"] = {"gpu": about["gpus"]}
        found.append(task)
    return found


def memory_mib(job: Any, own_mib: float) -> float:
    """What a job asks for, and what is around it; 0 where it asks for nothing."""
    resources = job.resources
    for name, mib in (("mem_mib", 1.0), ("mem_mb", 1e6 / 2**20)):
        value = resources.get(name)
        if isinstance(value, int | float) and value > 0:
            return float(value) * mib + own_mib
    return 0.0
