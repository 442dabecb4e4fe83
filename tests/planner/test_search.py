"""The search in simulated probability: never behind plans that need no planner, bounded effort."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.planning.bench_optimum import tiny_snapshot
from benchmarks.planning.bench_rivals import compare
from benchmarks.planning.random_sets import random_snapshot
from tests.examples import examples
from tests.planner.test_planner import chain, make_set, slot
from vgrads.api.plans.answers import plan_json
from vgrads.api.plans.planning import open_grid, plan_set
from vgrads.planner.explain import explain, explain_text
from vgrads.planner.make import Options, first_plan, make_plan, searched
from vgrads.planner.plan import Plan
from vgrads.planner.search.climb import climb
from vgrads.planner.search.improve import improve
from vgrads.planner.search.retime import retimed
from vgrads.planner.search.trials import LOOK, REPORTED_SCENARIOS, Trials
from vgrads.planner.search.whole import WholeReplicas
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.catalog import Catalog, NodeType, Queue, Site
from vgrads.vgrid.slot import StartCurve, certain_from
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.task import Task

BRIEF = Options(effort_s=0.3)


@pytest.mark.parametrize("number", [10, 28, 79])
def test_a_plan_is_not_behind_rules_that_need_no_planner(number):
    """Sets in which the phases alone are: by .05, .02 and .035."""
    result = compare(number)
    assert result.rivals
    assert result.short <= 0.005


def test_a_rule_that_needs_no_money_is_taken_where_it_suffices():
    result = compare(15)  # the phases alone buy for $1.93
    assert (result.ours.usd, result.dearer) == (0.0, 0.0)


def test_the_estimate_for_replicas_of_whole_workflows_is_near_their_simulation():
    """Sets with a budget: tasks are certain and do not fail. It ignores cancelled replicas
    and backfilling."""
    errors = []
    for number in range(0, 60, 6):
        _, snapshot = random_snapshot(number)
        whole = WholeReplicas(snapshot)
        contents = {s.id: snapshot.by_length for s in snapshot.slots}
        by_id = snapshot.slot_by_id
        estimated, _ = whole.value(whole.done(by_id[s], names) for s, names in contents.items())
        simulated = Trials(snapshot, 100.0).version(whole.placements(contents), LOOK)
        errors.append(estimated - (simulated.promise if simulated else 0.0))
    assert np.abs(errors).mean() < 0.1


@given(st.integers(0, 2**20))
@settings(max_examples=examples(15), deadline=None)
def test_climbing_never_lowers_a_promise(number):
    snapshot = tiny_snapshot(number)
    plan = first_plan(snapshot)
    trials = Trials(snapshot, 0.3)
    start = trials.version(plan.placements, LOOK)
    if start is not None:
        better = climb(trials, WholeReplicas(snapshot), start)
        assert better.promise >= start.promise - 1e-9


def test_a_late_move_leaves_no_plan():
    """Two tasks of 600 s in a row do not fit into 1,000 s."""
    snapshot = Snapshot(workflow_set=make_set([chain("w", 400.0, 500.0)]), slots=(slot("a"),))
    placements = first_plan(snapshot).placements
    assert retimed(snapshot, placements) is not None
    late = tuple(replace(p, start_s=p.start_s + 200) for p in placements)
    assert retimed(snapshot, late) is None


def test_the_effort_limits_what_is_simulated():
    _, snapshot = random_snapshot(13)
    plan = first_plan(snapshot)
    trials = Trials(snapshot, 1e-9)
    assert trials.version(plan.placements, REPORTED_SCENARIOS) is None
    assert searched(snapshot, plan, Options(effort_s=1e-9)).placements == plan.placements
    first, second = (make_plan(snapshot, BRIEF) for _ in range(2))
    assert first.placements == second.placements


def test_a_plan_that_falls_short_is_made_cheaper_too():
    """A paid slot that is ready too late adds nothing."""
    weak = slot("weak", curve=certain_from(0, 0.6))
    late = slot("late", curve=certain_from(999.0), price_usd_per_hour=1.0)
    snapshot = Snapshot(workflow_set=make_set([chain("w", 100.0)]), slots=(weak, late))
    trials = Trials(snapshot, 10.0)
    whole = WholeReplicas(replace(snapshot, slots=(weak, replace(late, curve=certain_from(100.0)))))
    first = trials.version(whole.placements({"weak": ("w",), "late": ("w",)}), REPORTED_SCENARIOS)
    assert first is not None
    last = improve(trials, first)[-1]
    assert last.promise == pytest.approx(0.6, abs=0.03)
    assert {use.slot.id for use in last.uses} == {"weak"}


def test_an_uncertain_set_has_a_first_plan_at_the_safest_quantile_that_fits():
    flows = [chain("w", 300.0, 300.0)]
    tight = make_set(flows, deadline_s=1000.0, runtime_spread=0.3)
    plan = first_plan(Snapshot(workflow_set=tight, slots=(slot("a"),)))
    assert plan.feasible
    assert plan.quantile == 0.9  # at .99 each task would have 603 s


def explained(plan: Plan) -> dict:
    return explain(plan_json(plan), "w/t0")


def test_explain_says_why_other_plans_were_not_taken():
    times = np.linspace(0.0, 900.0, 10)
    curve = StartCurve(times, np.linspace(0.3, 0.8, 10))
    paid = slot("paid", price_usd_per_hour=1.0)
    snapshot = Snapshot(
        workflow_set=make_set([chain("w", 100.0)], probability=0.99),
        slots=(slot("q1", curve=curve), slot("q2", curve=curve), paid),
    )
    payload = explained(make_plan(snapshot))
    rivals = {rival["rule"]: rival["why"] for rival in payload["rivals"]}
    assert any(why.startswith("its promise is") for why in rivals.values())
    assert any(why.startswith("it costs $1.00 on average") for why in rivals.values())
    assert "Other plans, and why they were not taken:" in explain_text(payload)


def test_wider_slots_are_requested_if_usual_ones_fall_short():
    """Four tasks at once fit into four processors; three suffice by their sum, which is too
    slow."""
    flow = make_workflow("w", [Task(id=f"t{n}", runtime_s=1000.0) for n in range(4)])
    site = Site(
        name="x",
        kind="batch",
        procs=64,
        nodes=(NodeType(name="node", cores=1),),
        queues=(
            Queue(
                name="q",
                max_procs=64,
                max_walltime_s=86_400.0,
                max_jobs=1,
                history=None,
                log_queue=None,
                stated_wait_s=0.0,
                stated_probability=0.97,
            ),
        ),
    )
    grid = open_grid(Catalog(sites=(site,), links={}))
    workflow_set = make_set([flow], deadline_s=1500.0)
    usual = plan_set(workflow_set, grid, options=Options(effort_s=0.0))
    assert not usual.plan.feasible
    planned = plan_set(workflow_set, grid, options=BRIEF)
    assert planned.plan.meets_request
    assert planned.plan.uses[0].slot.procs >= 4
    planned.plan.check(planned.snapshot)
