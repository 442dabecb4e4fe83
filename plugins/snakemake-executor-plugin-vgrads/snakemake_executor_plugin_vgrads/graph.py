"""Snakemake's graph as the tasks of a workflow set."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from snakemake_interface_executor_plugins.dag import DAGExecutorInterface
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from vgrads.workflows.formats.snakemake_jobs import ABOUT, derive_task_id, make_tasks
from vgrads.workflows.runtimes import timed

SHELLS_MIB = 32.0
"""Memory of the shells around a job, in MiB, added to its rule's request: some rules request 5 MB.
"""
OWN_MIB = 250.0
"""Memory of the Snakemake process that starts one job, in MiB (120 MiB for a small workflow), added
to its rule's request."""


def document_of(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task in the format of a workflow set. Without a stated run time, its limit is used
    until the run time of its rule is learned."""
    about = payload[ABOUT]
    task = {name: value for name, value in payload.items() if name not in (ABOUT, "runtime_s")}
    times = timed({}, (), payload.get("runtime_s"), about["limit_s"])
    if times["runtime_s"] == times["runtime_s"]:
        task["runtime_s"] = times["runtime_s"]
    if "spread" in times:
        task["spread"] = times["spread"].stated
    if about["gpus"]:
        task["resources"] = {"gpu": about["gpus"]}
    return task


def unfinished(
    dag: DAGExecutorInterface, open_: Iterable[str], but: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return the tasks of unfinished jobs, including those in ``open_`` and without those in
    ``but``; finished tasks are removed from their parents."""
    left = {derive_task_id(job) for job in dag.needrun_jobs() if not dag.finished(job)} | set(open_)
    left.difference_update(but)
    tasks = [dict(task) for task in make_tasks(dag) if task["id"] in left]
    ids = {task["id"] for task in tasks}
    for task in tasks:
        task["parents"] = [parent for parent in task["parents"] if parent in ids]
    return tasks


def memory_mib(job: JobExecutorInterface, own_mib: float) -> float:
    """Return the memory that a job requests plus ``own_mib``; 0 where it requests none."""
    resources = job.resources
    for name, mib in (("mem_mib", 1.0), ("mem_mb", 1e6 / 2**20)):
        value = resources.get(name)
        if isinstance(value, int | float) and value > 0:
            return float(value) * mib + own_mib
    return 0.0
