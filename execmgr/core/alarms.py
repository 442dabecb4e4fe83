"""Which messages about the promise of a run are due, by the rules of its set: pure.

A message is due once for each change of the state of the promise, and no earlier than a minute
after the last one of its rule: of the states in between, the newest counts. Only what became of a
run that is over does not wait, or nobody would get it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from vgrads.execmgr.core.alarm_conditions import GOOD, explain_alarm, find_subject, state_now
from vgrads.execmgr.core.completion import over
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import (
    AlarmRaised,
    AlarmRecord,
    AlarmsAcknowledged,
    AlarmSent,
    PromiseChecked,
    RuleRecord,
    RunState,
)
from vgrads.workflows.alarm_rules import AlarmRule

PAUSE_S = 60.0
"""Shortest time between two messages by one rule."""


def _never(_: AlarmRule) -> bool:
    return False


def find_due_alarms(
    execution: ExecutionPlan, state: RunState, is_quiet: Callable[[AlarmRule], bool] = _never
) -> list[AlarmRaised]:
    """Return the messages that are due now; none once the user has cancelled the run. ``is_quiet``:
    whether a rule has quiet hours now, so that its messages wait."""
    # who cancels knows of it; a run that its own rule stopped, since the promise was lost, tells
    if state.cancelled and state.promise.lost_s is None:
        return []
    word, is_over = state_now(execution, state), over(state)
    # the last message of a run that is over does not wait
    least_s = 0.0 if is_over else PAUSE_S
    raised: list[AlarmRaised] = []
    for position, (rule, record) in enumerate(_list_rules(execution, state)):
        if not is_over and is_quiet(rule):
            continue
        last, escalates = _find_last_message(state, position), 0
        subject = find_subject(execution, state, word, rule, record, last)
        if not subject:
            continue
        if last is not None:
            if state.now_s - last.at_s < least_s:
                continue
            if _is_superfluous(last, record, subject):
                if not _is_escalated(state, rule, last):
                    continue
                escalates = last.number
        event = AlarmRaised(
            at_s=state.now_s,
            number=len(state.alarms) + len(raised) + 1,
            rule=position,
            state=subject,
            reason=explain_alarm(execution, state, rule, subject),
            escalates=escalates,
        )
        raised.append(event)
    return raised


def record_checked(execution: ExecutionPlan, state: RunState, event: PromiseChecked) -> RunState:
    """Return the state with what rules need of a check of the promise."""
    state = state._replace(now_s=max(event.at_s, state.now_s))
    word = state_now(execution, state)
    records = []
    for position, (rule, before) in enumerate(_list_rules(execution, state)):
        is_below = rule.below is not None and event.probability < rule.below
        since_s = event.at_s if before.below_since_s is None else before.below_since_s
        now = before._replace(below_since_s=since_s if is_below else None)
        last = _find_last_message(state, position)
        if last is not None and event.at_s - last.at_s >= PAUSE_S:
            subject = find_subject(execution, state, word, rule, now, last)
            now = now._replace(outdated=now.outdated or subject != last.state)
        records.append(now)
    return state._replace(alarm_rules=tuple(records))


def record_alarm(state: RunState, event: AlarmRaised | AlarmSent | AlarmsAcknowledged) -> RunState:
    """Return the state with one more message, one more result of a message, or acknowledged
    messages. The clock of the state does not move: a run that is over has ended, though its last
    message is still sent."""
    if isinstance(event, AlarmSent):
        return _add_result(state, event)
    if isinstance(event, AlarmsAcknowledged):
        return state._replace(alarms=tuple(_acknowledge_alarm(state.alarms, event)))
    return _add_alarm(state, event)


def _acknowledge_alarm(
    alarms: Iterable[AlarmRecord], event: AlarmsAcknowledged
) -> Iterator[AlarmRecord]:
    for alarm in alarms:
        is_new = alarm.number <= event.upto and not alarm.acknowledged
        yield alarm._replace(acknowledged=event.by) if is_new else alarm


def _add_alarm(state: RunState, event: AlarmRaised) -> RunState:
    record = AlarmRecord(
        number=event.number,
        at_s=event.at_s,
        rule=event.rule,
        state=event.state,
        reason=event.reason,
        targets=event.targets,
        escalates=event.escalates,
    )
    rules = list(state.alarm_rules)
    # there are no records before the first check of the promise
    if event.rule < len(rules):
        rules[event.rule] = rules[event.rule]._replace(outdated=False)
    return state._replace(alarms=(*state.alarms, record), alarm_rules=tuple(rules))


def _add_result(state: RunState, event: AlarmSent) -> RunState:
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
            "number": alarm.number,
            "at": instant(alarm.at_s),
            "state": str(alarm.state),
            "reason": alarm.reason,
            "sent_to": list(alarm.sent),
            "failed": [{"target": name, "reason": reason} for name, reason in alarm.failed],
            "escalated": bool(alarm.escalates),
            "acknowledged_by": alarm.acknowledged,
        }
        for alarm in state.alarms
    ]


def _list_rules(
    execution: ExecutionPlan, state: RunState
) -> Iterator[tuple[AlarmRule, RuleRecord]]:
    rules = execution.snapshot.workflow_set.alarm_rules
    records = state.alarm_rules or (RuleRecord(),) * len(rules)
    return zip(rules, records, strict=True)


def _find_last_message(state: RunState, position: int) -> AlarmRecord | None:
    """Return the last message of a rule that is no escalation."""
    messages = (a for a in reversed(state.alarms) if a.rule == position and not a.escalates)
    return next(messages, None)


def _is_superfluous(last: AlarmRecord, record: RuleRecord, subject: str) -> bool:
    return subject == last.state and not record.outdated


def _is_escalated(state: RunState, rule: AlarmRule, last: AlarmRecord) -> bool:
    """Return True if a message of a rule is to be escalated now: nobody has acknowledged it in
    time, and it was not escalated yet."""
    return (
        rule.escalation is not None
        and last.state not in GOOD
        and not last.acknowledged
        and state.now_s - last.at_s >= rule.escalation.after_s
        and not any(alarm.escalates == last.number for alarm in state.alarms)
        and not over(state)
    )
