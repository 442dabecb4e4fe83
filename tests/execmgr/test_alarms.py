"""Who is notified when: the rules of a set, once for each change, also across crashes."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.execmgr.test_execmgr import execution_for, ready, simulate
from tests.execmgr.test_promise_states import exit_2, lose
from tests.execmgr.test_survival import World, no_leaving, run_through_crashes  # noqa: F401
from tests.planner.test_planner import chain, slot
from vgrads.drivers.api import SlotState
from vgrads.drivers.simulated import SiteBehaviour
from vgrads.execmgr.core.alarm_checks import AlarmChecks, AlarmResult
from vgrads.execmgr.core.alarms import PAUSE_S, alarms_json, find_due_alarms
from vgrads.execmgr.core.journal import MemoryJournal, event_from_json, event_to_json, fold
from vgrads.execmgr.core.states import (
    AlarmRaised,
    AlarmsAcknowledged,
    Cancelled,
    PromiseChecked,
    SlotUpdate,
    Tick,
)
from vgrads.execmgr.core.step import step
from vgrads.execmgr.runner import Runner
from vgrads.kernel.clock import SimClock
from vgrads.workflows.alarm_rules import AlarmEscalation, AlarmRule, QuietHours

DEADLINE_S = 1000.0


def execution_with(*rules):
    return execution_for([chain("w", 900.0)], [slot("a")], alarms=rules or None)


def check(execution, state, at_s, probability, possible=True):
    """A check of the promise, then the rules: the state, and what a message is about."""
    event = PromiseChecked(at_s=at_s, probability=probability, possible=possible)
    state, _ = step(execution, state, event)
    raised = find_due_alarms(execution, state)
    for alarm in raised:
        assert event_from_json(event_to_json(alarm)) == alarm
        state, commands = step(execution, state, alarm)
        assert not commands
    return state, [alarm.state for alarm in raised]


def subjects(rule, *checks):
    """What messages by a rule are about, after each (instant, probability)."""
    execution = execution_with(rule)
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"))
    results = []
    for at_s, probability in checks:
        state, raised = check(execution, state, at_s, probability)
        results.append(raised)
    return results


RISK, GOOD = ["at risk"], ["on track"]


@pytest.mark.parametrize(
    ("rule", "checks", "expected"),
    [
        (AlarmRule(), [(60, 0.95), (120, 0.9)], [[], []]),
        (AlarmRule(), [(60, 0.5), (120, 0.4), (180, 0.3)], [RISK, [], []]),
        (AlarmRule(), [(60, 0.5), (130, 0.95), (200, 0.5)], [RISK, GOOD, RISK]),
        (AlarmRule(), [(60, 0.5), (80, 0.95), (100, 0.5), (130, 0.5)], [RISK, [], [], []]),
        (AlarmRule(), [(60, 0.5), (80, 0.95), (130, 0.95)], [RISK, [], GOOD]),
        (AlarmRule(when=("at risk",)), [(60, 0.5), (130, 0.9), (200, 0.5)], [RISK, [], RISK]),
        (AlarmRule(when=("failing",)), [(60, 0.1)], [[]]),
        (
            AlarmRule(when=("on track",), below=0.5, for_s=100.0),
            [(60, 0.4), (120, 0.6), (130, 0.4), (200, 0.3), (240, 0.3), (310, 0.2), (320, 0.9)],
            [[], [], [], [], ["below 0.5"], [], GOOD],
        ),
        (AlarmRule(when=("missed",), below=0.5), [(60, 0.4), (130, 0.9)], [["below 0.5"], []]),
    ],
)
def test_a_message_is_due_once_for_each_change(rule, checks, expected):
    assert subjects(rule, *checks) == expected


def test_a_failing_command_an_impossible_promise_and_the_deadline():
    execution = execution_for(
        [chain("w", 100.0)], [slot("a", up=0.9), slot("b", up=0.9)], probability=0.98
    )
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"), ready("b"))
    for at_s in (10.0, 20.0):
        running = next(key for key, r in state.replicas.items() if r.state == "running")
        state, _ = step(execution, state, exit_2(running, at_s))
    state, raised = check(execution, state, 21.0, 0.0)
    assert raised == ["failing"]
    assert state.alarms[0].reason.startswith("your command of w/t0 fails: exit code 2")
    state, _ = step(execution, state, Tick(at_s=DEADLINE_S + 1.0))
    (missed,) = find_due_alarms(execution, state)
    assert (missed.state, missed.reason[:33]) == ("missed", "0 of 1 needed workflow is done; y")

    execution = execution_with()
    state, _ = lose(execution, simulate(execution, Tick(at_s=0.0), ready("a"))[0], 100.0)
    assert [alarm.state for alarm in find_due_alarms(execution, state)] == ["cannot be met"]


def test_nobody_is_notified_of_a_run_that_its_user_cancelled():
    execution = execution_with()
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"))
    state, _ = step(execution, state, PromiseChecked(at_s=60.0, probability=0.1))
    assert find_due_alarms(execution, state)
    state, _ = step(execution, state, Cancelled(at_s=61.0, reason="by command"))
    assert not find_due_alarms(execution, state)


def test_conditions_besides_the_state_of_the_promise():
    rule = AlarmRule(when=("late", "on track"))
    execution = execution_with(rule)
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"))
    late = PromiseChecked(at_s=60.0, probability=0.95, end_s=DEADLINE_S + 120.0)
    state, _ = step(execution, state, late)
    (alarm,) = find_due_alarms(execution, state)
    assert alarm.state == "late" and alarm.reason.endswith("expected 2m after the deadline")
    state, _ = step(execution, state, alarm)
    early = PromiseChecked(at_s=130.0, probability=0.95, end_s=900.0)
    state, _ = step(execution, state, early)
    assert [alarm.state for alarm in find_due_alarms(execution, state)] == ["on track"]

    execution = execution_with(AlarmRule(when=("on track",), not_begun_after_s=30.0))
    state, _ = simulate(execution, Tick(at_s=0.0), Tick(at_s=29.0))
    assert not find_due_alarms(execution, state)
    state, _ = step(execution, state, Tick(at_s=31.0))
    (alarm,) = find_due_alarms(execution, state)
    assert alarm.state == "not begun" and "no task has begun 31s after" in alarm.reason
    state, _ = step(execution, state, alarm)
    state, _ = step(execution, state, replace(ready("a"), at_s=95.0))
    assert [alarm.state for alarm in find_due_alarms(execution, state)] == ["on track"]


def test_money_and_a_site_that_fails():
    execution = execution_for(
        [chain("w", 900.0)],
        [slot("a", price_usd_per_hour=3.0)],
        alarms=(AlarmRule(when=("on track",), above_usd=1.0), AlarmRule(when=("site fails",))),
    )
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"))
    (alarm,) = find_due_alarms(execution, state)
    assert alarm.state == "above $1.00" and "the slots cost $3.00 so far" in alarm.reason
    state, _ = step(execution, state, alarm)
    lost = SlotUpdate(at_s=100.0, slot="a", state=SlotState.FAILED, reason="no capacity")
    state, _ = step(execution, state, lost)
    failed = [alarm for alarm in find_due_alarms(execution, state) if alarm.rule == 1]
    assert [alarm.state for alarm in failed] == ["1 site failed: a"]
    assert failed[0].reason == "a: no capacity"


def test_messages_wait_until_quiet_hours_are_over():
    rule = AlarmRule(quiet=QuietHours(start=0, end=2))  # the first two minutes
    execution, sender = execution_with(rule), Sender()
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"))
    state, _ = step(execution, state, PromiseChecked(at_s=60.0, probability=0.2))
    checks, clock = checks_of(execution, sender, 60.0)
    assert not checks.due(execution, state)
    clock.advance_to(121.0)
    assert [alarm.state for alarm in checks.due(execution, state)] == ["at risk"]


def escalating():
    """A message that is due at 60 s, to be escalated after 300 s."""
    rule = AlarmRule(to=("mail",), escalation=AlarmEscalation(to=("boss",), after_s=300.0))
    execution = execution_with(rule)
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"))
    state, _ = check(execution, state, 60.0, 0.2)
    return execution, state


def test_a_message_that_nobody_acknowledges_is_escalated_once():
    execution, state = escalating()
    checks, clock = checks_of(execution, Sender(), 359.0)
    assert not checks.due(execution, state)
    clock.advance_to(365.0)
    (alarm,) = checks.due(execution, state)
    assert (alarm.escalates, alarm.targets, alarm.state) == (1, ("boss",), "at risk")
    state, _ = step(execution, state, alarm)
    for at_s in (400.0, 700.0):
        state, raised = check(execution, state, at_s, 0.2)
        assert not raised
    assert [row["escalated"] for row in alarms_json(state, str)] == [False, True]


def test_an_acknowledged_message_is_not_escalated():
    execution, state = escalating()
    event = AlarmsAcknowledged(at_s=200.0, upto=1, by="ann")
    assert event_from_json(event_to_json(event)) == event
    state, commands = step(execution, state, event)
    assert not commands and alarms_json(state, str)[0]["acknowledged_by"] == "ann"
    state, raised = check(execution, state, 400.0, 0.2)
    assert not raised
    state, raised = check(execution, state, 500.0, 0.95)  # better, and in danger once more
    state, raised = check(execution, state, 600.0, 0.2)
    assert raised == ["at risk"]
    state, raised = check(execution, state, 901.0, 0.2)
    assert raised == ["at risk"] and state.alarms[-1].escalates == state.alarms[-2].number


RULES = st.builds(
    AlarmRule,
    when=st.sets(
        st.sampled_from(("at risk", "cannot be met", "failing", "missed", "on track"))
    ).map(lambda names: tuple(sorted(names))),
    below=st.none() | st.sampled_from((0.3, 0.5)),
    for_s=st.sampled_from((0.0, 90.0)),
)
CHECKS = st.lists(
    st.tuples(st.floats(0.5, 150.0), st.sampled_from((0.0, 0.2, 0.4, 0.8, 0.88, 0.97))),
    max_size=12,
)


@given(st.lists(RULES, min_size=1, max_size=3), CHECKS)
def test_never_two_in_a_minute_and_never_the_same_without_a_change(rules, checks):
    execution = execution_with(*rules)
    events = [Tick(at_s=0.0), ready("a")]
    state, _ = simulate(execution, *events)
    at_s, last, since = 0.0, {}, {}
    for pause_s, probability in checks:
        at_s += pause_s
        if at_s >= DEADLINE_S:
            break
        events.append(PromiseChecked(at_s=at_s, probability=probability))
        state, _ = step(execution, state, events[-1])
        for position, values in since.items():
            values.add(_category(rules[position], probability))
        for alarm in find_due_alarms(execution, state):
            if before := last.get(alarm.rule):
                assert alarm.at_s - before.at_s >= PAUSE_S
                assert alarm.state != before.state or len(since[alarm.rule]) > 1
            last[alarm.rule], since[alarm.rule] = alarm, {_category(rules[alarm.rule], probability)}
            state, _ = step(execution, state, alarm)
            events.append(alarm)
        assert not find_due_alarms(execution, state)
    assert fold(execution, events) == state


def _category(rule, probability):
    return probability < 0.85, rule.below is not None and probability < rule.below


class Sender:
    """Sends to targets that outlive the manager, with results a turn later; those named in
    ``refusing`` fail."""

    def __init__(self, names=("mail", "hook"), refusing=()):
        self.names, self.refusing, self.messages = names, refusing, []
        self._results, self._later = [], []

    def targets(self, rule):
        return rule.to or self.names

    def minute_of_day(self, at_s):
        return int(at_s // 60) % 1440

    def send(self, execution, state, alarm):
        for name in alarm.unsent:
            ok = name not in self.refusing
            self.messages.append((alarm.number, name))
            self._later.append(AlarmResult(alarm.number, name, ok, "" if ok else "refused"))

    def results(self):
        results, self._results, self._later = self._results, self._later, []
        return results

    def forget(self):
        """Lose the results, as a manager that is killed does."""
        self._results, self._later = [], []

    def under_way(self, is_last_try):
        return bool(self._results or self._later)


class RealTime(SimClock):
    """Virtual time that a manager takes for real time."""

    virtual = False


def checks_of(execution, sender, at_s):
    clock = RealTime(at_s)
    return AlarmChecks(sender, clock), clock


def test_a_message_without_a_result_is_sent_again_by_the_next_manager():
    execution, sender = execution_with(), Sender(refusing=("hook",))
    events = [Tick(at_s=0.0), ready("a"), PromiseChecked(at_s=60.0, probability=0.2)]
    checks, _ = checks_of(execution, sender, 60.0)
    raised = checks.due(execution, fold(execution, events))
    assert raised == [
        AlarmRaised(
            at_s=60.0,
            number=1,
            rule=0,
            state="at risk",
            reason="the probability is 0.200, 0.9 is requested",
            targets=("mail", "hook"),
        )
    ]
    events += raised
    state = fold(execution, events)
    checks.due(execution, state)  # sent; the manager is killed before it writes the results
    assert sender.messages == [(1, "mail"), (1, "hook")]
    sender.forget()

    checks, _ = checks_of(execution, sender, 70.0)
    assert checks.due(execution, state) == []
    events += checks.due(execution, state)
    assert sender.messages[2:] == [(1, "mail"), (1, "hook")]
    state = fold(execution, [event_from_json(event_to_json(event)) for event in events])
    assert (state.alarms[0].sent, state.alarms[0].failed) == (("mail",), (("hook", "refused"),))
    assert alarms_json(state, str)[0]["failed"] == [{"target": "hook", "reason": "refused"}]

    checks, _ = checks_of(execution, sender, 80.0)
    assert checks.due(execution, state) == []
    assert len(sender.messages) == 4


def test_a_set_without_rules_needs_targets_and_one_with_none_sends_nothing():
    for alarms, names, expected in (
        (None, (), 0),
        (None, ("mail",), 1),
        ((), ("mail",), 0),
        ((AlarmRule(),), (), 1),
    ):
        execution = execution_for([chain("w", 900.0)], [slot("a")], alarms=alarms)
        check = PromiseChecked(at_s=60.0, probability=0.2)
        state, _ = simulate(execution, Tick(at_s=0.0), ready("a"), check)
        checks, _ = checks_of(execution, Sender(names), 60.0)
        assert len(checks.due(execution, state)) == expected


class AlarmWorld(World):
    """A world in which a slot comes too late, and in which waiting takes time."""

    def __init__(self, execution, sender):
        super().__init__(execution, SiteBehaviour(boot_s=250.0))
        self.sender, self.clock.virtual = sender, False
        self.engine.wait = lambda pause_s: self.clock.advance_to(self.clock.now() + pause_s)

    def around(self, journal, stop=lambda: ""):
        """Surroundings of the next manager."""
        self.sender.forget()
        return replace(super().around(journal, stop), alarms=self.sender, poll_s=5.0)


def late_execution():
    return execution_for([chain("w", 100.0)], [slot("a")], deadline_s=300.0)


@pytest.mark.more  # at some writes in others
def test_a_manager_killed_at_every_write_loses_no_message():
    world = AlarmWorld(late_execution(), Sender())
    journal = MemoryJournal()
    state = Runner("r", world.executions[0], world.around(journal)).run()
    subjects = [alarm.state for alarm in state.alarms]
    assert subjects == ["missed"] or subjects[-1] == "cannot be met", subjects
    assert all(not alarm.unsent for alarm in state.alarms)
    assert len(world.sender.messages) == 2 * len(subjects)
    for before, position in itertools.product((True, False), range(1, len(journal.events) + 1)):
        world = AlarmWorld(late_execution(), Sender())
        state, again = run_through_crashes(world, [position], before)
        # the next manager computes the promise at once, and may find the last state only
        states = [alarm.state for alarm in state.alarms]
        assert states in (subjects, subjects[-1:]), states
        assert all(alarm.sent == ("mail", "hook") for alarm in state.alarms)
        assert len(world.sender.messages) <= 2 * len(states) + 2
        assert fold(world.executions, again.events) == state
