"""Tasks that exceed the memory learned for them are started again: the promise counts the time."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.planner.brief import make_plan
from tests.planner.test_planner import make_set, slot
from vgrads.api.plans.runtimes import MEMORY, add_run_times, learn_run_times
from vgrads.planner.make import STANDARD
from vgrads.planner.promise.lengths import drawn_factor, make_lengths
from vgrads.planner.schedule import make_schedule
from vgrads.planner.snapshot import Snapshot
from vgrads.runtimes.task_history import TaskHistory, learn
from vgrads.traces.task_record import TaskRecord
from vgrads.vgrid.catalog import load_catalog
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.spread import RuntimeSpread, estimate_repetitions
from vgrads.workflows.task import UNSTATED, Task
from vgrads.workflows.task_environment import ErrorRule, TaskEnvironment

QUICK = replace(STANDARD, effort=0.0)
MARGIN = NormalDist().inv_cdf(MEMORY)
MIB = 2.0**20
SITES = '[[site]]\nname = "m"\nkind = "local"\nprocs = 2\ndriver = "local"\n'
NODE = '[[site.node]]\ntype = "n"\ncores = 2\nmemory_mib = {}\n'


def peak(own=0.0, kind=0.0):
    return RuntimeSpread(
        memory_own=own, memory_kind=kind, memory_limit=MARGIN * float(np.hypot(own, kind))
    )


def snapshot_of(spread, tasks=1, deadline_s=150.0):
    own = [Task(id=f"t{n}", runtime_s=100.0, kind="k", spread=spread) for n in range(tasks)]
    workflow_set = make_set([make_workflow("w", own)], deadline_s=deadline_s)
    return Snapshot(workflow_set=workflow_set, slots=(slot("s", tasks, end_s=1000.0),))


def drawn(snapshot, count=4096):
    plan = make_plan(snapshot, QUICK)
    submits_s = {use.slot.id: use.submit_s for use in plan.uses}
    schedule, _ = make_schedule(snapshot, plan.placements, submits_s)
    return make_lengths(snapshot, schedule, list(submits_s)).draw(0, 0, count)


@pytest.mark.parametrize(
    ("spread", "expected"),
    [
        (RuntimeSpread(), 1.0),
        (peak(own=0.3), MEMORY**20),
        (peak(kind=0.3), MEMORY),
    ],
)
def test_the_promise_counts_tasks_that_are_started_again(spread, expected):
    """Twenty tasks at once have time for one try: each exceeds its memory for itself, or all of
    their kind do."""
    plan = make_plan(snapshot_of(spread, tasks=20), QUICK)
    assert plan.promise.probability == pytest.approx(expected, abs=0.03)
    longer = make_plan(snapshot_of(spread, tasks=20, deadline_s=450.0), QUICK)
    assert longer.promise.probability > 0.995


@settings(max_examples=examples(20))
@given(st.floats(0.05, 2.0), st.floats(0.0, 2.0))
def test_tries_are_drawn_with_their_probabilities(own, kind):
    spread = peak(own, kind)
    tries = drawn(snapshot_of(spread, tasks=8, deadline_s=5000.0)) / 100.0
    total, limit = float(np.hypot(own, kind)), spread.memory_limit
    for count in range(3):
        expected = 1.0 - NormalDist(sigma=total).cdf(limit + count * np.log(2.0))
        assert np.mean(tries > count + 1.5) == pytest.approx(expected, abs=0.012)
    assert set(np.unique(tries.round(6))) <= {1.0, 2.0, 3.0, 4.0}


def test_a_simulated_execution_repeats_as_often_as_promised():
    snapshot = snapshot_of(peak(own=0.2, kind=0.3))
    factors = [drawn_factor(snapshot, seed, ("w", "t0", 0), "s") for seed in range(4000)]
    assert np.mean(np.array(factors) > 1.0) == pytest.approx(1.0 - MEMORY, abs=0.007)


def test_each_doubling_is_a_try_up_to_three():
    over = np.log([0.5, 0.99, 1.01, 1.99, 2.01, 3.99, 4.01, 100.0])
    assert estimate_repetitions(over).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("changes", "node_mib", "again"),
    [
        ({}, 10_000, True),
        ({"memory_mib": 500.0}, 10_000, False),
        ({}, 1_200, False),
        ({"environment": ErrorRule(exits=(137,), retries=0)}, 10_000, False),
        ({"environment": ErrorRule(exits=(137,), retries=2, memory=1.5)}, 10_000, True),
        ({"environment": ErrorRule(exits=(3,), retries=0)}, 10_000, True),
    ],
)
def test_only_tasks_that_get_more_memory_are_counted_as_repeated(write, changes, node_mib, again):
    """Those of stated memory are not, nor those for which there is no more: they request more."""
    rows = [
        TaskRecord(kind="k", seconds=10.0, machine="m", run=f"r{n}", memory_bytes=mib * MIB)
        for n, mib in enumerate((700.0, 800.0, 900.0, 750.0, 850.0))
    ]
    if "environment" in changes:
        changes = {"environment": TaskEnvironment(errors=(changes["environment"],))}
    workflow_set = make_set(
        [make_workflow("w", [Task(id="t", runtime_s=UNSTATED, kind="k", **changes)])]
    )
    catalog = load_catalog(write("x.toml", SITES + NODE.format(node_mib)))
    timed, _ = add_run_times(workflow_set, learn_run_times(learn(TaskHistory(), rows)), catalog)
    task = timed.workflows[0].tasks["t"]
    spread = task.spread
    if again:
        exceeded = NormalDist(sigma=float(np.hypot(spread.memory_own, spread.memory_kind)))
        assert 1.0 - exceeded.cdf(spread.memory_limit) == pytest.approx(1.0 - MEMORY)
        assert spread.memory_own > 0
    else:
        assert (spread.memory_own, spread.memory_kind, spread.memory_limit) == (0.0, 0.0, 0.0)
    assert task.memory_mib == 500.0 if "memory_mib" in changes else task.memory_mib > 900
    assert task.memory_mib <= node_mib
