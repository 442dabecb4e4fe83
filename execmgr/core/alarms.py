"""Which messages about the promise of a run are due, by the rules of its set: pure.

A message is due once for each change of the state of the promise, and no earlier than a minute
after the last one of its rule: of the states in between, the newest counts. Only what became of a
run that is over does not wait, or nobody would get it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vgrads.execmgr.core.completion import over
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.promise_record import failing_tasks, failure_text, state_of_promise
from vgrads.execmgr.core.states import (
    AlarmRaised,
    AlarmRecord,
    AlarmSent,
    PromiseChecked,
    RuleRecord,
    RunState,
)
from vgrads.kernel.promise_state import PromiseState
from vgrads.kernel.units import format_count, format_duration
from vgrads.workflows.alarm_rules import AlarmRule

PAUSE_S = 60.0
"""Shortest time between two messages by one rule."""
_GOOD = frozenset({PromiseState.ON_TRACK, PromiseState.MET})


def due_alarms(execution: ExecutionPlan, state: RunState) -> list[AlarmRaised]:
    """Return the messages that are due now; none once the user has cancelled the run."""
    if state.cancelled and state.promise.lost_s is None:
        return []
    word = _state_now(execution, state)
    least_s = 0.0 if over(state) else PAUSE_S
    raised: list[AlarmRaised] = []
    for position, (rule, record) in enumerate(_rules(execution, state)):
        last = _last(state, position)
        subject = _subject(rule, record, word, last, state.now_s)
        if not subject or (last is not None and _is_superfluous(last, record, subject)):
            continue
        if last is not None and state.now_s - last.at_s < least_s:
            continue
        event = AlarmRaised(
            at_s=state.now_s,
            number=len(state.alarms) + len(raised) + 1,
            rule=position,
            state=subject,
            reason=_reason(execution, state, rule, subject),
        )
        raised.append(event)
    return raised


def record_checked(execution: ExecutionPlan, state: RunState, event: PromiseChecked) -> RunState:
    """Return the state with what rules need of a check of the promise."""
    state = state._replace(now_s=max(event.at_s, state.now_s))
    word = _state_now(execution, state)
    records = []
    for position, (rule, before) in enumerate(_rules(execution, state)):
        is_below = rule.below is not None and event.probability < rule.below
        since_s = event.at_s if before.below_since_s is None else before.below_since_s
        now = before._replace(below_since_s=since_s if is_below else None)
        last = _last(state, position)
        if last is not None and event.at_s - last.at_s >= PAUSE_S:
            subject = _subject(rule, now, word, last, event.at_s)
            now = now._replace(outdated=now.outdated or subject != last.state)
        records.append(now)
    return state._replace(alarm_rules=tuple(records))


def record_alarm(state: RunState, event: AlarmRaised | AlarmSent) -> RunState:
    """Return the state with one more message, or one more result of a message. The clock of the
    state does not move: a run that is over has ended, though its last message is still sent."""
    return _with_result(state, event) if isinstance(event, AlarmSent) else _with_alarm(state, event)


def _with_alarm(state: RunState, event: AlarmRaised) -> RunState:
    record = AlarmRecord(
        event.number, event.at_s, event.rule, event.state, event.reason, event.targets
    )
    rules = list(state.alarm_rules)
    if event.rule < len(rules):
        rules[event.rule] = rules[event.rule]._replace(outdated=False)
    return state._replace(alarms=(*state.alarms, record), alarm_rules=tuple(rules))


def _with_result(state: RunState, event: AlarmSent) -> RunState:
    """Return the state after a message was delivered to a target, or given up. A later success
    replaces an earlier failure; messages are delivered at least once."""
    alarms = list(state.alarms)
    record = alarms[event.number - 1]
    failed = tuple(item for item in record.failed if item[0] != event.target)
    sent = record.sent
    if event.ok:
        sent = tuple(dict.fromkeys((*sent, event.target)))
    elif event.target not in sent:
        failed = (*failed, (event.target, event.reason))
    alarms[event.number - 1] = record._replace(sent=sent, failed=failed)
    return state._replace(alarms=tuple(alarms))


def alarms_json(state: RunState, instant: Callable[[float], str | None]) -> list[dict[str, object]]:
    """Return the messages of a run as programs and pages show them. ``instant``: converts seconds
    of the run's clock."""
    return [
        {
            "at": instant(alarm.at_s),
            "state": str(alarm.state),
            "reason": alarm.reason,
            "sent_to": list(alarm.sent),
            "failed": [{"target": name, "reason": reason} for name, reason in alarm.failed],
        }
        for alarm in state.alarms
    ]


def _rules(execution: ExecutionPlan, state: RunState) -> Iterator[tuple[AlarmRule, RuleRecord]]:
    rules = execution.snapshot.workflow_set.alarm_rules
    records = state.alarm_rules or (RuleRecord(),) * len(rules)
    return zip(rules, records, strict=True)


def _last(state: RunState, position: int) -> AlarmRecord | None:
    return next((alarm for alarm in reversed(state.alarms) if alarm.rule == position), None)


def _state_now(execution: ExecutionPlan, state: RunState) -> PromiseState:
    """Return the state of the promise. A run that is over early, without a reason why the promise
    could not be met, has missed it too."""
    word = state_of_promise(execution, state)
    is_open = word in (PromiseState.ON_TRACK, PromiseState.AT_RISK)
    return PromiseState.MISSED if is_open and over(state) else word


def _subject(
    rule: AlarmRule,
    record: RuleRecord,
    word: PromiseState,
    last: AlarmRecord | None,
    now_s: float,
) -> str:
    """Return what a message by a rule would be about now; empty where it has nothing to tell."""
    if word in rule.when and word not in _GOOD:
        return word
    is_over = word in (PromiseState.MET, PromiseState.MISSED)
    if rule.below is not None and record.below_since_s is not None and not is_over:
        if now_s - record.below_since_s >= rule.for_s:
            return f"below {rule.below:g}"
        return ""  # not yet, and no reason to say that all is well
    if word in _GOOD and last is not None and PromiseState.ON_TRACK in rule.when:
        return PromiseState.ON_TRACK
    return ""


def _is_superfluous(last: AlarmRecord, record: RuleRecord, subject: str) -> bool:
    return subject == last.state and not record.outdated


def _reason(execution: ExecutionPlan, state: RunState, rule: AlarmRule, subject: str) -> str:
    """Return in one line why the promise is in a state."""
    requested = execution.plan.requested_probability
    failing = failure_text(dict(failing_tasks(state)))
    if subject == PromiseState.MISSED:
        needed = format_count(execution.plan.needed, "needed workflow", "are")
        words = f"{state.whole} of {needed} done"
        return f"{words}; {failing}" if failing else words
    if subject == PromiseState.FAILING:
        return failing
    if subject == PromiseState.CANNOT_BE_MET:
        return "not even if every wait and every task took as little as one in twenty does"
    if state.promise.probability is None:
        return ""
    words = f"the probability is {state.promise.probability:.3f}, {requested:g} is requested"
    if subject.startswith("below") and rule.for_s:
        words += f"; below {rule.below:g} for {format_duration(rule.for_s)}"
    return words
