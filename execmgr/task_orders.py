"""Orders to an engine for replicas that start."""

from __future__ import annotations

from dataclasses import replace

from vgrads.execmgr.core.escalation import escalation
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import RunState
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.planner.snapshot import ReplicaKey
from vgrads.workflows.task import Task
from vgrads.workflows.task_environment import TaskEnvironment, with_env


def task_order(execution: ExecutionPlan, state: RunState, key: ReplicaKey) -> TaskOrder:
    """Return the task as it was released, with memory and time increased by failures of the
    replica."""
    placement = execution.placements[key]
    task = execution.snapshot.task(placement.task_key)
    leave = state.released.get(placement.task_key)
    if leave is not None:
        task = replace(task, command=leave.command, memory_mib=leave.memory_mib)
    more = escalation(execution, state.replicas, key)
    return TaskOrder(
        key=key,
        site=execution.site_of(key),
        slot=placement.slot,
        procs=task.threads or task.procs,
        command=task.command,
        inputs=task.inputs,
        outputs=task.outputs,
        runtime_s=execution.median_s(key) * more.time,
        attempt=state.replicas[key].attempt,
        memory_mib=task.memory_mib * more.memory,
        environment=_make_environment(execution, key, task),
        fetches=tuple(file.of(*placement.task_key) for file in task.fetches),
        sends=tuple(file.of(*placement.task_key) for file in task.sends),
    )


def _make_environment(execution: ExecutionPlan, key: ReplicaKey, task: Task) -> TaskEnvironment:
    """Return the environment of a task at its planned site: a container that any engine may run
    uses the first engine of its site."""
    environment = with_env(task.environment, execution.snapshot.workflow_set.env)
    box = environment.boxed
    if box is None or box.engine:
        return environment
    engines = execution.uses[execution.slot_of(key)].slot.containers
    return replace(environment, container=replace(box, engine=engines[0]))
