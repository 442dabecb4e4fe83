"""Policies, relaxations, explanations, the exact model, what plans take into account."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vgrads_studies.promises.quality import instance, judge

from tests.conftest import DATA
from tests.planner.brief import make_plan
from tests.planner.test_planner import chain, make_set, slot
from vgrads.drivers.simulated import SimulatedCloud, SiteBehaviour
from vgrads.execmgr.core.completion import find_done_workflows
from vgrads.execmgr.core.execution_plan import make_execution
from vgrads.execmgr.core.journal import MemoryJournal
from vgrads.execmgr.engines.simulated import FailureModel, SimulatedEngine
from vgrads.execmgr.runner import Runner, RunnerSetup
from vgrads.kernel.clock import SimClock
from vgrads.kernel.errors import InputError
from vgrads.planner.effort import UNIT, Effort
from vgrads.planner.exact import place_optimal
from vgrads.planner.make import Options
from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.heft import place_heft
from vgrads.planner.placement.replicate import alone, raise_task
from vgrads.planner.policies import POLICIES
from vgrads.planner.promise.lengths import drawn_factor
from vgrads.planner.promise.probability import at_least
from vgrads.planner.relax import relaxations
from vgrads.planner.snapshot import Snapshot
from vgrads.simulator.cloud import CloudRegion
from vgrads.vgrid.availability import sample_availability
from vgrads.vgrid.slot import StartCurve, make_certain_curve
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.formats.load import load_workflow
from vgrads.workflows.task import Task


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "optimal"])
@pytest.mark.parametrize("number", range(3))
def test_every_policy_makes_plans_that_hold(policy, number):
    snapshot, _, _ = instance(number, [])
    plan = make_plan(snapshot, Options(policy=policy))
    plan.check(snapshot)
    replicas = {p.replica for p in plan.placements}
    if policy in ("no-replication", "heft"):
        assert replicas <= {0}
    if policy == "heft":
        assert plan.cost_usd == 0


@pytest.mark.more
def test_the_standard_policy_is_as_sure_as_the_papers_rule_where_it_falls_short():
    for number in range(8):
        snapshot, _, _ = instance(number, [])
        ours = make_plan(snapshot)
        paper = make_plan(snapshot, Options(probability="paper"))
        if not ours.meets_request:
            assert judge(ours, snapshot) >= judge(paper, snapshot) - 0.03


def test_unknown_policies_and_rules_are_refused(vgrads):
    for option, value, existing in (
        ("--policy", "luck", "no-replication"),
        ("--promise-model", "luck", "joint, paper"),
    ):
        answer = vgrads("plan", DATA / "lead.yaml", option, value)
        assert (answer.code, existing in answer.err) == (2, True)


def test_only_the_chosen_sites_are_used(vgrads):
    chosen = ("--only-site", "kittyhawk", "--only-site", "ec2")
    plan = vgrads("plan", DATA / "lead-storm.yaml", *chosen, "--json").json
    assert {slot["site"] for slot in plan["slots"]} <= {"kittyhawk", "ec2"}
    assert plan["slots"]
    answer = vgrads("plan", DATA / "lead-storm.yaml", "--only-site", "kitty")
    assert (answer.code, "unknown site 'kitty'" in answer.err) == (2, True)
    assert "--only-site" in answer.err


@pytest.mark.more
def test_the_effort_of_the_environment_holds_where_none_is_given(vgrads, monkeypatch):
    def planned(*words):
        return vgrads("plan", DATA / "lead-storm.yaml", "--json", *words)

    first = planned("--effort", 0).json["promise"]
    monkeypatch.setenv("VGRADS_EFFORT", "0")
    assert planned().json["promise"] == first
    assert planned("--effort", 0.3).json["promise"] != first
    for wrong in ("soon", "-1", "nan", "4000"):
        monkeypatch.setenv("VGRADS_EFFORT", wrong)
        refused = planned()
        assert (refused.code, f"VGRADS_EFFORT: '{wrong}'" in refused.err) == (2, True), refused


@given(st.lists(st.floats(0, 1), max_size=8), st.integers(0, 8))
def test_independent_events_are_counted_right(chances, needed):
    brute = sum(
        np.prod([c if n >> k & 1 else 1 - c for k, c in enumerate(chances)])
        for n in range(2 ** len(chances))
        if n.bit_count() >= needed
    )
    assert at_least(chances, needed) == pytest.approx(float(brute), abs=1e-9)


# HEFT


def test_heft_takes_the_machine_on_which_a_task_ends_first():
    slots = (slot("slow"), slot("fast", speed=2.0))
    snapshot = Snapshot(workflow_set=make_set([chain("w", 100.0, 100.0)]), slots=slots)
    draft = Draft(snapshot)
    assert place_heft(draft, "w", slots)
    assert [(p.slot, p.end_s) for p in draft.placements] == [("fast", 50.0), ("fast", 100.0)]
    tight = Draft(
        Snapshot(workflow_set=make_set([chain("w", 100.0, 100.0)], deadline_s=90.0), slots=slots)
    )
    assert not place_heft(tight, "w", slots)
    assert tight.placements == []


# relaxations


def find_relaxations(snapshot, effort=UNIT):
    changes = relaxations(
        snapshot,
        make_plan(snapshot),
        lambda changed: replace(snapshot, workflow_set=changed),
        Effort(effort),
    )
    return {r.change.split(" in ")[0]: r for r in changes}


def test_each_relaxation_is_the_smallest_that_works():
    two = [chain("w", 900.0), chain("v", 900.0)]
    full = Snapshot(workflow_set=make_set(two, 2), slots=(slot("a", 1, end_s=5000.0),))
    assert not make_plan(full).feasible
    changes = find_relaxations(full)
    assert changes["fewer workflows"].amount == 1
    assert "more processors" not in changes  # the queue offers one slot of one processor
    assert changes["a later deadline"].amount == pytest.approx(800, rel=0.1)
    assert changes["a later deadline"].amount >= 800


def test_all_but_one_workflow_may_be_given_up():
    """Six are requested, one has room; five is no power of two."""
    shapes = [chain(f"w{n}", 900.0) for n in range(6)]
    full = Snapshot(workflow_set=make_set(shapes, 6), slots=(slot("a", 1, end_s=5000.0),))
    assert find_relaxations(full)["fewer workflows"].amount == 5


def test_a_useful_later_deadline_is_found_though_no_effort_is_left():
    two = [chain("w", 900.0), chain("v", 900.0)]
    full = Snapshot(workflow_set=make_set(two, 2), slots=(slot("a", 1, end_s=5000.0),))
    later = find_relaxations(full, 0.0)["a later deadline"]
    assert 800 <= later.amount <= 1.0 * full.workflow_set.deadline_s


def test_a_slot_is_widened_by_no_more_than_its_queue_offers():
    wide = [chain("w", 900.0, procs=3)]
    slots = tuple(slot(name, 2, shared="q") for name in "ab")
    changes = find_relaxations(Snapshot(workflow_set=make_set(wide), slots=slots))
    assert changes["more processors"].amount == 1
    assert changes["more processors"].probability >= 0.9


def test_nothing_is_proposed_that_falls_short_of_the_request():
    half = slot("a", 1, make_certain_curve(0.0, 0.5))
    two = [chain("w", 900.0), chain("v", 900.0)]
    snapshot = Snapshot(workflow_set=make_set(two, 2), slots=(half,))
    assert not make_plan(snapshot).feasible
    assert find_relaxations(snapshot) == {}
    assert set(
        find_relaxations(
            replace(snapshot, workflow_set=replace(snapshot.workflow_set, probability=0.4))
        )
    ) >= {"fewer workflows"}


def test_money_is_a_relaxation_where_something_can_be_bought():
    slots = (slot("thin", 1), slot("paid", 8, price_usd_per_hour=2.0))
    snapshot = Snapshot(
        workflow_set=make_set([chain("w", 100.0, procs=4)], budget_usd=0.5), slots=slots
    )
    change = find_relaxations(snapshot)["a larger budget"]
    assert (change.amount, change.cost_usd, change.probability) == (1.5, 2.0, 1.0)


@pytest.mark.more
def test_what_would_do_is_printed_at_the_command_line(vgrads, write):
    text = (DATA / "lead.yaml").read_text().replace("deadline: 2h", "deadline: 80m")
    assert "80m" in text
    for name in ("lead.json", "sites.toml"):
        write(name, (DATA / name).read_text())
    for history in (DATA / "histories").iterdir():
        write(f"histories/{history.name}", history.read_bytes())
    answer = vgrads("plan", write("tight.yaml", text), "--json")
    assert answer.code == 3
    assert "sufficient change: a later deadline" in answer.err
    assert answer.json["relaxations"][0]["unit"] == "s"


# explain


@pytest.mark.more
def test_a_plan_explains_where_its_tasks_stand(vgrads, tmp_path):
    plan = vgrads("plan", DATA / "lead.yaml", "--effort", "0", "--json").json
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    message = vgrads("explain", path, "lead-1/wrf", "--json").json
    first = next(c for c in message["copies"] if c["why"]["others"])
    assert first["why"]["phase"] in ("minimal", "trade-off", "additional")
    assert first["why"]["considered"] >= 2
    assert all(
        o["probability"] <= first["probability"] or "changes" in o for o in first["why"]["others"]
    )
    text = vgrads("explain", path, "lead-1/wrf").out
    assert re.search(r"most probable, of \d+ mappings", text)
    assert "Not " in text
    for task, words in (("nothing", "no task 'nothing'"), ("lead-9/wrf", "no task")):
        answer = vgrads("explain", path, task)
        assert (answer.code, words in answer.err) == (2, True)
    answer = vgrads("explain", DATA / "lead.json", "wrf")
    assert (answer.code, "is not a plan" in answer.err) == (2, True)
    run = vgrads("run", DATA / "lead.yaml", "--json").json["run"]
    assert vgrads("explain", run, "lead-1/wrf").code == 0


# the exact model


def sampled_promise(snapshot, draft):
    """A draft's promise in the 48 scenarios that the programme saw, reckoned scenario by
    scenario."""
    fates = {slot.id: sample_availability(slot, 48, snapshot.seed) for slot in snapshot.slots}
    counts = np.zeros(48, dtype=int)
    for name in draft.scheduled:
        workflow, done = snapshot.workflow_by_name[name], np.ones(48, dtype=bool)
        works = {}
        for task_id in workflow.order:
            some = np.zeros(48, dtype=bool)
            for p in draft.replicas[name][task_id]:
                ready, broken = fates[p.slot]
                ok = (ready <= p.start_s) & (broken >= p.end_s)
                for parent in workflow.tasks[task_id].parents:
                    fed = np.zeros(48, dtype=bool)
                    for (task, source), (end_s, worked) in works.items():
                        sites = (snapshot.slot_by_id[source].site, snapshot.slot_by_id[p.slot].site)
                        if (
                            task == parent
                            and end_s + snapshot.transfer_s(workflow, parent, task_id, sites)
                            <= p.start_s + 1e-9
                        ):
                            fed |= worked
                    ok &= fed
                works[task_id, p.slot] = (p.end_s, ok)
                some |= ok
            done &= some
        counts += done
    return float((counts >= snapshot.workflow_set.needed).mean())


# start probabilities of the slots, workflows needed, seed; the fourth is a bad one for the phases
INSTANCES = [
    ((0.9, 0.6), 1, 0),
    ((0.75, 0.9), 2, 3),
    ((0.6, 0.75, 0.9), 1, 2),
    ((0.9, 0.6), 2, 1),
    ((0.75, 0.75), 2, 5),
    ((0.6, 0.6), 1, 4),
]


def best_and_ours(sures, needed, seed):
    """Equal run times: every start that the phases can choose is open to the programme."""
    slots = tuple(
        slot(f"s{n}", 1, make_certain_curve(0.0, p), end_s=400.0) for n, p in enumerate(sures)
    )
    wants = make_set([chain("w0", 100.0, 100.0), chain("w1", 100.0)], needed, deadline_s=400.0)
    snapshot = Snapshot(workflow_set=wants, slots=slots, seed=seed, scenarios=48)
    best, ours = Draft(snapshot), Draft(snapshot)
    assert place_optimal(best) is not None
    assert best.promise == sampled_promise(snapshot, best)
    ours.replay(list(make_plan(snapshot).placements))
    return best.promise, ours.promise


@pytest.mark.more
def test_the_phases_come_close_to_the_best_plan():
    result = np.array([best_and_ours(*each) for each in INSTANCES])
    gaps = result[:, 0] - result[:, 1]
    assert (gaps >= -1e-9).all()
    assert gaps.mean() <= 0.15


def test_the_exact_model_refuses_large_sets(vgrads):
    answer = vgrads("plan", DATA / "lead-storm.yaml", "--policy", "optimal")
    assert (answer.code, "too many for the policy 'optimal'" in answer.err) == (2, True)


# what plans take into account


def test_memory_rules_slots_out():
    task = Task(id="t", runtime_s=10.0, procs=2, memory_mib=5000.0)
    small, large = slot("small", memory_mib=4000.0), slot("large", memory_mib=4000.0, nodes=4)
    wants = make_set([make_workflow("w", [task])])
    assert not make_plan(Snapshot(workflow_set=wants, slots=(small,))).feasible
    assert "5000 MiB" in make_plan(Snapshot(workflow_set=wants, slots=(small,))).lacking
    plan = make_plan(Snapshot(workflow_set=wants, slots=(small, large)))
    assert {p.slot for p in plan.placements} == {"large"}


def test_tasks_that_fail_are_reckoned_with_and_copied():
    slots = tuple(slot(f"s{n}", site="x", task_failure=0.2) for n in range(3))
    single = make_plan(
        Snapshot(workflow_set=make_set([chain("w", 50.0, 50.0)]), slots=slots[:1], scenarios=65536)
    )
    assert single.promise.cautious == pytest.approx(0.64, abs=0.01)
    assert single.promise.probability == pytest.approx(0.9216, abs=0.01)  # each may try once more
    wants = make_set([chain("w", 50.0, 50.0)], probability=0.99)
    copied = make_plan(Snapshot(workflow_set=wants, slots=slots))
    assert copied.promise.cautious > single.promise.cautious + 0.25
    assert copied.promise.probability >= 0.99


def test_spread_run_times_get_room():
    steady, spread = (
        make_set([chain("w", 100.0)]),
        make_set([chain("w", 100.0)], runtime_spread=0.3),
    )
    snapshots = [
        Snapshot(workflow_set=w, slots=(slot("a"),), scenarios=65536) for w in (steady, spread)
    ]
    first, second = (make_plan(s) for s in snapshots)
    assert first.placements[0].end_s == 100
    assert second.placements[0].end_s == pytest.approx(100 * np.exp(0.3 * 2.3263), rel=1e-3)
    assert second.promise.probability > first.promise.probability - 0.02
    second.check(snapshots[1])


def test_a_late_slot_may_still_serve_in_time():
    """Planned at 0 s, ready at 300 s in half of all cases; the deadline leaves room for that."""
    curve = StartCurve(np.array([0.0, 300.0]), np.array([0.5, 1.0]))
    snapshot = Snapshot(
        workflow_set=make_set([chain("w", 100.0)], deadline_s=450.0),
        slots=(slot("a", curve=curve, end_s=450.0),),
        scenarios=4096,
    )
    late = make_plan(snapshot, Options(policy="heft"))
    assert late.placements[0].start_s == 0
    assert late.promise.cautious == pytest.approx(0.5, abs=0.03)
    assert late.promise.probability == pytest.approx(1.0, abs=0.001)


def execute(execution, slots, failures, seed):
    """Workflows done in time when the plan runs on simulated clouds; slots share no fate."""
    clock = SimClock()
    drivers = {}
    for s in slots:
        ready_s, acquire = float(s.curve.times_s[0]), float(s.curve.probabilities[0])
        behaviour = SiteBehaviour(slot_up=s.up, slot_acquire=acquire, boot_s=ready_s, seed=seed)
        drivers[s.site] = SimulatedCloud(CloudRegion(s.procs), clock, behaviour)
    around = RunnerSetup(
        drivers=drivers,
        engine=SimulatedEngine(clock, failures),
        clock=clock,
        journal=MemoryJournal(),
    )
    state = Runner("r", execution, around).run()
    return sum(
        at_s <= execution.plan.deadline_s for at_s in find_done_workflows(execution, state).values()
    )


@pytest.mark.parametrize("seed", range(3))
def test_what_is_promised_is_what_runs_keep(seed):
    """Many runs of a risky set: the share kept is the promise, within four standard errors."""
    slots = tuple(
        slot(f"s{n}", 2, make_certain_curve(5.0, 0.8), up=0.8, task_failure=0.05) for n in range(3)
    )
    wants = make_set([chain(f"w{n}", 100.0, 100.0) for n in range(3)], 2, runtime_spread=0.2)
    snapshot = Snapshot(workflow_set=wants, slots=slots, seed=seed)
    plan = make_plan(snapshot)
    execution, count = make_execution(plan, snapshot), 120

    def failures(seed):
        return FailureModel(
            seed=seed,
            factor=lambda order: drawn_factor(snapshot, seed, order.key, order.site),
            failures={s.id: 0.05 for s in slots},
        )

    retained = sum(
        execute(execution, slots, failures(1000 * seed + n), seed * 1000 + n) >= 2
        for n in range(count)
    )
    promise = plan.promise.probability
    assert abs(retained / count - promise) <= 4 * np.sqrt(promise * (1 - promise) / count) + 0.01


def test_the_fault_tolerance_component_stops_at_what_is_desired():
    slots = tuple(slot(f"s{n}", curve=make_certain_curve(0.0, 0.6)) for n in range(4))
    snapshot = Snapshot(workflow_set=make_set([chain("w")]), slots=slots, scenarios=65536)
    draft = Draft(snapshot)
    assert place_heft(draft, "w", slots)
    assert len(raise_task(draft, ("w", "t0"), 0.8, slots, alone)) == 1
    assert alone(draft, ("w", "t0")) == pytest.approx(0.84, abs=0.01)
    mark = draft.mark()
    assert raise_task(draft, ("w", "t0"), 0.999, slots, alone) is None
    assert draft.mark() == mark


def test_pegasus_workflows_are_read(write):
    text = """
x-pegasus: {createdBy: someone}
pegasus: "5.0.4"
name: two
jobs:
- {type: job, name: pre, id: ID1, uses: [{lfn: a, type: output, size: 1048576}], metadata: {runtime: 12.5}}
- type: job
  name: solve
  id: ID2
  profiles: {pegasus: {cores: 4}}
  uses: [{lfn: a, type: input}]
jobDependencies: [{id: ID1, children: [ID2]}]
"""
    workflow = load_workflow(write("w.yml", text), {"solve": 60.0})
    assert (workflow.tasks["ID1"].runtime_s, workflow.tasks["ID2"].runtime_s) == (12.5, 60.0)
    assert (workflow.tasks["ID2"].procs, workflow.tasks["ID2"].parents) == (4, ("ID1",))
    assert workflow.transfer_mib("ID1", "ID2") == 1.0
    assert not load_workflow(write("w.yml", text)).tasks["ID2"].stated
    with pytest.raises(InputError, match="names no file"):
        load_workflow(
            write("s.yml", text.replace("type: job, name", "type: pegasusWorkflow, name"))
        )


def test_a_thousand_uncertain_tasks_have_a_plan():
    """That each overruns its place now and then must not add up to no chance at all."""
    tasks = [Task(id=f"t{n}", runtime_s=60.0) for n in range(1000)]
    tasks.append(Task(id="sum", runtime_s=10.0, parents=tuple(t.id for t in tasks)))
    workflow_set = make_set([make_workflow("w", tasks)], deadline_s=7200.0, runtime_spread=0.5)
    plan = make_plan(
        Snapshot(workflow_set=workflow_set, slots=(slot("a", procs=64, end_s=7200.0),))
    )
    assert plan.feasible, plan.lacking
    assert plan.promise.probability > 0.9
