"""Snakemake's graph as the tasks of a workflow set."""

from __future__ import annotations

from typing import Any

from workflows.snakemake_jobs import ABOUT, tasks_of


def documents_of(dag: Any) -> list[dict[str, Any]]:
    """Tasks of all jobs that are still to be run.

    Where nobody states how long a job takes, its limit (``runtime``) stands there until its rule was learned.
    """
    found = []
    for task in tasks_of(dag):
        about = task.pop(ABOUT)
        if "runtime_s" not in task and about["limit_s"]:
            task["runtime_s"] = about["limit_s"]
        found.append(task)
    return found
