"""Failed replicas: whether they are retried, and which tasks are no longer started."""

from __future__ import annotations

from dataclasses import replace

from vgrads.execmgr.core.completion import find_fault
from vgrads.execmgr.core.escalation import (
    explain_exhaustion,
    explain_too_large,
    fits,
    record_failure,
)
from vgrads.execmgr.core.rule_state import RuleState
from vgrads.execmgr.core.states import ReplicaEnded, ReplicaState
from vgrads.planner.rules import ATTEMPTS
from vgrads.planner.snapshot import TaskKey


def retry_failed(rule_state: RuleState, event: ReplicaEnded) -> bool:
    """Put a failed replica back into its slot's order if no other replica can do its task and time
    is left; return whether it was."""
    key = event.key
    if rule_state.execution.released and event.code is not None:
        return _wait_for_release(rule_state, event)
    fault, more = _weigh(rule_state, event)
    if fault:
        abandon_task(rule_state, key[:2], fault)
        return False
    if not more or rule_state.latest_start(key) < rule_state.now_s:
        return False
    twins = rule_state.execution.replicas[key[:2]]
    if any(not rule_state.replicas[replica].state.settled for replica in twins if replica != key):
        return False
    _wait_again(rule_state, event, f"retried after: {event.reason}")
    return True


def _wait_again(rule_state: RuleState, event: ReplicaEnded, reason: str) -> None:
    record = rule_state.replicas[event.key]
    again = record._replace(
        state=ReplicaState.WAITING,
        attempt=record.attempt + 1,
        committing=False,
        code=event.code,
        reason=reason,
    )
    rule_state.await_again(event.key, again)


def _wait_for_release(rule_state: RuleState, event: ReplicaEnded) -> bool:
    """Wait for a new release: the program that released a task decides whether and how to retry it
    if it failed by itself."""
    leave = rule_state.released[event.key[:2]]
    rule_state.released = rule_state.released.set(event.key[:2], replace(leave, used=True))
    _wait_again(rule_state, event, event.reason)
    return True


def _weigh(rule_state: RuleState, event: ReplicaEnded) -> tuple[str, bool]:
    """Return why a failed task is not to be started again anywhere (or empty), and whether this
    replica may be retried."""
    key = event.key
    rule = rule_state.execution.snapshot.task(key[:2]).environment.rule_for(event.code, event.ended)
    if rule is None:
        more = rule_state.replicas[key].attempt + 1 < ATTEMPTS
        return find_fault(rule_state.execution, rule_state.replicas, event), more
    # counts the failures before this one, so it precedes the record of this failure
    fault = explain_exhaustion(rule_state.execution, rule_state.replicas, key, rule, event.reason)
    rule_state.replicas = rule_state.replicas.set(
        key, record_failure(rule_state.replicas[key], rule)
    )
    for replica in rule_state.execution.replicas[key[:2]]:
        if rule_state.replicas[replica].state == ReplicaState.WAITING and not fits(
            rule_state.execution, rule_state.replicas, replica
        ):
            rule_state.end_replica(
                replica, ReplicaState.SKIPPED, "its slot does not have the memory that it now needs"
            )
    return fault or explain_too_large(rule_state.execution, rule_state.replicas, event), fits(
        rule_state.execution, rule_state.replicas, key
    )


def abandon_task(rule_state: RuleState, task: TaskKey, fault: str) -> None:
    """Stop starting a task that fails by itself; running replicas may still complete it."""
    rule_state.faulty = rule_state.faulty.set(task, fault)
    rule_state.note(f"{task[0]}/{task[1]}: {fault}")
    for replica in rule_state.execution.replicas[task]:
        if rule_state.replicas[replica].state == ReplicaState.WAITING:
            rule_state.end_replica(replica, ReplicaState.SKIPPED, fault)
