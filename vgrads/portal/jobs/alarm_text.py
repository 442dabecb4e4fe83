"""Text of a message about the promise of a run: what, by when, how probable, why, what would
help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from vgrads.api.plans.refusals import describe_relaxation
from vgrads.execmgr.core.alarm_conditions import NOT_BEGUN
from vgrads.execmgr.core.completion import over
from vgrads.execmgr.core.delays import describe_delays
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.promise_record import describe_failure, find_failing_tasks, judge_promise
from vgrads.execmgr.core.states import AlarmRecord, RunState
from vgrads.kernel.promise_state import PromiseState
from vgrads.kernel.units import format_count
from vgrads.planner.plan import Relaxation
from vgrads.workflows.alarm_rules import LATE

_TITLES: dict[str, str] = {
    PromiseState.AT_RISK: "the promise of {} is at risk",
    PromiseState.CANNOT_BE_MET: "the promise of {} cannot be met any more",
    PromiseState.FAILING: "the promise of {} is failing",
    PromiseState.MISSED: "the promise of {} is missed",
    PromiseState.ON_TRACK: "the promise of {} is on track again",
    LATE: "{} is expected after its deadline",
    NOT_BEGUN: "{} has not begun",
}


@dataclass(frozen=True)
class RunAddress:
    """Where a run is found. ``began``: in the time zone of the text; ``page``: address of the page
    of its set, empty without a service."""

    run_id: str
    began: datetime
    page: str = ""


def alarm_text(
    execution: ExecutionPlan,
    state: RunState,
    alarm: AlarmRecord,
    address: RunAddress,
    changes: Sequence[Relaxation] | None = None,
) -> tuple[str, str]:
    """Return title and body of a message. ``changes``: of the request, each of which would suffice
    now; None where they were not computed."""
    plan, name = execution.plan, execution.snapshot.workflow_set.name
    due = address.began + timedelta(seconds=plan.deadline_s)
    word = judge_promise(execution, state)
    is_final = word in (PromiseState.MET, PromiseState.MISSED)
    lines = [
        f"Set {name}, run {address.run_id}: {format_count(plan.needed, 'workflow', 'are')} needed "
        f"by {due:%Y-%m-%d %H:%M %Z}, {state.whole} done so far.",
        _format_probability(execution, state, is_final),
        *_explain_reasons(alarm),
        *_explain_causes(execution, state, alarm),
        *([] if helps_no_more(state, alarm) else _change_lines(execution, word, address, changes)),
        address.page or f"More: vgrads status {address.run_id}",
    ]
    return f"vgrads: {_make_title(name, alarm, word)}", "\n".join(lines)


def _make_title(name: str, alarm: AlarmRecord, word: PromiseState) -> str:
    # the promise was met since the alarm was raised
    if alarm.state == PromiseState.ON_TRACK and word == PromiseState.MET:
        return f"the promise of {name} is met"
    if alarm.state.startswith("below"):
        title = f"the promise of {name} has a probability {alarm.state}"
    elif alarm.state.startswith("above"):
        title = f"the cost of {name} is {alarm.state}"
    else:
        template = _TITLES.get(alarm.state)
        title = template.format(name) if template else f"{name}: {alarm.state}"
    return f"{title}; not acknowledged so far" if alarm.escalates else title


def _format_probability(execution: ExecutionPlan, state: RunState, is_final: bool) -> str:
    requested, now = execution.plan.requested_probability, state.promise.probability
    if now is None or is_final:
        return f"Requested probability: {requested:g}."
    return f"Probability now: {now:.3f}; requested: {requested:g}."


def _explain_reasons(alarm: AlarmRecord) -> list[str]:
    """Return what a message is about where that is no state of the promise."""
    is_state = alarm.state in set(PromiseState)
    return [] if is_state or not alarm.reason else [f"{alarm.reason[0].upper()}{alarm.reason[1:]}."]


def _explain_causes(execution: ExecutionPlan, state: RunState, alarm: AlarmRecord) -> list[str]:
    """Return why the promise is in danger: nothing where it is not."""
    if alarm.state == PromiseState.ON_TRACK:
        return []
    failing = describe_failure(dict(find_failing_tasks(state)))
    causes = (
        [failing, *describe_delays(execution, state)]
        if failing
        else describe_delays(execution, state)
    )
    return [f"Why: {cause}." for cause in causes]


def helps_no_more(state: RunState, alarm: AlarmRecord) -> bool:
    """Return True for a message about a promise that needs no help, or is decided."""
    return over(state) or alarm.state in (PromiseState.ON_TRACK, PromiseState.MISSED)


def _change_lines(
    execution: ExecutionPlan,
    word: PromiseState,
    address: RunAddress,
    changes: Sequence[Relaxation] | None,
) -> list[str]:
    """Return which changes of the request would suffice now, what they cost, and where they are
    made; where that was not computed, those of the plan, and what may help."""
    where = f"{address.page}/request" if address.page else f"vgrads change {address.run_id}"
    if changes:
        sufficient = [f"Sufficient now: {describe_relaxation(change)}." for change in changes]
        return [*sufficient, f"Change it: {where}"]
    if changes is not None:
        return [f"No change of the request was found that would suffice now; to try: {where}"]
    lines = [
        f"Sufficient when it was planned: {describe_relaxation(change)}."
        for change in execution.plan.relaxations
    ]
    # tasks that fail do so with more time too
    kinds = [] if word == PromiseState.FAILING else ["a later deadline"]
    if execution.plan.needed > 1:
        kinds.append("fewer workflows")
    if kinds and execution.snapshot.workflow_set.budget_usd is not None:
        kinds.append("more money")
    return [*lines, f"May help: {' or '.join(kinds)}: {where}"] if kinds else lines
