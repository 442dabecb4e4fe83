"""What a message by a rule would be about now, and why: pure."""

from __future__ import annotations

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.completion import over
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.promise_record import describe_failure, find_failing_tasks, judge_promise
from vgrads.execmgr.core.spending import sum_spent_usd
from vgrads.execmgr.core.states import AlarmRecord, ReplicaState, RuleRecord, RunState
from vgrads.kernel.promise_state import PromiseState
from vgrads.kernel.units import format_count, format_duration, format_usd
from vgrads.workflows.alarm_rules import LATE, SITE_FAILS, AlarmRule

NOT_BEGUN = "not begun"
GOOD = frozenset({PromiseState.ON_TRACK, PromiseState.MET})
_FINAL = frozenset({PromiseState.MET, PromiseState.MISSED})
_BEGUN = frozenset({ReplicaState.RUNNING, ReplicaState.DONE})


def state_now(execution: ExecutionPlan, state: RunState) -> PromiseState:
    """Return the state of the promise. A run that is over early, without a reason why the promise
    could not be met, has missed it too."""
    word = judge_promise(execution, state)
    is_open = word in (PromiseState.ON_TRACK, PromiseState.AT_RISK)
    return PromiseState.MISSED if is_open and over(state) else word


def find_subject(
    execution: ExecutionPlan,
    state: RunState,
    word: PromiseState,
    rule: AlarmRule,
    record: RuleRecord,
    last: AlarmRecord | None,
) -> str:
    """Return what a message by a rule would be about now; empty where there is nothing to write.
    ``word``: the state of the promise; ``last``: the rule's last message."""
    if word in rule.when and word not in GOOD:
        return word
    if word not in _FINAL:
        if rule.below is not None and record.below_since_s is not None:
            if state.now_s - record.below_since_s >= rule.for_s:
                return f"below {rule.below:g}"
            return ""  # not yet, and no reason to say that all is well
        if subject := _find_event(execution, state, rule):
            return subject
    if word in GOOD and last is not None and PromiseState.ON_TRACK in rule.when:
        return PromiseState.ON_TRACK
    return ""


def _find_event(execution: ExecutionPlan, state: RunState, rule: AlarmRule) -> str:
    """Return which other condition of a rule holds; empty where none does."""
    if LATE in rule.when and _is_late(execution, state):
        return LATE
    limit_s = rule.not_begun_after_s
    if limit_s is not None and state.now_s >= limit_s and not _has_begun(state):
        return NOT_BEGUN
    if rule.above_usd is not None and sum_spent_usd(execution, state) > rule.above_usd:
        return f"above {format_usd(rule.above_usd)}"
    if SITE_FAILS in rule.when and (sites := find_failed_sites(execution, state)):
        return f"{format_count(len(sites), 'site')} failed: {', '.join(sorted(sites))}"
    return ""


def _is_late(execution: ExecutionPlan, state: RunState) -> bool:
    promise = state.promise
    if promise.probability is None:
        return False
    return promise.end_s is None or promise.end_s > execution.plan.deadline_s


def _has_begun(state: RunState) -> bool:
    return bool(state.done) or any(record.state in _BEGUN for record in state.replicas.values())


def find_failed_sites(execution: ExecutionPlan, state: RunState) -> dict[str, str]:
    """Return the sites of which no slot became ready after the last one that failed, each with the
    reason."""
    last: dict[str, tuple[float, bool, str]] = {}
    for slot, record in state.slots.items():
        has_failed = record.state == SlotState.FAILED
        at_s = record.ended_s if has_failed else record.ready_s
        if at_s is not None:
            entry = (at_s, has_failed, record.reason)
            site = execution.place(slot)
            last[site] = max(last.get(site, entry), entry)
    return {site: reason for site, (_, has_failed, reason) in last.items() if has_failed}


def explain_alarm(execution: ExecutionPlan, state: RunState, rule: AlarmRule, subject: str) -> str:
    """Return in one line why a message is due."""
    failing = describe_failure(dict(find_failing_tasks(state)))
    if subject == PromiseState.MISSED:
        needed = format_count(execution.plan.needed, "needed workflow", "are")
        words = f"{state.whole} of {needed} done"
        return f"{words}; {failing}" if failing else words
    if subject == PromiseState.FAILING:
        return failing
    if subject == PromiseState.CANNOT_BE_MET:
        return "not even if every wait and every task took as little as one in twenty does"
    if subject == NOT_BEGUN:
        return f"no task has begun {format_duration(state.now_s)} after the run did"
    if rule.above_usd is not None and subject.startswith("above"):
        return f"the slots cost {format_usd(sum_spent_usd(execution, state))} so far"
    sites = find_failed_sites(execution, state)
    if sites and subject.endswith(", ".join(sorted(sites))):
        return "; ".join(f"{site}: {sites[site] or 'no reason given'}" for site in sorted(sites))
    return _explain_probability(execution, state, rule, subject)


def _explain_probability(
    execution: ExecutionPlan, state: RunState, rule: AlarmRule, subject: str
) -> str:
    promise, requested = state.promise, execution.plan.requested_probability
    if promise.probability is None:
        return ""
    words = f"the probability is {promise.probability:.3f}, {requested:g} is requested"
    if subject.startswith("below") and rule.for_s:
        words += f"; below {rule.below:g} for {format_duration(rule.for_s)}"
    if subject == LATE and promise.end_s is not None:
        late_s = promise.end_s - execution.plan.deadline_s
        words += f"; expected {format_duration(late_s)} after the deadline"
    return words
