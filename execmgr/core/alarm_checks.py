"""When a run checks its rules of alarms, and hands messages over to be sent."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol

from vgrads.execmgr.core.alarms import find_due_alarms
from vgrads.execmgr.core.completion import over
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import AlarmRecord, AlarmSent, Event, RunState
from vgrads.kernel.clock import Clock
from vgrads.workflows.alarm_rules import AlarmRule

_EVERY_S = 5.0  # between checks without a cause: a message may have waited for its minute


class AlarmResult(NamedTuple):
    """A message was delivered to a target, or given up with a reason."""

    number: int
    target: str
    ok: bool
    reason: str = ""


class AlarmSender(Protocol):
    """Sends messages without delaying the run."""

    def targets(self, rule: AlarmRule) -> tuple[str, ...]:
        """Return the names of a rule's targets: all of the run's owner where it names none."""

    def minute_of_day(self, at_s: float) -> int:
        """Return the local minute of the day, 0–1439, at an instant of the run's clock."""

    def send(self, execution: ExecutionPlan, state: RunState, alarm: AlarmRecord) -> None:
        """Begin to send a message to its targets without a result."""

    def results(self) -> list[AlarmResult]:
        """Return the results since the last call."""

    def under_way(self, is_last_try: bool) -> bool:
        """Return True if results are still to come. ``is_last_try``: the run is over, so that
        failed targets are tried once more at most, at once."""


def _is_quiet(rule: AlarmRule, minute: int) -> bool:
    return rule.quiet is not None and rule.quiet.contains(minute)


class AlarmChecks:
    """Checks the rules where that may have a result. A message is journalled before it is sent, so
    one without a result is sent again by the next manager. In virtual time nothing is sent: the
    instants of a simulation are not those of its user."""

    def __init__(self, sender: AlarmSender | None, clock: Clock) -> None:
        self._sender, self._clock = sender, clock
        self._begun: set[int] = set()
        self._basis: object = None
        self._again_s = 0.0

    def due(self, execution: ExecutionPlan, state: RunState) -> list[Event]:
        """Return messages that are due, and results of earlier ones."""
        sender = self._sender
        if sender is None:
            return []
        now_s = self._clock.now()
        results: list[Event] = []
        if not self._clock.virtual:
            self._send(sender, execution, state)
            results += [AlarmSent(at_s=now_s, **item._asdict()) for item in sender.results()]
        deadline_s = execution.plan.deadline_s
        # all on which conditions of rules depend, except time
        basis = (state.promise, state.failures, state.version, over(state), now_s >= deadline_s)
        if basis == self._basis and now_s < self._again_s:
            return results
        self._basis, self._again_s = basis, now_s + _EVERY_S
        workflow_set = execution.snapshot.workflow_set
        minute = sender.minute_of_day(now_s)
        # rules compare with the clock of the state, which otherwise moves with events only
        state = state._replace(now_s=max(now_s, state.now_s))
        for alarm in find_due_alarms(execution, state, lambda rule: _is_quiet(rule, minute)):
            rule = workflow_set.alarm_rules[alarm.rule]
            if alarm.escalates and rule.escalation is not None:
                targets = rule.escalation.to
            else:
                targets = sender.targets(rule)
            if targets or workflow_set.alarms is not None:
                results.append(replace(alarm, targets=targets))
        return results

    def under_way(self, execution: ExecutionPlan, state: RunState) -> bool:
        """Return True while messages of a run that is over are being sent."""
        if self._sender is None or self._clock.virtual:
            return False
        self._send(self._sender, execution, state)
        return self._sender.under_way(is_last_try=True)

    def _send(self, sender: AlarmSender, execution: ExecutionPlan, state: RunState) -> None:
        for alarm in state.alarms:
            if alarm.number not in self._begun and alarm.unsent:
                sender.send(execution, state, alarm)
            self._begun.add(alarm.number)
