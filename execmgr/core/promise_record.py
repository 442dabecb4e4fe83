"""The promise of a run as its manager last computed it, its failures, and its state in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vgrads.execmgr.core.completion import find_done_workflows
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import (
    PromiseChecked,
    PromiseRecord,
    ReplicaEnded,
    RunState,
    TaskFailures,
)
from vgrads.kernel.promise_state import PromiseState, promise_state
from vgrads.planner.snapshot import TaskKey

FALL = 0.1
"""Fall of the promise since the last plan that leads to replanning."""
_MOST_POINTS = 64
_CRASHES = frozenset(128 + signal for signal in (4, 6, 7, 8, 11))
"""Ends by signals that a program raises by its own fault: SIGILL, SIGABRT, SIGBUS, SIGFPE,
SIGSEGV."""


def record_check(state: RunState, event: PromiseChecked) -> PromiseRecord:
    """Return the record after one more check. ``fallen`` says from what to what, until the
    remainder is planned again. While a command is tried again after it failed, nothing is
    compared: no other plan would help it."""
    record, whole = state.promise, state.whole
    before, now = record.highest, event.probability
    fallen = record.fallen
    undecided = bool(estimate_repetition(state))
    if not undecided and before is not None and (now <= before - FALL or now == 0.0 < before):
        fallen = f"the promise has fallen from {before:.3f} to {now:.3f}"
        # the next fall counts from here, so that one fall is reported once
        before = now
    points = (*record.points, (event.at_s, now, whole))
    if len(points) > _MOST_POINTS:  # half the resolution from here on
        points = (points[0], *points[2:-1:2], points[-1])
    return record._replace(
        at_s=event.at_s,
        probability=now,
        end_s=event.end_s,
        highest=before if undecided else now if before is None else max(before, now),
        fallen=fallen,
        points=points,
    )


def status_of(event: ReplicaEnded) -> int | None:
    """Return the exit status with which a command failed by its own fault; None for a failure that
    something else may have caused."""
    if event.ok:
        return None
    return (
        event.code if event.code is not None else event.ended if event.ended in _CRASHES else None
    )


def add_failure(state: RunState, event: ReplicaEnded, slot: str) -> RunState:
    """Return the state with one more failure of a command; unchanged if it has another cause."""
    status, task = status_of(event), event.key[:2]
    if status is None:
        return state
    before = state.failures.get(task)
    # another status may have another cause: it is counted from the start
    if before is None or before.status != status:
        before = TaskFailures(status, 0, frozenset(), "")
    failures = TaskFailures(status, before.times + 1, before.slots | {slot}, event.reason)
    return state._replace(failures=state.failures.set(task, failures))


def find_failing_tasks(state: RunState) -> Iterator[tuple[TaskKey, TaskFailures]]:
    """Yield the tasks that fail by themselves: with one exit status in two slots, or with no try
    left."""
    for task, failures in state.failures.items():
        if task not in state.done and (
            len(failures.slots) > 1 or task in state.faulty or task in state.lost
        ):
            yield task, failures


def estimate_repetition(state: RunState) -> dict[TaskKey, float]:
    """Return task → probability that its failure repeats each time, as the tasks of the run show
    that have failed and were tried again (the rule of succession): of those that are not done and
    may still be tried."""
    again = sum(failures.times > 1 for failures in state.failures.values())
    recovered = sum(
        task in state.done and failures.times == 1 for task, failures in state.failures.items()
    )
    share = (again + 1.0) / (again + recovered + 2.0)
    return {
        task: 1.0 - (1.0 - share) ** failures.times
        for task, failures in state.failures.items()
        if task not in state.done and task not in state.faulty and task not in state.lost
    }


def describe_failure(failing: Mapping[TaskKey, TaskFailures]) -> str:
    """Return in one line which command fails and how; empty if none does."""
    if not failing:
        return ""
    (workflow, task), failures = min(failing.items())
    others = f" and {len(failing) - 1} more" if len(failing) > 1 else ""
    return f"your command of {workflow}/{task}{others} fails: {failures.reason}"


def judge_promise(execution: ExecutionPlan, state: RunState) -> PromiseState:
    """Return the state of the promise of a run that has not ended."""
    record, plan = state.promise, execution.plan
    return promise_state(
        record.probability,
        plan.requested_probability,
        possible=record.lost_s is None,
        failing=any(True for _ in find_failing_tasks(state)),
        is_met=_is_met(execution, state),
        past_due=state.now_s >= plan.deadline_s,
    )


def promise_json(
    execution: ExecutionPlan, state: RunState, elapsed_s: float, ended: bool = False
) -> dict[str, object]:
    """Return the promise of a run as programs and pages show it: its state in words and its last
    probability with its age, both null once it has ended; which command fails, and since when it
    cannot be met (seconds from the start), null where that is not so. ``elapsed_s``: the run's
    clock, which may be beyond its last event."""
    record = state.promise
    return {
        "promise_state": None if ended else str(judge_promise(execution, state)),
        "promise_now": None if ended else record.probability,
        "promise_age_s": None if ended or record.at_s is None else elapsed_s - record.at_s,
        "failing": describe_failure(dict(find_failing_tasks(state))) or None,
        "lost_s": record.lost_s,
    }


def _is_met(execution: ExecutionPlan, state: RunState) -> bool:
    if state.whole < execution.plan.needed:
        return False
    ends_s = find_done_workflows(execution, state).values()
    return sum(at_s <= execution.plan.deadline_s for at_s in ends_s) >= execution.plan.needed
