"""Effects of a task's rules for exit codes: number of tries, and the growth of memory and time.
Pure.

Failures count for the task, whichever replica failed; so do the factors of their rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import ReplicaEnded, ReplicaRecord
from vgrads.kernel.units import format_count
from vgrads.planner.snapshot import ReplicaKey, TaskKey
from vgrads.workflows.task_environment import ErrorRule

Replication = Mapping[ReplicaKey, ReplicaRecord]


class Escalation(NamedTuple):
    """Factors by which failures have multiplied the memory and the expected run time of a task."""

    memory: float = 1.0
    time: float = 1.0


_NOT = Escalation()


def escalation(execution: ExecutionPlan, replicas: Replication, key: ReplicaKey) -> Escalation:
    """Return the combined factors of all replicas of a task."""
    if not execution.snapshot.task(key[:2]).environment.errors:
        return _NOT
    mine = [replicas[replica] for replica in execution.replicas[key[:2]] if replica in replicas]
    return Escalation(
        math.prod(replica_record.memory for replica_record in mine),
        math.prod(record.time for record in mine),
    )


def find_grown_tasks(
    execution: ExecutionPlan, replicas: Replication
) -> dict[TaskKey, tuple[float, float]]:
    """Return the tasks of a run whose memory or time has grown, with the factors."""
    keys = {key for key, record in replicas.items() if record.failures}
    return {key[:2]: escalation(execution, replicas, key) for key in keys}


def record_failure(record: ReplicaRecord, rule: ErrorRule) -> ReplicaRecord:
    """Return the record of a replica after one more failure under a rule."""
    return record._replace(
        failures=record.failures + 1,
        memory=record.memory * rule.memory,
        time=record.time * rule.time,
    )


def explain_exhaustion(
    execution: ExecutionPlan, replicas: Replication, key: ReplicaKey, rule: ErrorRule, reason: str
) -> str:
    """Return why a task is not retried after one more failure; empty if it may be."""
    before = sum(replicas[replica].failures for replica in execution.replicas[key[:2]])
    if before < rule.retries:
        return ""
    if not rule.retries:
        return f"{reason}; not retried, as its error rules state"
    return f"{reason}; retried {format_count(rule.retries, 'time')}, as its error rules state"


def explain_too_large(execution: ExecutionPlan, replicas: Replication, event: ReplicaEnded) -> str:
    """Return why no known slot could hold a task that has grown; empty if any could."""
    key, task = event.key, execution.snapshot.task(event.key[:2])
    needed_mib = task.memory_mib * escalation(execution, replicas, key).memory
    # slots that meet all other needs; the memory is compared below
    able = [
        slot for slot in execution.snapshot.slots if slot.holds(task.needs._replace(memory_mib=0.0))
    ]
    most_mib = max((slot.memory_for(task.procs) for slot in able), default=0.0)
    if needed_mib <= most_mib or needed_mib <= task.memory_mib:
        return ""
    return (
        f"{event.reason}; needs {needed_mib:.0f} MiB of memory by its error rules, the slot "
        f"with the most memory has {most_mib:.0f}"
    )


def fits(execution: ExecutionPlan, replicas: Replication, key: ReplicaKey) -> bool:
    """True if a task that has grown still fits into the slot of this replica."""
    task, slot = execution.snapshot.task(key[:2]), execution.uses[execution.slot_of(key)].slot
    return slot.holds(
        task.needs._replace(
            memory_mib=task.memory_mib * escalation(execution, replicas, key).memory
        )
    )
