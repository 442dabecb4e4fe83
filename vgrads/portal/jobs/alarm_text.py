"""Text of a message about the promise of a run: what, by when, how probable, why, what would
help."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from vgrads.api.plans.refusals import relaxation_text
from vgrads.execmgr.core.delays import delays
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.promise_record import failing_tasks, failure_text, state_of_promise
from vgrads.execmgr.core.states import AlarmRecord, RunState
from vgrads.kernel.promise_state import PromiseState
from vgrads.kernel.units import format_count

_TITLES: dict[str, str] = {
    PromiseState.AT_RISK: "is at risk",
    PromiseState.CANNOT_BE_MET: "cannot be met any more",
    PromiseState.FAILING: "is failing",
    PromiseState.MISSED: "is missed",
    PromiseState.ON_TRACK: "is on track again",
}


@dataclass(frozen=True)
class RunAddress:
    """Where a run is found. ``began``: in the time zone of the text; ``page``: address of the page
    of its set, empty without a service."""

    run_id: str
    began: datetime
    page: str = ""


def alarm_text(
    execution: ExecutionPlan, state: RunState, alarm: AlarmRecord, address: RunAddress
) -> tuple[str, str]:
    """Return title and body of a message."""
    plan, name = execution.plan, execution.snapshot.workflow_set.name
    due = address.began + timedelta(seconds=plan.deadline_s)
    word = state_of_promise(execution, state)
    words = _TITLES.get(alarm.state, f"has a probability {alarm.state}")
    if alarm.state == PromiseState.ON_TRACK and word == PromiseState.MET:
        words = "is met"
    is_final = word in (PromiseState.MET, PromiseState.MISSED)
    lines = [
        f"Set {name}, run {address.run_id}: {format_count(plan.needed, 'workflow', 'are')} needed "
        f"by {due:%Y-%m-%d %H:%M %Z}, {state.whole} done so far.",
        _probability_line(execution, state, is_final),
        *_cause_lines(execution, state, alarm),
        *_remedy_lines(execution),
        address.page or f"More: vgrads status {address.run_id}",
    ]
    return f"vgrads: the promise of {name} {words}", "\n".join(lines)


def _probability_line(execution: ExecutionPlan, state: RunState, is_final: bool) -> str:
    requested, now = execution.plan.requested_probability, state.promise.probability
    if now is None or is_final:
        return f"Requested probability: {requested:g}."
    return f"Probability now: {now:.3f}; requested: {requested:g}."


def _cause_lines(execution: ExecutionPlan, state: RunState, alarm: AlarmRecord) -> list[str]:
    """Return why the promise is in danger: nothing where it is not."""
    if alarm.state == PromiseState.ON_TRACK:
        return []
    failing = failure_text(dict(failing_tasks(state)))
    causes = [failing, *delays(execution, state)] if failing else delays(execution, state)
    return [f"Why: {cause}." for cause in causes]


def _remedy_lines(execution: ExecutionPlan) -> list[str]:
    """Return what would have met the request when it was planned, and what it costs."""
    return [
        f"Sufficient when it was planned: {relaxation_text(change)}."
        for change in execution.plan.relaxations
    ]
