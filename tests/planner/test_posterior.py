"""What ended tells of what is left: held against the plain conditional of the joint normal
distribution."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.planner.brief import make_plan
from tests.planner.test_planner import chain, make_set, slot
from vgrads.planner.outlook import compute_promise
from vgrads.planner.promise.posterior import ObservedError, left_of, update_errors
from vgrads.planner.replan import OpenSlot, Progress
from vgrads.planner.snapshot import Snapshot
from vgrads.workflows.spread import EXACT, RuntimeSpread
from vgrads.workflows.task import Task

deviations = st.sampled_from([0.0, 0.1, 0.5, 1.0])
spreads = st.builds(
    RuntimeSpread,
    own=st.sampled_from([0.1, 0.4]),
    kind=deviations,
    workflow=deviations,
    site=deviations,
)
rows = st.lists(
    st.builds(
        ObservedError,
        workflow=st.sampled_from("abc"),
        site=st.sampled_from("xy"),
        kind=st.sampled_from("mn"),
        spread=spreads,
        error=st.floats(-2, 2),
    ),
    min_size=1,
    max_size=9,
)


@settings(max_examples=examples(100))
@given(rows)
def test_it_is_the_conditional_of_the_joint_normal_distribution(observed):
    latents = sorted(
        {n for s in observed for n in (("f", s.workflow), ("s", s.site), ("k", s.kind))}
    )
    loads = np.zeros((len(observed), len(latents)))
    for n, s in enumerate(observed):
        for name, load in (
            (("f", s.workflow), s.spread.workflow),
            (("s", s.site), s.spread.site),
            (("k", s.kind), s.spread.kind),
        ):
            loads[n, latents.index(name)] = load
    noise = np.diag([s.spread.own**2 for s in observed])
    gain = loads.T @ np.linalg.inv(loads @ loads.T + noise)
    mean = gain @ np.array([s.error for s in observed])
    left = np.diag(np.eye(len(latents)) - gain @ loads)
    sharpened = update_errors(observed)
    for n, (what, name) in enumerate(latents):
        if what != "s":
            existing = (sharpened.workflows if what == "f" else sharpened.kinds)[name]
            assert existing == (pytest.approx(mean[n], abs=1e-6), pytest.approx(left[n], abs=1e-6))
        else:
            assert sharpened.sites[name][1] == pytest.approx(left[n], abs=1e-6)


def test_a_slow_site_makes_its_slots_slower_and_more_probable():
    spread = RuntimeSpread(own=0.1, site=0.5)
    errors = [
        ObservedError(workflow="w", site="a", kind="k", spread=spread, error=math.log(2))
    ] * 20
    result = update_errors(errors).of_slot(slot("a"))
    assert result.speed == pytest.approx(0.5, rel=0.02)
    assert result.doubt < 0.1
    assert result.as_stated().speed == pytest.approx(1.0)
    other = slot("b")
    assert update_errors(errors).of_slot(other) is other


def test_no_observation_changes_nothing():
    task = Task(id="t", runtime_s=10.0, kind="k", spread=RuntimeSpread(own=0.1, kind=0.5))
    assert update_errors([]).of("w", task, task.spread) == task
    exact = Task(id="t", runtime_s=10.0)
    errors = [
        ObservedError(
            workflow="w", site="a", kind="", spread=RuntimeSpread(kind=0.5, own=0.1), error=1.0
        )
    ]
    assert update_errors(errors).of("w", exact, EXACT) == exact


@given(st.floats(0.05, 1.5), st.floats(0.1, 6.0))
def test_what_is_left_of_a_running_task_has_the_right_quantiles(sigma, age):
    draws = np.exp(sigma * np.random.default_rng(1).standard_normal(200_000)) * 100.0
    longer = draws[draws > age * 100.0] - age * 100.0
    if len(longer) < 2_000:
        return
    spread = RuntimeSpread(own=sigma)
    left = left_of(Task(id="t", runtime_s=100.0), spread, age * 100.0)
    assert left.runtime_s == pytest.approx(np.median(longer), rel=0.1)
    upper = left.runtime_s * left.spread.factor(0.9)
    assert upper == pytest.approx(np.quantile(longer, 0.9), rel=0.15)


@pytest.mark.parametrize("spread", [EXACT, RuntimeSpread(own=0.1)])
def test_a_task_that_disproves_its_estimate_is_neither_done_nor_lost(spread):
    """Half of them take as much longer again as they have by now."""
    task = Task(id="t", runtime_s=100.0)
    assert left_of(task, EXACT, 30.0) == replace(task, runtime_s=70.0)
    late = left_of(task, spread, 300.0)
    assert late.runtime_s == 200.0
    assert late.spread.factor(0.05) < 0.06 and late.spread.factor(0.9) > 9.0
    assert left_of(task, EXACT, 100.1).runtime_s == pytest.approx(0.1)


def test_a_run_whose_first_tasks_took_long_promises_less_and_another_that_was_quick_more():
    """Eight tasks of one kind on two processors; two have ended, in three times or half of what was
    expected."""
    spread = RuntimeSpread(own=0.05, kind=0.6)
    flows = [chain(f"w{n}", 100.0) for n in range(8)]
    flows = [
        replace(w, tasks={i: replace(t, kind="k", spread=spread) for i, t in w.tasks.items()})
        for w in flows
    ]
    snapshot = Snapshot(
        workflow_set=make_set(flows, 8, deadline_s=550.0), slots=(slot("s", 2, end_s=550.0),)
    )
    plan = make_plan(snapshot)
    placed = sorted(plan.placements, key=lambda p: (p.start_s, p.workflow))
    use = plan.uses[0]

    def promise(took_s):
        first = placed[:2]
        running = {p.key: took_s for p in placed[2:4]}
        return compute_promise(
            plan,
            snapshot,
            Progress(
                now_s=took_s,
                done=frozenset(p.task_key for p in first),
                running=running,
                waiting=frozenset(p.key for p in placed[4:]),
                open_slots=(OpenSlot(use=use, ready=True, end_s=550.0),),
                spent_usd=0.0,
                version=0,
                ended=dict.fromkeys((p.key for p in first), took_s),
            ),
        ).probability

    assert 0.4 < plan.promise.probability < 0.9
    assert promise(50.0) > 0.99
    assert promise(200.0) < 0.01


@pytest.mark.parametrize(("now_s", "expected"), [(90.0, 1.0), (300.0, 0.757), (950.0, 0.058)])
def test_a_promise_falls_while_a_task_takes_longer_than_stated(now_s, expected):
    """It may still end in the rest of its slot, whatever a plan would reserve for it."""
    flow, only = chain("w", 100.0), slot("s", end_s=1000.0)
    snapshot = Snapshot(workflow_set=make_set([flow], deadline_s=1000.0), slots=(only,))
    plan = make_plan(snapshot)
    (placement,) = plan.placements
    progress = Progress(
        now_s=now_s,
        done=frozenset(),
        running={placement.key: 0.0},
        waiting=frozenset(),
        open_slots=(OpenSlot(use=plan.uses[0], ready=True, end_s=1000.0),),
        spent_usd=0.0,
        version=0,
    )
    outlook = compute_promise(plan, snapshot, progress)
    assert outlook.probability == pytest.approx(expected, abs=0.03)
    assert outlook.possible
