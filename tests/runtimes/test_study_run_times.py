"""Studies of learned run times: small, on what is recorded, and their arithmetic."""

from itertools import islice

import pytest
from vgrads_studies.runtimes.pilots import pilot_gains
from vgrads_studies.runtimes.promises import (
    SPREADS,
    SetOutcome,
    by_workflow,
    fifths,
    outcomes,
    standard_error,
)
from vgrads_studies.runtimes.recorded_sets import nodes, runs

from vgrads.kernel.streams import stream


def _outcome(promise, on_time, workflow="a", target="n1"):
    return SetOutcome("nextflow", workflow, target, promise, on_time)


def test_fifths_are_sorted_by_promise_and_compared_with_the_share_kept():
    sets = [_outcome(0.1 * n, n > 4, target=f"n{n}") for n in reversed(range(10))]
    rows = fifths("joint", sets)
    assert [(row.fifth, row.sets, row.promised, row.kept) for row in rows] == [
        (1, 2, 0.05, 0.0),
        (2, 2, 0.25, 0.0),
        (3, 2, 0.45, 0.5),
        (4, 2, 0.65, 1.0),
        (5, 2, 0.85, 1.0),
    ]
    assert [row.gap for row in rows] == [0.05, 0.25, 0.05, 0.35, 0.15]
    assert [row.within for row in rows] == [row.gap <= 0.05 + row.two_se + 1e-9 for row in rows]


def test_sets_that_share_a_machine_count_as_less():
    apart = [_outcome(0.5, n % 2 == 0, f"w{n}", f"n{n}") for n in range(8)]
    alike = [_outcome(0.5, n < 4, f"w{n}", f"n{n // 4}") for n in range(8)]
    assert standard_error(apart) == pytest.approx(0.5 / 7**0.5)
    assert standard_error(alike) == pytest.approx(0.5)


def test_workflows_are_compared():
    row = by_workflow([_outcome(0.9, True), _outcome(0.7, False, target="n2")])[0]
    assert (row.targets, row.sets, row.promised, row.kept, row.brier) == (2, 2, 0.8, 0.5, 0.25)


@pytest.mark.more
def test_every_spread_has_outcomes(shared):
    target = next(runs(shared / "workflows" / "wfformat"))
    results = outcomes(iter([target]), 1)
    assert set(results) == set(SPREADS)
    assert len(results["joint"]) == len(results["control"]) > 0
    assert all(0 <= s.promise <= 1 for sets in results.values() for s in sets)


@pytest.mark.more
def test_sets_consist_of_recorded_tasks_with_their_dependencies(shared):
    wfformat = shared / "workflows" / "wfformat"
    for target in (next(nodes(shared / "nextflow")), *islice(runs(wfformat), 1)):
        recorded = target.draw(stream(1, target.name))
        tasks = {
            (w.name, task_id): w.tasks[task_id] for w in recorded.workflows for task_id in w.tasks
        }
        assert tasks.keys() == recorded.actual_s.keys()
        assert not any(task.stated for task in tasks.values())
        assert any(task.parents for task in tasks.values())


@pytest.mark.long
def test_pilots_narrow_the_interval_and_it_stays_true(shared):
    rows = {(row.workflow, row.pilots): row for row in pilot_gains(shared)}
    for name in ("atacseq", "chipseq", "bacass"):
        row = rows[f"{name}, all sizes", "whole"]
        assert row.ratio < 0.7 and row.spent <= 0.07
        assert row.inside_after == row.sets
    alone = rows["helloworld-chain-5-chameleon", "whole"]  # a fifth of the work each
    assert (alone.number, alone.spent, alone.ratio) == (0.0, 0.0, 1.0)
