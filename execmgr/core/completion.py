"""Queries: which parts of a run are terminal, and the consequences for others. Nothing is changed
here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import ReplicaEnded, ReplicaRecord, RunState, SlotRecord
from vgrads.planner.snapshot import ReplicaKey, TaskKey


def over(state: RunState) -> bool:
    """True if every slot is terminal, and no plan is pending: no replica waits or runs then, and
    the end of a run has released slots that were never requested."""
    return not state.replanning and all(
        record.state is not None and record.state.ended for record in state.slots.values()
    )


def find_done_workflows(execution: ExecutionPlan, state: RunState) -> dict[str, float]:
    """Return workflow → end of its last task, for complete workflows."""
    done = {}
    for workflow in execution.snapshot.workflow_set.workflows:
        ends = [state.done.get((workflow.name, task_id)) for task_id in workflow.tasks]
        if all(end is not None for end in ends):
            done[workflow.name] = max(end.at_s for end in ends if end is not None)
    return done


def find_first_lost(lost: Mapping[TaskKey, str]) -> tuple[TaskKey, str]:
    """Return a lost task with the reason: if possible, not one that lacks the output of another."""
    # these words are those of RuleState for a task that needs a lost one
    return min(lost.items(), key=lambda item: (item[1].startswith("its input"), item))


def find_fault(
    execution: ExecutionPlan, replicas: Mapping[ReplicaKey, ReplicaRecord], event: ReplicaEnded
) -> str:
    """Return the reason if a task fails by itself: the same exit code from the same command twice.
    Empty while the failure may be chance."""
    if event.ok or event.code is None:
        return ""
    if not any(
        replicas[replica].code == event.code for replica in execution.replicas[event.key[:2]]
    ):
        return ""
    return f"{event.reason}; it fails in the same way each time"


def find_alike(
    execution: ExecutionPlan, slots: Mapping[str, SlotRecord], slot: str
) -> Iterator[str]:
    """Return the slots of the same queue that were not requested yet: they would fail for the same
    reason."""
    where = queue_of(execution, slot)
    for other, record in slots.items():
        if other != slot and record.state is None and queue_of(execution, other) == where:
            yield other


def find_refused_queues(
    execution: ExecutionPlan, slots: Mapping[str, SlotRecord]
) -> frozenset[tuple[str, str]]:
    """Return the queues (site, queue) where slots fail because of a configuration error."""
    return frozenset(
        queue_of(execution, slot)
        for slot, record in slots.items()
        if record.permanent and record.state == SlotState.FAILED
    )


def queue_of(execution: ExecutionPlan, slot: str) -> tuple[str, str]:
    """Return the site and queue of a slot."""
    result = execution.uses[slot].slot
    return result.site, result.queue
