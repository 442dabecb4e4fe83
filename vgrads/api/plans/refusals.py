"""Checks for tasks that cannot be run, before anything is requested."""

from __future__ import annotations

import importlib.util

from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.kernel.errors import InfeasibleError, InputError
from vgrads.kernel.units import format_count, format_duration, format_usd
from vgrads.planner.plan import Plan, Relaxation


def refuse_without_s3(execution: ExecutionPlan) -> None:
    """Raise InputError if a file is in S3 and no library here reads that."""
    if importlib.util.find_spec("s3fs") is not None:
        return
    for placement in execution.plan.placements:
        task = execution.snapshot.task(placement.task_key)
        for file in (*task.fetches, *task.sends):
            if file.url.startswith("s3:"):
                raise InputError(
                    f"'{file.url}' needs s3, which is not installed",
                    where=f"task '{placement.task}' of {placement.workflow}",
                    fix="pip install 'vgrads[s3]', here and where tasks run",
                )


def refuse_without_commands(execution: ExecutionPlan) -> None:
    """Raise InputError for a task without a command."""
    for placement in execution.plan.placements:
        if not execution.snapshot.task(placement.task_key).command:
            raise InputError(
                "has no command to run",
                where=f"task '{placement.task}' of {placement.workflow}",
                fix=(
                    "run it on simulated sites; a Snakefile's jobs are run by 'snakemake "
                    "--executor vgrads'"
                ),
            )


def describe_relaxation(relaxation: Relaxation) -> str:
    """A change that makes a set feasible, in words."""
    amount = (
        format_duration(relaxation.amount)
        if relaxation.unit == "s"
        else f"{relaxation.amount:g} {relaxation.unit}"
    )
    return (
        f"{relaxation.change} (by {amount}; promise {relaxation.probability:.3f}, "
        f"{format_usd(relaxation.cost_usd)})"
    )


def make_infeasible_error(plan: Plan, where: str) -> InfeasibleError:
    """The error for a plan that is not feasible: what is lacking, and what would make it
    feasible."""
    changes = [f"sufficient change: {describe_relaxation(change)}" for change in plan.relaxations]
    none = (
        "none of the fewer workflows and later deadlines that were tried reaches "
        f"{plan.requested_probability} by itself"
    )
    return InfeasibleError(
        f"no plan finishes {format_count(plan.needed, 'workflow')} within "
        f"{format_duration(plan.deadline_s)}",
        tuple(changes) or (none,),
        lacking=plan.lacking,
        where=where,
    )
