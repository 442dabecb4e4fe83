"""The execution manager: order, copies, loss, journal; virtual and real."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.planner.brief import make_plan
from tests.planner.test_planner import chain, make_set, slot
from tests.workflows.test_workflows import dags
from vgrads.drivers.api import SlotState
from vgrads.drivers.simulated import SimulatedCloud, SiteBehaviour
from vgrads.execmgr.core.acquisitions import list_acquisitions
from vgrads.execmgr.core.completion import find_done_workflows, find_refused_queues, over
from vgrads.execmgr.core.execution_plan import make_execution
from vgrads.execmgr.core.journal import MemoryJournal, event_from_json, event_to_json, fold
from vgrads.execmgr.core.states import (
    CancelReplica,
    ReleaseSlot,
    Replan,
    Replanned,
    ReplicaEnded,
    ReplicaState,
    RequestSlot,
    SlotUpdate,
    StartReplica,
    Tick,
)
from vgrads.execmgr.core.step import begin, step
from vgrads.execmgr.engines.simulated import SimulatedEngine
from vgrads.execmgr.runner import Runner, RunnerSetup
from vgrads.kernel.clock import SimClock
from vgrads.planner.make import Options
from vgrads.planner.plan import EVERYTHING, Placement
from vgrads.planner.snapshot import Snapshot
from vgrads.planner.uses import derive_slot_uses
from vgrads.simulator.cloud import CloudRegion
from vgrads.vgrid.slot import make_certain_curve


def execution_for(workflows, slots, needed=1, **more):
    snapshot = Snapshot(
        workflow_set=make_set(workflows, needed, **more), slots=tuple(slots), scenarios=256
    )
    plan = make_plan(snapshot, Options(effort=0))  # as the phases place it
    assert plan.feasible, plan.lacking
    return make_execution(plan, snapshot)


def simulate(execution, *events):
    """Feed events; the state and every command given."""
    state, commands = begin(execution), []
    for event in events:
        state, listed_commands = step(execution, state, event)
        commands += listed_commands
    return state, commands


def ready(name, at_s=0.0):
    return SlotUpdate(at_s=at_s, slot=name, state=SlotState.READY)


def ended(key, at_s, ok=True):
    return ReplicaEnded(at_s=at_s, key=key, ok=ok, reason="" if ok else "exit code 1")


def test_tasks_start_in_order_when_slot_and_inputs_are_there():
    execution = execution_for([chain("w", 10.0, 10.0)], [slot("a")])
    first, second = ("w", "t0", 0), ("w", "t1", 0)
    state, commands = simulate(execution, Tick(at_s=0.0))
    assert commands == [RequestSlot("a")]
    state, commands = simulate(execution, Tick(at_s=0.0), ready("a"))
    assert commands[1:] == [StartReplica(first)]
    state, commands = simulate(
        execution, Tick(at_s=0.0), ready("a"), ended(first, 10.0), ended(second, 20.0)
    )
    assert commands[2:] != []
    assert find_done_workflows(execution, state) == {"w": 20.0}


def test_nothing_overtakes_what_was_planned_before_it():
    execution = execution_for([chain("w", 100.0), chain("v", 100.0)], [slot("a", 1)], needed=2)
    early, late = execution.order["a"]
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"))
    assert (state.replicas[early].state, state.replicas[late].state) == (
        ReplicaState.RUNNING,
        ReplicaState.WAITING,
    )
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"), ended(early, 50.0))
    assert state.replicas[late].state == ReplicaState.RUNNING  # moved up: the first ended early


def waiting_for_data(*behind):
    """Slot ``a`` of one processor holds a task that waits for one in ``b``, planned from 50 s on,
    and others behind it."""
    flows = [chain("w", 50.0, 100.0), *(chain(f"v{n}", length) for n, length in enumerate(behind))]
    snapshot = Snapshot(
        workflow_set=make_set(flows), slots=(slot("a", 1, site="x"), slot("b", 1, site="x"))
    )
    begin_s, placed = 150.0, [place("w", "t0", "b", 0.0, 50.0), place("w", "t1", "a", 50.0, 150.0)]
    for n, length in enumerate(behind):
        placed.append(place(f"v{n}", "t0", "a", begin_s, begin_s + length))
        begin_s += length
    plan = replace(
        make_plan(snapshot),
        placements=tuple(placed),
        uses=derive_slot_uses(snapshot, placed),
        spare_workflows=EVERYTHING,
        needed=len(flows),
    )
    plan.check(snapshot)
    return make_execution(plan, snapshot)


def place(workflow, task, name, start_s, end_s):
    return Placement(
        workflow=workflow, task=task, replica=0, slot=name, start_s=start_s, end_s=end_s, procs=1
    )


def running(state):
    return {
        key[0] for key, record in state.replicas.items() if record.state == ReplicaState.RUNNING
    }


def test_what_can_run_passes_what_waits_for_data_if_that_is_not_delayed_beyond_its_plan():
    execution = waiting_for_data(60.0, 40.0)
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a"))
    assert running(state) == {"v1"}  # done by 40 s; the other one would not be by 50 s


def test_what_is_late_is_passed_by_anything():
    execution = waiting_for_data(60.0, 40.0)
    state, _ = simulate(execution, Tick(at_s=0.0), ready("a", 20.0))
    assert running(state) == set()  # neither would be done by 50 s
    assert state.wake_s == 51.0  # its data may still come within the second
    state, _ = step(execution, state, Tick(at_s=51.0))
    assert running(state) == {"v0"}


def test_nobody_passes_what_only_finds_no_room():
    flows = [chain("w", 100.0), chain("wide", 50.0, procs=2), chain("v", 10.0)]
    snapshot = Snapshot(workflow_set=make_set(flows), slots=(slot("a", 2),))
    wide = Placement(
        workflow="wide", task="t0", replica=0, slot="a", start_s=100.0, end_s=150.0, procs=2
    )
    placed = [place("w", "t0", "a", 0.0, 100.0), wide, place("v", "t0", "a", 150.0, 160.0)]
    plan = replace(
        make_plan(snapshot),
        placements=tuple(placed),
        uses=derive_slot_uses(snapshot, placed),
        spare_workflows=EVERYTHING,
    )
    state, _ = simulate(make_execution(plan, snapshot), Tick(at_s=0.0), ready("a"))
    assert running(state) == {"w"}


def test_when_enough_is_done_the_rest_is_released():
    execution = execution_for(
        [chain("w", 10.0), chain("v", 400.0)], [slot("a", 1), slot("b", 1)], needed=2
    )
    execution = replace(execution, plan=replace(execution.plan, needed=1))
    state, commands = simulate(
        execution, Tick(at_s=0.0), ready("a"), ready("b"), ended(("w", "t0", 0), 10.0)
    )
    assert CancelReplica(("v", "t0", 0)) in commands
    assert sum(isinstance(command, ReleaseSlot) for command in commands) == 2
    assert "the rest is released" in state.notes[-1][1]


def test_what_enough_ready_workflows_do_not_need_is_withdrawn():
    names = ["u", "v", "w"]
    execution = execution_for(
        [chain(name, 100.0) for name in names], [slot(name, 1) for name in "abc"], needed=3
    )
    execution = replace(execution, plan=replace(execution.plan, needed=1, spare_workflows=1))
    first, second, third = (execution.slot_of((name, "t0", 0)) for name in names)
    assert len({first, second, third}) == 3
    state, commands = simulate(execution, Tick(at_s=0.0), ready(first))
    assert not [c for c in commands if isinstance(c, ReleaseSlot)]  # one stands, two are to
    state, commands = step(execution, state, ready(second, 1.0))
    assert commands[-1:] == [ReleaseSlot(third)]
    assert running(state) == {"u", "v"}
    assert "released early" in state.notes[-1][1]
    _, commands = simulate(execution, Tick(at_s=0.0), ready(first), ready(second, 900.5))
    assert not [
        c for c in commands if isinstance(c, ReleaseSlot) and c.slot == third
    ]  # it stands too late


def test_the_first_copy_wins_and_its_replica_is_cancelled():
    slots = [slot(f"s{n}", curve=make_certain_curve(0, 0.7)) for n in range(2)]
    execution = execution_for([chain("w")], slots)
    item, two = ("w", "t0", 0), ("w", "t0", 1)
    where = {key: execution.slot_of(key) for key in (item, two)}
    events = [
        Tick(at_s=0.0),
        ready(where[item]),
        ready(where[two]),
        ended(two, 90.0),
        ended(item, 100.0),
    ]
    state, commands = simulate(execution, *events)
    assert CancelReplica(item) in commands
    assert (state.replicas[item].state, state.replicas[two].state) == (
        ReplicaState.CANCELLED,
        ReplicaState.DONE,
    )
    assert find_done_workflows(execution, state) == {"w": 90.0}


def test_a_lost_slot_loses_its_tasks_and_their_descendants_with_a_reason():
    execution = execution_for([chain("w", 10.0, 10.0)], [slot("a")])
    lost = SlotUpdate(at_s=5.0, slot="a", state=SlotState.FAILED, reason="node down")
    state, commands = simulate(execution, Tick(at_s=0.0), ready("a"), lost, ready("a", 6.0))
    assert CancelReplica(("w", "t0", 0)) in commands
    assert state.replicas["w", "t0", 0].state == ReplicaState.FAILED
    assert state.replicas["w", "t1", 0].state == ReplicaState.SKIPPED
    assert "node down" in state.replicas["w", "t1", 0].reason
    assert [type(c) for c in commands][-1] == Replan
    assert not over(state)  # until the planner has answered
    state, commands = step(
        execution, state, Replanned(at_s=6.0, version=0, reason="nothing better")
    )
    assert (over(state), commands) == (True, [])


def test_a_failed_task_abandons_its_descendants():
    execution = execution_for([chain("w", 10.0, 10.0), chain("v", 10.0)], [slot("a")], needed=2)
    first = ended(("w", "t0", 0), 10.0, ok=False)
    state, commands = simulate(execution, Tick(at_s=0.0), ready("a"), first)
    assert commands.count(StartReplica(("w", "t0", 0))) == 2  # it tries once more
    assert "retried after: exit code 1" in state.replicas["w", "t0", 0].reason
    state, _ = simulate(
        execution, Tick(at_s=0.0), ready("a"), first, ended(("w", "t0", 0), 20.0, ok=False)
    )
    assert state.replicas["w", "t1", 0].state == ReplicaState.SKIPPED
    assert "never come" in state.replicas["w", "t1", 0].reason


def exits(key, at_s, code):
    return ReplicaEnded(at_s=at_s, key=key, ok=False, reason=f"exit code {code}", code=code)


def test_the_same_exit_code_twice_is_the_tasks_own_fault_and_no_cause_to_plan():
    execution = execution_for([chain("w", 10.0, 10.0), chain("v", 10.0)], [slot("a")], needed=2)
    key = ("w", "t0", 0)
    begun = (Tick(at_s=0.0), ready("a"))
    state, commands = simulate(execution, *begun, exits(key, 1.0, 3), exits(key, 2.0, 3))
    assert state.faulty[key[:2]] == "exit code 3; it fails in the same way each time"
    assert state.lost[key[:2]] == "exit code 3"
    assert not [c for c in commands if isinstance(c, Replan)]  # nothing would keep the promise
    other, commands = simulate(execution, *begun, exits(key, 1.0, 3), exits(key, 2.0, 4))
    assert not other.faulty
    assert [c for c in commands if isinstance(c, Replan)]


def test_a_killed_task_is_chance_however_often():
    execution = execution_for([chain("w", 10.0)], [slot("a")])
    killed = ended(("w", "t0", 0), 1.0, ok=False)
    state, _ = simulate(
        execution, Tick(at_s=0.0), ready("a"), killed, ended(("w", "t0", 0), 2.0, ok=False)
    )
    assert not state.faulty
    assert ("w", "t0") in state.lost


def test_a_queue_that_refuses_for_good_is_requested_no_more_and_teaches_nothing():
    slots = [
        replace(slot(name), site="s", queue=queue)
        for name, queue in (("a", "q"), ("b", "q"), ("c", "r"))
    ]
    execution = execution_for([chain(name, 10.0) for name in "uvw"], slots, needed=3)
    if len(execution.uses) < 3:  # the planner may do with fewer
        execution = replace(
            execution,
            uses={
                name: replace(next(iter(execution.uses.values())), slot=s)
                for name, s in zip("abc", slots, strict=True)
            },
            order={name: execution.order.get(name, ()) for name in "abc"},
        )
    state = begin(execution)
    requested = state.slots["a"]._replace(state=SlotState.REQUESTED, requested_s=0.0)
    state = state._replace(slots=state.slots.set("a", requested))
    no = SlotUpdate(
        at_s=1.0, slot="a", state=SlotState.FAILED, reason="refused: no such queue", permanent=True
    )
    state, commands = step(execution, state, no)
    assert (state.slots["a"].state, state.slots["b"].state) == (SlotState.FAILED, SlotState.FAILED)
    assert state.slots["c"].state != SlotState.FAILED
    assert RequestSlot("b") not in commands
    assert find_refused_queues(execution, state.slots) == {("s", "q")}
    assert [acquisition.queue for acquisition in list_acquisitions(execution, state)] in ([], ["r"])


def test_a_refusal_for_good_reaches_as_many_slots_as_there_are():
    execution = execution_for([chain("w", 10.0)], [slot("a")])
    slot_use = next(iter(execution.uses.values()))
    names = ["a", *(f"s{n}" for n in range(3000))]
    uses = {
        name: replace(slot_use, slot=replace(slot_use.slot, id=name), submit_s=50.0)
        for name in names
    }
    execution = replace(
        execution, uses=uses, order={name: execution.order.get(name, ()) for name in names}
    )
    no = SlotUpdate(at_s=1.0, slot="a", state=SlotState.FAILED, reason="refused", permanent=True)
    state, commands = step(execution, begin(execution), no)
    assert {record.state for record in state.slots.values()} == {SlotState.FAILED}
    assert not [c for c in commands if isinstance(c, RequestSlot)]


def test_a_slot_that_comes_too_late_gets_no_task_that_cannot_end():
    execution = execution_for([chain("w", 600.0)], [slot("a")])
    state, commands = simulate(execution, Tick(at_s=0.0), ready("a", 500.0))
    assert not [c for c in commands if isinstance(c, StartReplica)]
    assert state.replicas["w", "t0", 0].state == ReplicaState.SKIPPED


def test_late_and_repeated_news_changes_nothing():
    execution = execution_for([chain("w", 10.0, 10.0)], [slot("a")])
    events = [Tick(at_s=0.0), ready("a"), ended(("w", "t0", 0), 10.0)]
    state, _ = simulate(execution, *events)
    queued = SlotUpdate(at_s=10.0, slot="a", state=SlotState.QUEUED)
    again, commands = step(execution, state, queued)
    assert (again.replicas, commands) == (state.replicas, [])
    again, commands = step(execution, state, ended(("w", "t0", 0), 10.0))
    assert (again.replicas, again.done, commands) == (state.replicas, state.done, [])


def test_events_survive_json():
    events = [Tick(at_s=1.0), ready("a", 2.0), ended(("w", "t", 0), 3.0, ok=False)]
    assert [event_from_json(json.loads(json.dumps(event_to_json(e)))) for e in events] == events


def run_simulated(execution, behaviour):
    clock, journal = SimClock(), MemoryJournal()
    drivers = {
        use.slot.site: SimulatedCloud(CloudRegion(99), clock, behaviour)
        for use in execution.uses.values()
    }
    around = RunnerSetup(
        drivers=drivers, engine=SimulatedEngine(clock), clock=clock, journal=journal
    )
    return Runner("r", execution, around).run(), journal, clock


@settings(max_examples=examples(150))
@given(
    st.lists(dags(6), min_size=1, max_size=3),
    st.integers(1, 4),
    st.floats(0, 1),
    st.floats(0.3, 1),
    st.floats(0, 400),
    st.integers(0, 999),
)
def test_every_run_ends_in_bounded_time_and_is_the_fold_of_its_journal(
    shapes, count, up, acquire, boot_s, seed
):
    slots = [slot(f"s{n}", 6, make_certain_curve(10.0 * n, 0.9)) for n in range(count)]
    workflows = [w.renamed(f"w{n}") for n, w in enumerate(shapes)]
    snapshot = Snapshot(workflow_set=make_set(workflows, 1), slots=tuple(slots), scenarios=64)
    plan = make_plan(snapshot, Options(effort=0.05))
    if not plan.feasible:
        return
    execution = make_execution(plan, snapshot)
    behaviour = SiteBehaviour(
        slot_up=up, slot_acquire=acquire, boot_s=boot_s, boot_spread=0.3, seed=seed
    )
    state, journal, clock = run_simulated(execution, behaviour)
    assert over(state)
    assert clock.now() <= plan.deadline_s * 3
    assert all(record.state.settled for record in state.replicas.values())
    assert fold(execution, journal.events) == state
    for key, record in state.replicas.items():
        if record.state == ReplicaState.DONE:
            for parent in execution.workflow(key).tasks[key[1]].parents:
                assert state.done[key[0], parent].at_s <= record.start_s + 1e-6
    for slot_id, progress in state.progress.items():
        assert progress.used == 0, slot_id
    winners = [
        key[:2] for key, record in state.replicas.items() if record.state == ReplicaState.DONE
    ]
    assert len(winners) == len(set(winners)) == len(state.done)


def test_without_faults_a_run_is_never_later_than_its_plan():
    execution = execution_for(
        [chain("w", 50.0, 70.0), chain("v", 30.0)], [slot("a", 1), slot("b", 1)], needed=2
    )
    state, _, _ = run_simulated(execution, SiteBehaviour())
    for key, record in state.replicas.items():
        if record.state == ReplicaState.DONE:
            assert record.end_s <= execution.placements[key].end_s + 1e-6


@pytest.mark.parametrize("name", ["FAILED", "EXPIRED", "RELEASED"])
def test_ended_states_end(name):
    assert SlotState[name].ended
    assert not SlotState.READY.ended
