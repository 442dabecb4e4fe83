"""What is told against what is done: plans played by the planner and carried out by the core, event
by event."""

import heapq
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.planner.brief import make_plan
from tests.planner.test_planner import chain, make_set, slot
from tests.workflows.test_workflows import dags
from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.completion import find_done_workflows, over
from vgrads.execmgr.core.execution_plan import make_execution
from vgrads.execmgr.core.states import (
    CancelReplica,
    ReleaseSlot,
    Replan,
    Replanned,
    ReplicaEnded,
    RequestSlot,
    SlotUpdate,
    StartReplica,
    Tick,
)
from vgrads.execmgr.core.step import begin, step
from vgrads.planner.make import Options
from vgrads.planner.plan import EVERYTHING
from vgrads.planner.promise.executions import simulate_all
from vgrads.planner.promise.lengths import make_lengths
from vgrads.planner.promise.rollout import _fails, rollout, sample_fates
from vgrads.planner.schedule import make_schedule
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.availability import sample_availability
from vgrads.vgrid.slot import StartCurve, make_certain_curve
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.spread import RuntimeSpread

REPLICA, SLOT, LOOK = 0, 1, 2  # in which order what happens at one instant is told


class Site:
    """Carries out what the core commands, in one scenario."""

    def __init__(self, execution, ready_s, lifetimes_s, lengths_s, fails):
        self.execution, self.ready_s, self.lifetimes_s = execution, ready_s, lifetimes_s
        self.lengths_s, self.fails = lengths_s, fails
        self.rows = {key: n for n, key in enumerate(execution.schedule[1])}
        self.slots = list(execution.uses)
        self.state, self.due = begin(execution), []
        self.until_s = dict.fromkeys(execution.uses, 0.0)

    def run(self):
        self.feed(Tick(at_s=0.0))
        while not over(self.state):
            wake = (self.state.wake_s, LOOK, 0, None)
            now_s, kind, _, about = (
                heapq.heappop(self.due) if self.due and self.due[0] < wake else wake
            )
            assert now_s < np.inf
            if kind == LOOK:
                self.feed(Tick(at_s=now_s))
            elif kind == SLOT and about[1] == SlotState.READY:
                self.push(
                    self.lifetimes_s[about[0]],
                    SLOT,
                    self.slots.index(about[0]),
                    (about[0], SlotState.FAILED),
                )
                self.news(now_s, *about)
            elif kind == SLOT:
                self.news(now_s, *about)
            else:
                self.ended(now_s, *about)
        return self

    def news(self, now_s, name, state):
        record = self.state.slots[name]
        if record.closing or record.state.ended:
            return
        if state.ended:
            self.until_s[name] = now_s
        self.feed(SlotUpdate(at_s=now_s, slot=name, state=state))

    def ended(self, now_s, key, attempt, ok):
        if self.state.replicas[key].attempt == attempt:
            self.feed(ReplicaEnded(at_s=now_s, key=key, ok=ok))

    def push(self, at_s, kind, row, about):
        if at_s < np.inf:
            heapq.heappush(self.due, (at_s, kind, row, about))

    def feed(self, event):
        self.state, commands = step(self.execution, self.state, event)
        for command in commands:
            if isinstance(command, RequestSlot):
                name = command.slot
                self.push(self.ready_s[name], SLOT, self.slots.index(name), (name, SlotState.READY))
            elif isinstance(command, StartReplica):
                self.start(command.key, event.at_s)
            elif isinstance(command, ReleaseSlot):
                self.until_s[command.slot] = event.at_s
                self.feed(SlotUpdate(at_s=event.at_s, slot=command.slot, state=SlotState.RELEASED))
            elif isinstance(command, Replan):
                self.feed(Replanned(at_s=event.at_s, version=0, reason="as planned"))
            else:
                assert isinstance(command, CancelReplica)

    def start(self, key, now_s):
        row, attempt = self.rows[key], self.state.replicas[key].attempt
        share = self.fails[row, attempt] if len(self.fails) else np.inf
        ends_s = now_s + self.lengths_s[row] * min(share, 1.0)
        self.push(ends_s, REPLICA, row, (key, attempt, bool(share == np.inf)))


def promised_and_done(snapshot, plan, rows):
    """The plan as it is played, and carried out in these scenarios."""
    submits_s = {use.slot.id: use.submit_s for use in plan.uses}
    simulated = rollout(snapshot, plan.placements, submits_s, plan.spare_workflows)
    schedule, _ = make_schedule(snapshot, plan.placements, submits_s)
    lengths = make_lengths(snapshot, schedule, list(submits_s))
    lengths_s = lengths.draw(snapshot.seed, 0, snapshot.scenarios)
    fails = _fails(snapshot, schedule, lengths, 0, snapshot.scenarios)
    execution = make_execution(plan, snapshot)
    for row in rows:
        ready_s, lifetimes_s = {}, {}
        for use in plan.uses:
            ready, broken = (
                at_s[row]
                for at_s in sample_availability(use.slot, snapshot.scenarios, snapshot.seed)
            )
            ready_s[use.slot.id] = ready + use.submit_s
            lifetimes_s[use.slot.id] = (
                min(broken, ready + use.slot.end_s - use.submit_s) + use.submit_s
            )
        own = lengths_s[row if len(lengths_s) > 1 else 0], fails[row if len(fails) > 1 else 0]
        yield row, simulated, Site(execution, ready_s, lifetimes_s, *own).run()


def agree(snapshot, plan, rows):
    for row, simulated, done in promised_and_done(snapshot, plan, rows):
        ended_s = find_done_workflows(done.execution, done.state)
        for name, done_s in simulated.done_s.items():
            at_s = ended_s.get(name, np.inf)
            assert done_s[row] == pytest.approx(at_s if at_s <= plan.deadline_s + 1e-6 else np.inf)
        for name, until_s in simulated.until_s.items():
            if simulated.ready_s[name][row] < np.inf and done.state.slots[name].ready_s is not None:
                assert until_s[row] == pytest.approx(done.until_s[name]), name


curves = st.tuples(st.floats(0, 600), st.floats(0, 2000), st.floats(0.3, 1.0)).map(
    lambda c: StartCurve(np.linspace(c[0], c[0] + c[1], 20), np.linspace(0.05, 1.0, 20) * c[2])
)


def erring(workflow, data):
    """The workflow with errors that its tasks share."""
    deviation = st.sampled_from([0.0, 0.2, 0.8])
    tasks = []
    for n, task in enumerate(workflow.tasks.values()):
        spread = RuntimeSpread(
            own=data.draw(deviation), kind=data.draw(deviation), workflow=0.3, site=0.2
        )
        tasks.append(replace(task, kind=f"k{n % 2}", spread=spread))
    return make_workflow(workflow.name, tasks, workflow.file_mib)


@pytest.mark.more
@settings(max_examples=examples(120))
@given(
    st.lists(dags(6), min_size=1, max_size=4),
    st.lists(curves, min_size=1, max_size=5),
    st.data(),
    st.sampled_from(["vgrads", "heft", "no-replication"]),
    st.sampled_from([0, 1, EVERYTHING]),
)
def test_a_plan_is_carried_out_as_it_was_played(shapes, starts, data, policy, spare_workflows):
    spread = data.draw(st.sampled_from([0.0, 0.3]))
    faulty, up = data.draw(st.sampled_from([0.0, 0.2])), data.draw(st.sampled_from([1.0, 0.7]))
    slots = [
        slot(
            f"s{n}",
            data.draw(st.integers(1, 8)),
            curve,
            end_s=5000.0,
            task_failure=faulty,
            up=up,
            shared=f"q{n % 2}",
        )
        for n, curve in enumerate(starts)
    ]
    workflows = [w.renamed(f"w{n}") for n, w in enumerate(shapes)]
    if data.draw(st.booleans()):
        workflows = [erring(w, data) for w in workflows]
    workflow_set = make_set(
        workflows,
        data.draw(st.integers(1, len(workflows))),
        deadline_s=data.draw(st.floats(500, 6000)),
        runtime_spread=spread,
    )
    snapshot = Snapshot(
        workflow_set=workflow_set,
        slots=tuple(slots),
        scenarios=64,
        seed=data.draw(st.integers(0, 99)),
    )
    plan = make_plan(snapshot, Options(policy=policy))
    if plan.placements:
        agree(snapshot, replace(plan, spare_workflows=spare_workflows), range(0, 64, 8))


def test_a_plan_is_simulated_equally_with_records_and_with_objects():
    flows = [chain(f"w{n}", 300.0, 500.0, 200.0) for n in range(4)]
    slots = tuple(
        slot(f"s{n}", 2, make_certain_curve(60.0 * n, 0.7), end_s=5000.0, up=0.8, task_failure=0.2)
        for n in range(4)
    )
    workflow_set = make_set(flows, deadline_s=3000.0, runtime_spread=0.4)
    snapshot = Snapshot(workflow_set=workflow_set, slots=slots, scenarios=128)
    plan = make_plan(snapshot)
    submits_s = {use.slot.id: use.submit_s for use in plan.uses}
    schedule, _ = make_schedule(snapshot, plan.placements, submits_s)
    lengths = make_lengths(snapshot, schedule, list(submits_s))
    fails = _fails(snapshot, schedule, lengths, 0, 128)
    fates_s = sample_fates(snapshot, submits_s, 128)
    inputs = fates_s, lengths.draw(snapshot.seed, 0, 128), fails
    limits = np.array([0.0, workflow_set.needed, 1.0, workflow_set.deadline_s])
    results = []
    for simulate, form in (
        (simulate_all.fast, schedule.copied()),
        (simulate_all.plain, schedule.as_objects()),
    ):
        done_s, until_s = np.empty((128, len(flows))), np.empty((128, len(submits_s)))
        simulate(form, *inputs, limits.copy(), done_s, until_s)
        results.append((done_s, until_s))
    assert len(simulate_all.fast.signatures) == 1  # each further one is compiled for ten seconds
    assert np.isfinite(results[0][0]).any()
    assert np.array_equal(results[0][0], results[1][0])
    assert np.array_equal(results[0][1], results[1][1])


def test_tasks_that_last_no_time_are_played_and_done():
    flow = chain("w", 0.0, 10.0, 0.0, 0.0)
    snapshot = Snapshot(
        workflow_set=make_set([flow]),
        slots=(slot("a", 1), slot("b", 2, make_certain_curve(5.0, 0.8))),
        scenarios=64,
    )
    plan = make_plan(snapshot)
    assert plan.promise.probability > 0.7
    agree(snapshot, plan, range(64))
