"""What follows from exit codes: tries, memory and time that grow, tasks that are not tried
again."""

from dataclasses import replace

import pytest

from tests.execmgr.test_execmgr import execution_for, ready, simulate
from tests.planner.test_planner import slot
from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.escalation import escalation
from vgrads.execmgr.core.journal import event_from_json, event_to_json
from vgrads.execmgr.core.remainder import measure_progress, plan_remainder
from vgrads.execmgr.core.states import (
    Replan,
    ReplicaEnded,
    ReplicaState,
    SlotUpdate,
    StartReplica,
    Tick,
)
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.task import Task
from vgrads.workflows.task_environment import ErrorRule, TaskEnvironment

KEY = ("w", "t", 0)
GROWS = ErrorRule(exits=(137,), retries=3, memory=2.0, time=1.5)
NEVER = ErrorRule(retries=0)


def execution(*rules, slots=(), **fields):
    task = Task(
        id="t",
        runtime_s=10.0,
        memory_mib=100.0,
        environment=TaskEnvironment(errors=rules),
        **fields,
    )
    room = slots or (replace(slot("a"), memory_mib=1000.0),)
    return execution_for([make_workflow("w", [task])], room)


def fails(at_s, code=None, message=None, key=KEY):
    return ReplicaEnded(
        at_s=at_s, key=key, ok=False, reason=f"exit code {message}", code=code, ended=message
    )


def starts(commands):
    return sum(isinstance(command, StartReplica) for command in commands)


def killed(*instants):
    return [fails(at_s, None, 137) for at_s in instants]


def test_without_rules_a_task_is_tried_once_more_and_the_same_code_twice_is_its_own_fault():
    state, commands = simulate(
        execution(), Tick(at_s=0.0), ready("a"), fails(1.0, 3, 3), fails(2.0, 3, 3)
    )
    assert starts(commands) == 2
    assert "it fails in the same way each time" in state.faulty["w", "t"]
    state, commands = simulate(execution(), Tick(at_s=0.0), ready("a"), *killed(1.0, 2.0))
    assert (starts(commands), len(state.faulty)) == (2, 0)


def test_a_rule_grants_tries_and_each_gets_more():
    plan = execution(GROWS)
    for count in (1, 2, 3):
        state, commands = simulate(plan, Tick(at_s=0.0), ready("a"), *killed(*range(1, count + 1)))
        assert starts(commands) == count + 1
        assert escalation(plan, state.replicas, KEY) == (2.0**count, 1.5**count)
    state, commands = simulate(plan, Tick(at_s=0.0), ready("a"), *killed(1, 2, 3, 4))
    assert starts(commands) == 4
    assert state.faulty["w", "t"] == "exit code 137; retried 3 times, as its error rules state"
    assert not any(isinstance(command, Replan) for command in commands)  # nobody could do better


def test_the_first_rule_that_fits_counts_and_any_means_what_the_command_chose():
    plan = execution(GROWS, NEVER)
    state, commands = simulate(plan, Tick(at_s=0.0), ready("a"), fails(1.0, 1, 1))
    assert (starts(commands), state.lost["w", "t"]) == (
        1,
        "exit code 1; not retried, as its error rules state",
    )
    state, commands = simulate(plan, Tick(at_s=0.0), ready("a"), *killed(1.0))
    assert starts(commands) == 2
    # its worker was lost: nothing that the command chose, so tried again as without rules
    state, commands = simulate(execution(NEVER), Tick(at_s=0.0), ready("a"), fails(1.0))
    assert starts(commands) == 2
    state, commands = simulate(execution(NEVER), Tick(at_s=0.0), ready("a"), *killed(1.0))
    assert starts(commands) == 2


def test_a_lost_slot_is_no_failure_of_its_tasks():
    lost = SlotUpdate(at_s=1.0, slot="a", state=SlotState.FAILED, reason="gone")
    state, commands = simulate(execution(NEVER), Tick(at_s=0.0), ready("a"), lost)
    assert (len(state.faulty), state.replicas[KEY].failures) == (0, 0)
    assert any(isinstance(command, Replan) for command in commands)


def test_time_that_has_grown_must_still_be_there():
    slow = ErrorRule(retries=9, time=100.0)
    late = execution(slow)
    deadline_s = late.plan.deadline_s
    _, commands = simulate(late, Tick(at_s=0.0), ready("a"), fails(deadline_s - 500.0, 1, 1))
    assert starts(commands) == 1  # a thousand seconds are not left
    _, commands = simulate(
        execution(ErrorRule(retries=9, time=10.0)),
        Tick(at_s=0.0),
        ready("a"),
        fails(deadline_s - 500.0, 1, 1),
    )
    assert starts(commands) == 2


def test_memory_that_no_slot_has_is_reported_with_the_most_that_there_is():
    plan = execution(ErrorRule(exits=(137,), retries=3, memory=4.0))
    state, commands = simulate(plan, Tick(at_s=0.0), ready("a"), *killed(1, 2))
    assert starts(commands) == 2
    assert state.faulty["w", "t"] == (
        "exit code 137; needs 1600 MiB of memory by its error rules, the slot with the most "
        "memory has 1000"
    )


def test_what_has_grown_out_of_its_slot_is_planned_anew_where_there_is_room():
    small, large = replace(slot("a"), memory_mib=150.0), replace(slot("b"), memory_mib=1000.0)
    large = replace(large, price_usd_per_hour=5.0)
    plan = execution(GROWS, slots=(small, large))
    assert plan.slot_of(KEY) == "a"
    state, commands = simulate(plan, Tick(at_s=0.0), ready("a"), *killed(1.0))
    assert (starts(commands), state.replicas[KEY].state) == (1, ReplicaState.FAILED)
    assert any(isinstance(command, Replan) for command in commands)
    assert measure_progress(plan, state).grown == {("w", "t"): (2.0, 1.5)}
    amended, why = plan_remainder(plan, state, lambda _: (large,))
    assert amended is not None, why
    fresh = [key for key in amended.placements if key not in plan.placements]
    assert [amended.uses[amended.slot_of(key)].slot.memory_mib for key in fresh] == [1000.0]
    assert escalation(amended, state.replicas, fresh[0]) == (2.0, 1.5)
    placement = amended.placements[fresh[0]]
    assert placement.end_s - placement.start_s == pytest.approx(15.0)


def test_ends_are_journalled_with_how_a_shell_tells_them():
    event = fails(1.0, None, 137)
    assert event_from_json(event_to_json(event)) == event
    older = event_to_json(event)
    del older["ended"]
    assert event_from_json(older).ended is None


SET = """
name: s
deadline: 1h
workflows:
  - name: w
    errors: [{{exit: any, retries: 0}}]
    tasks:
      - {{id: t, runtime_s: 1, command: "{command}", memory_mib: {memory}, errors: [{rule}]}}
"""
SITES = '[[site]]\nname = "here"\nkind = "local"\nprocs = 2\nmemory_mib = {memory}\n'


@pytest.mark.parametrize(
    ("rule", "memory", "good", "tries"),
    [
        ("{exit: 3, retries: 3}", 4000, True, 4),
        ("{exit: [3, 4], retries: 1}", 4000, False, 2),
        ("{exit: 4, retries: 3}", 4000, False, 1),
        ("{exit: 3, retries: 3, memory: 10}", 500, False, 2),
    ],
)
def test_a_run_goes_by_the_rules(rule, memory, good, tries, vgrads, write, tmp_path):
    count = tmp_path / "count"
    command = f"echo x >>{count}; test $(wc -l <{count}) -ge 4 || exit 3"
    ran = vgrads(
        "run",
        write("set.yaml", SET.format(command=command, rule=rule, memory=20)),
        "--sites",
        write("sites.toml", SITES.format(memory=memory)),
    )
    assert (ran.code == 0) is good, ran.err
    assert len(count.read_text().split()) == tries
    if memory == 500:
        assert (
            "needs 2000 MiB of memory by its error rules, the slot with the most memory has 500"
            in " ".join((ran.out + ran.err).split())
        )


def test_a_task_that_is_out_of_memory_gets_more(vgrads, write):
    eats = "python3 -c 'x = bytearray(70_000_000); import time; time.sleep(1)'"
    rule = "{exit: 137, retries: 3, memory: 2}"
    ran = vgrads(
        "run",
        write("set.yaml", SET.format(command=eats, rule=rule, memory=30)),
        "--sites",
        write("sites.toml", SITES.format(memory=1000)),
        "--json",
    )
    assert ran.code == 0, ran.err
    run = ran.json["run"] if "run" in ran.json else ran.json["id"]
    reasons = [row["reason"] for row in vgrads("logs", run, "--json").json["attempts"]]
    assert [str(r).rpartition(", ")[2] for r in reasons[:-1]] == [
        "30 MiB are stated",
        "60 MiB are stated",
    ]
