"""The search in simulated probability: never behind plans that need no planner, bounded effort."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.planning.bench_optimum import tiny_snapshot
from benchmarks.planning.bench_rivals import compare
from benchmarks.planning.random_sets import random_snapshot
from tests.examples import examples
from tests.planner.test_planner import chain, make_set, slot
from vgrads.api.plans.answers import plan_json
from vgrads.api.plans.planning import open_grid, plan_set
from vgrads.planner.effort import Effort
from vgrads.planner.explain import explain, explain_text
from vgrads.planner.make import Options, first_plan, make_plan, searched
from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.heft import place_heft
from vgrads.planner.plan import Plan
from vgrads.planner.promise.rollout import rollout
from vgrads.planner.search.moves import Moves
from vgrads.planner.search.orders import NumberedSet
from vgrads.planner.search.starts import heft
from vgrads.planner.search.versions import Simulator
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.catalog import Catalog, NodeType, Queue, Site
from vgrads.vgrid.slot import StartCurve, make_certain_curve
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.task import Task

BRIEF = Options(effort=0.1)


@pytest.mark.parametrize(
    "number", [28, *(pytest.param(n, marks=pytest.mark.more) for n in (10, 79))]
)
def test_a_plan_is_not_behind_rules_that_need_no_planner(number):
    """Sets in which the phases alone are: by .05, .02 and .035."""
    result = compare(number)
    assert result.rivals
    assert result.short <= 0.005


@pytest.mark.more
def test_a_rule_that_needs_no_money_is_taken_where_it_suffices():
    result = compare(15)  # the phases alone buy for $1.93
    assert (result.ours.usd, result.dearer) == (0.0, 0.0)


def moved(number, count=10):
    """A simulator of a random set, and its first plan after random moves."""
    _, snapshot = random_snapshot(number)
    first = first_plan(snapshot)
    assume(first.feasible)
    problem = NumberedSet(replace(snapshot, quantile=first.quantile, scenarios=1024))
    simulator, draws = Simulator(problem, Effort(1e9)), random.Random(number)
    moves = Moves(problem, draws)
    orders = problem.orders_of(first.placements, first.uses, first.spare_workflows)
    now = simulator.candidate(orders)
    assert now is not None
    for _ in range(count):
        orders = moves.draw(now, draws.choice((moves.more, moves.less)))
        now = (simulator.candidate(orders) if orders is not None else None) or now
    return simulator, now, replace(first, placements=problem.placements(now.orders, now.starts_s))


@given(st.integers(0, 2**20))
@settings(max_examples=examples(10), deadline=None)
def test_whatever_moves_make_has_no_problems(number):
    simulator, _, plan = moved(number)
    unpriced = replace(plan, uses=(), expected_usd=0.0)
    assert unpriced.problems(simulator.snapshot) == []


@given(st.integers(0, 2**20))
@settings(max_examples=examples(10), deadline=None)
def test_a_candidate_is_simulated_as_its_placements_are(number):
    simulator, now, plan = moved(number)
    snapshot = simulator.snapshot
    certain = not any(slot.task_failure for slot in snapshot.slots)
    assume(certain and not snapshot.workflow_set.uncertain)  # else the draws are grouped otherwise
    slots = simulator.problem.slots
    submits_s = {slots[n].id: float(now.orders.submits_s[n]) for n in now.used}
    simulated = rollout(snapshot, plan.placements, submits_s, now.orders.spare_workflows)
    version = simulator.version(now, 1024)
    assert version.promise == simulated.promise(snapshot.workflow_set.needed)
    assert version.hours == pytest.approx(
        sum(
            slot.procs
            * np.maximum(simulated.until_s[slot.id] - simulated.ready_s[slot.id], 0).mean()
            for slot in slots
            if slot.id in submits_s
        )
        / 3600
    )


@given(st.integers(0, 2**20))
@settings(max_examples=examples(15), deadline=None)
def test_the_search_never_lowers_a_promise(number):
    snapshot = tiny_snapshot(number)
    plan = first_plan(snapshot)
    better = searched(snapshot, plan, Options(), Effort(500_000))
    requested = snapshot.workflow_set.probability
    assert min(better.promise.probability, requested) >= min(plan.promise.probability, requested)
    assert not better.problems(snapshot)


def test_the_effort_limits_what_is_simulated():
    _, snapshot = random_snapshot(13)
    plan = first_plan(snapshot)
    effort = Effort(1.0)
    assert searched(snapshot, plan, Options(), effort).placements == plan.placements
    assert 0 <= effort.left <= 1
    first, second = (make_plan(snapshot, BRIEF) for _ in range(2))
    assert first.placements == second.placements


@given(st.integers(0, 2**20))
@settings(max_examples=examples(8), deadline=None)
def test_tasks_that_others_release_have_one_replica(number):
    """Two that write the same files must not run at once."""
    _, snapshot = random_snapshot(number)
    released = replace(snapshot, workflow_set=replace(snapshot.workflow_set, released=True))
    plan = make_plan(released, BRIEF)
    assert len({p.task_key for p in plan.placements}) == len(plan.placements)


def test_a_search_that_runs_out_of_time_says_so():
    _, snapshot = random_snapshot(13)
    effort = Options(within_s=0.0).begin()
    searched(snapshot, first_plan(snapshot), Options(), effort)
    assert effort.ended_early


@pytest.mark.more
def test_a_plan_that_falls_short_is_made_cheaper_too():
    """A paid slot that is ready too late adds nothing."""
    weak = slot("weak", curve=make_certain_curve(0, 0.6))
    late = slot("late", curve=make_certain_curve(100.0, 0.001), price_usd_per_hour=1.0)
    snapshot = Snapshot(workflow_set=make_set([chain("w", 100.0)]), slots=(weak, late))
    plan = make_plan(snapshot)
    assert plan.promise.probability == pytest.approx(0.6, abs=0.03)
    assert {use.slot.id for use in plan.uses} == {"weak"}


def test_an_uncertain_set_has_a_first_plan_at_the_safest_quantile_that_fits():
    flows = [chain("w", 300.0, 300.0)]
    tight = make_set(flows, deadline_s=1000.0, runtime_spread=0.3)
    plan = first_plan(Snapshot(workflow_set=tight, slots=(slot("a"),)))
    assert plan.feasible
    assert plan.quantile == 0.9  # at .99 each task would have 603 s


def explained(plan: Plan) -> dict:
    return explain(plan_json(plan), "w/t0")


@pytest.mark.more
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
    assert (
        "Other plans, and why they were not taken, in the scenarios of the choice:"
        in explain_text(payload)
    )


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
    usual = plan_set(workflow_set, grid, options=Options(effort=0.0))
    assert not usual.plan.feasible
    planned = plan_set(workflow_set, grid, options=BRIEF)
    assert planned.plan.meets_request
    assert planned.plan.uses[0].slot.procs >= 4
    planned.plan.check(planned.snapshot)


@given(seed=st.integers(0, 10_000), share=st.sampled_from([0.0, 0.5]))
@settings(max_examples=examples(40), deadline=None)
def test_the_start_by_heft_is_that_of_the_policy_where_no_data_move(seed, share):
    draws = random.Random(seed)
    flows = [
        chain(f"w{n}", *(draws.uniform(50.0, 400.0) for _ in range(draws.randint(1, 4))))
        for n in range(draws.randint(1, 5))
    ]
    slots = tuple(
        slot(f"s{n}", procs=draws.randint(1, 3), speed=draws.uniform(0.5, 2.0))
        for n in range(draws.randint(1, 4))
    )
    snapshot = Snapshot(workflow_set=make_set(flows, deadline_s=900.0), slots=slots)
    draft, problem = Draft(snapshot), NumberedSet(snapshot)
    for name in snapshot.by_length:
        place_heft(draft, name, slots, share)
    orders = heft(problem, range(len(slots)), share)
    placed = (
        {} if orders is None else dict(zip(orders.task.tolist(), orders.slot.tolist(), strict=True))
    )
    assert {problem.tasks[t]: slots[n].id for t, n in placed.items()} == {
        p.task_key: p.slot for p in draft.placements
    }
