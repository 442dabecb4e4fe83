"""Snakemake's graph as the tasks of a workflow set."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from snakemake_interface_executor_plugins.dag import DAGExecutorInterface
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from vgrads.workflows.formats.snakemake_jobs import ABOUT, task_id, tasks_of
from vgrads.workflows.runtimes import timed

SHELLS_MIB = 32.0
"""What the shells around a job take, beside what its rule asks for: there are rules that ask for 5
MB."""
OWN_MIB = 250.0
"""What a Snakemake takes that begins one job (120 MiB for a small workflow), beside what its rule
asks for."""


def document_of(told: Mapping[str, Any]) -> dict[str, Any]:
    """A task as a set has it. Where nobody states how long it takes, its limit tells until its rule
    was learned."""
    about = told[ABOUT]
    task = {name: value for name, value in told.items() if name not in (ABOUT, "runtime_s")}
    times = timed({}, (), told.get("runtime_s"), about["limit_s"])
    if times["runtime_s"] == times["runtime_s"]:
        task["runtime_s"] = times["runtime_s"]
    if "spread" in times:
        task["spread"] = asdict(times["spread"])
    if about["gpus"]:
        task["resources"] = {"gpu": about["gpus"]}
    return task


def unfinished(
    dag: DAGExecutorInterface, open_: Iterable[str], but: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Tasks of jobs that are not finished, those that are ``open_`` among them, without those named
    in ``but``; their parents without all others."""
    left = {task_id(job) for job in dag.needrun_jobs() if not dag.finished(job)} | set(open_)
    left.difference_update(but)
    tasks = [dict(task) for task in tasks_of(dag) if task["id"] in left]
    ids = {task["id"] for task in tasks}
    for task in tasks:
        task["parents"] = [parent for parent in task["parents"] if parent in ids]
    return tasks


def memory_mib(job: JobExecutorInterface, own_mib: float) -> float:
    """What a job asks for, and what is around it; 0 where it asks for nothing."""
    resources = job.resources
    for name, mib in (("mem_mib", 1.0), ("mem_mb", 1e6 / 2**20)):
        value = resources.get(name)
        if isinstance(value, int | float) and value > 0:
            return float(value) * mib + own_mib
    return 0.0
