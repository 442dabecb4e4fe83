"""Whole workflows packed into slots: at least cost, as many as there is money for, by the rules of
every plan."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.planner.brief import make_plan
from tests.planner.test_planner import chain, make_set
from tests.workflows.test_workflows import dags
from vgrads.kernel.profile import Profile
from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.pack import find_cheapest_packing, pack_batch, pack_minimum
from vgrads.planner.placement.rows import make_rows, merge_workflows
from vgrads.planner.placement.window_packing import (
    TASK,
    WINDOW,
    PlacementShape,
    earliest,
    fill,
    make_room,
    occupy,
    with_more_steps,
)
from vgrads.planner.snapshot import Snapshot
from vgrads.vgrid.slot import Slot, make_certain_curve
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.task import Task

HOUR_S = 3600.0


def machine(name, procs=1, usd=1.0, boot_s=120.0, end_s=3 * HOUR_S, **more):
    """A slot at a cloud: so many dollars for each started hour."""
    fields = {
        "site": "cloud",
        "queue": "",
        "kind": "cloud",
        "shared": name,
        "price_usd_per_hour": usd,
    }
    return Slot(
        id=name, procs=procs, curve=make_certain_curve(boot_s), end_s=end_s, **{**fields, **more}
    )


def several(count, **more):
    return tuple(machine(f"m{n:02}", **more) for n in range(count))


def question(shapes, needed, slots, budget_usd, deadline_s=3 * HOUR_S, **more):
    names = [shape.renamed(f"w{n:02}") for n, shape in enumerate(shapes)]
    workflow_set = make_set(names, needed, deadline_s=deadline_s, budget_usd=budget_usd)
    return Snapshot(workflow_set=workflow_set, slots=slots, **{"scenarios": 64, **more})


def test_twenty_short_workflows_share_hours_that_are_paid_for():
    snapshot = question([chain("w", 400.0, 400.0)] * 20, 20, several(30), 20.0)
    plan = make_plan(snapshot)
    plan.check(snapshot)
    assert plan.meets_request
    assert plan.cost_usd == 5.0  # 16,000 s of work; an hour less its boot holds 3,480


def test_of_twenty_some_takes_a_single_machine_for_an_hour():
    plan = make_plan(question([chain("w", 400.0, 400.0)] * 20, 1, several(30), 20.0))
    assert (plan.scheduled, plan.cost_usd, len(plan.uses)) == (1, 1.0, 1)


def test_where_money_is_short_as_many_as_it_buys_and_what_more_would_cost():
    snapshot = question([chain("w", 400.0, 400.0)] * 20, 20, several(30), 2.0)
    plan = make_plan(snapshot)
    plan.check(snapshot)
    assert not plan.feasible
    assert plan.scheduled == 8
    assert plan.cost_usd == 2.0
    [refused] = [step for phase in plan.phases for step in phase.steps if "refused" in step]
    assert (refused["refused"], refused["would_cost_usd"]) == ("budget", 5.0)


def test_the_smallest_go_first_where_not_all_can():
    shapes = [chain("w", length) for length in (3000.0, 3100.0, 500.0, 600.0, 700.0)]
    plan = make_plan(question(shapes, 5, several(9), 1.0, deadline_s=HOUR_S))
    assert {p.workflow for p in plan.placements} == {"w02", "w03", "w04"}


def test_a_free_slot_holds_what_it_can_and_money_buys_the_rest():
    free = machine("free", usd=0.0, boot_s=0.0, site="here")
    snapshot = question([chain("w", 400.0, 400.0)] * 20, 20, (free, *several(30)), 20.0)
    plan = make_plan(snapshot)
    plan.check(snapshot)
    assert plan.meets_request
    assert plan.cost_usd == 2.0  # 13 of 20 have room in three hours that are free
    assert {p.workflow for p in plan.placements if p.slot == "free"}


def test_what_is_paid_for_is_filled_before_anything_is_opened():
    snapshot = question([chain("w", 800.0)] * 6, 6, several(5), 9.0)
    draft = Draft(snapshot)
    assert pack_batch(draft, ["w00"], 1, snapshot.slots, 9.0) == 1
    assert draft.cost_usd == 1.0
    assert pack_batch(draft, ["w01", "w02", "w03"], 3, snapshot.slots, 0.0) == 3
    assert draft.cost_usd == 1.0
    assert pack_batch(draft, ["w04"], 1, snapshot.slots, 0.0) == 0
    assert pack_batch(draft, ["w04"], 1, snapshot.slots, 1.0) == 1


def test_a_workflow_is_spread_over_machines_that_alone_are_too_slow():
    wide = make_workflow("w", [Task(id=f"t{n}", runtime_s=1000.0) for n in range(6)])
    plan = make_plan(question([wide], 1, several(9), 9.0, deadline_s=HOUR_S))
    assert plan.meets_request
    assert plan.cost_usd == 2.0


def test_machines_are_requested_when_they_are_needed():
    """A long task, then three beside each other: two of the machines are asked for behind the first
    task."""
    after = [Task(id=f"b{n}", runtime_s=3000.0, parents=("a",)) for n in range(3)]
    shape = make_workflow("w", [Task(id="a", runtime_s=3000.0), *after])
    snapshot = question([shape], 1, several(4), 6.0, deadline_s=2 * HOUR_S)
    plan = make_plan(snapshot)
    plan.check(snapshot)
    assert plan.cost_usd == 4.0
    assert sorted(use.submit_s for use in plan.uses) == [0.0, 3000.0, 3000.0]


def test_a_task_that_cheap_machines_do_not_hold_gets_a_single_that_does():
    tasks = [Task(id=f"t{n}", runtime_s=900.0) for n in range(8)]
    shape = make_workflow("w", [*tasks, Task(id="wide", runtime_s=600.0, procs=4, parents=("t0",))])
    slots = (*several(9), machine("big", procs=4, usd=9.0, site="elsewhere"))
    snapshot = question([shape] * 2, 2, slots, 40.0)
    draft = Draft(snapshot)
    pack_minimum(draft, slots)
    assert len(draft.scheduled) == 2
    assert draft.cost_usd < 20.0
    assert {p.slot for p in draft.placements if p.task == "wide"} == {"big"}


def test_a_second_kind_of_machine_is_taken_where_the_first_are_too_few():
    slots = (*several(2), *(machine(f"dear{n}", usd=2.0, site="dear") for n in range(5)))
    snapshot = question([chain("w", 3000.0)] * 4, 4, slots, 9.0, deadline_s=HOUR_S)
    draft = Draft(snapshot)
    pack_minimum(draft, slots)
    assert (len(draft.scheduled), draft.cost_usd) == (4, 6.0)


def test_slots_of_a_site_that_boots_slowly_at_times_are_used_before_they_are_sure():
    """Surely there after an hour, most of the time after minutes: within 80 minutes only that
    helps."""
    curve = type(make_certain_curve(0.0))(np.array([100.0, 4500.0]), np.array([0.98, 1.0]))
    slots = tuple(
        Slot(
            id=f"m{n}",
            site="c",
            queue="",
            kind="cloud",
            procs=1,
            curve=curve,
            end_s=4800.0,
            shared=f"m{n}",
            price_usd_per_hour=1.0,
        )
        for n in range(4)
    )
    plan = make_plan(question([chain("w", 2000.0)] * 2, 2, slots, 9.0, deadline_s=4800.0))
    assert plan.feasible
    assert plan.promise.probability > 0.9


hourly = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.floats(0.5, 1),
        st.sampled_from([0.0, 1.0, 2.5]),
        st.sampled_from([0.5, 1.0, 2.0]),
        st.sampled_from(["a", "b"]),
        st.sampled_from([600.0, 3600.0]),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.more
@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(dags(6), min_size=1, max_size=3),
    st.integers(1, 3),
    hourly,
    st.floats(0, 12),
    st.booleans(),
)
def test_whatever_is_packed_is_a_plan_within_the_budget(shapes, equal, rows, budget_usd, twice):
    slots = tuple(
        machine(f"s{n}", procs, usd, up=up, speed=speed, site=site, billing_s=unit_s, end_s=2000.0)
        for n, (procs, up, usd, speed, site, unit_s) in enumerate(rows)
    )
    snapshot = question(shapes * equal, len(shapes) * equal, slots, budget_usd, 2000.0)
    draft = Draft(snapshot)
    names = [w.name for w in snapshot.workflow_set.workflows]
    packing = find_cheapest_packing(draft, names, len(names), slots, budget_usd)
    placed = pack_batch(draft, names, len(names), slots, budget_usd)
    assert placed == len(packing.rows) == len(draft.scheduled)
    assert draft.cost_usd <= packing.usd + 1e-9
    assert packing.usd <= budget_usd + 1e-9
    if twice and draft.scheduled:
        pack_batch(draft, draft.scheduled, 1, slots, budget_usd - draft.cost_usd)
    empty = make_plan(question(shapes * equal, len(names), (), budget_usd, 2000.0))
    overlay_plan = type(empty)(**{**vars(empty), "placements": tuple(draft.placements)})
    assert overlay_plan.problems(snapshot) == []
    assert draft.cost_usd <= budget_usd + 1e-9


@settings(max_examples=examples(60))
@given(st.lists(dags(8), min_size=1, max_size=4), st.sampled_from([0.5, 1.0, 3.0]))
def test_tasks_of_several_workflows_are_placed_parents_first(shapes, speed):
    snapshot = question(shapes, 1, several(3, speed=speed), 9.0)
    parts = [make_rows(w, snapshot) for w in snapshot.workflow_set.workflows]
    rows, turns = merge_workflows(parts)
    owners = [(n, task_id) for n, part in enumerate(parts) for task_id in part.order]
    for turn, was in enumerate(turns):
        owner, task_id = owners[was]
        task = snapshot.workflow_set.workflows[owner].tasks[task_id]
        read = rows.parents[rows.tasks[turn].parents_at : rows.tasks[turn + 1].parents_at]
        assert sorted(owners[turns[p]] for p in read) == sorted((owner, p) for p in task.parents)
        assert all(p < turn for p in read)
        assert rows.tasks[turn].length_s == task.runtime_s
        assert rows.kinds[rows.tasks[turn].kind] == task.needs


uses = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10), st.integers(1, 4)), max_size=15)


@pytest.mark.parametrize("form", ["plain", "fast"])
@settings(max_examples=examples(60), deadline=None)
@given(rows=uses, ready=st.integers(0, 40), length=st.integers(1, 10), procs=st.integers(1, 4))
def test_a_window_has_room_where_a_calendar_has(form, rows, ready, length, procs):
    windows = np.zeros(1, WINDOW).view(np.recarray)
    windows[0] = 0.0, 40.0, 4, 1.0, 0, 160.0
    calendar, retained = Profile(4, 40.0), []
    room = make_room(windows, [calendar.steps(0)])
    fit, execution = getattr(earliest, form), getattr(occupy, form)
    for start, duration, width in rows:
        at_s = calendar.earliest_fit(float(start), float(duration), width, 40.0)
        assert fit(room, 0, float(start), float(duration), width) == (
            np.inf if at_s is None else at_s
        )
        if at_s is not None:
            calendar.add(at_s, at_s + duration, width)
            execution(room, 0, at_s, at_s + duration, width)
            retained.append((at_s, at_s + duration, width))
    value = calendar.earliest_fit(float(ready), float(length), procs, 40.0)
    assert fit(room, 0, float(ready), float(length), procs) == (np.inf if value is None else value)
    for start_s, end_s, width in reversed(retained):
        execution(room, 0, start_s, end_s, -width)
    assert room.heads[0, 0] == 1
    assert windows[0].room_s == pytest.approx(160.0)


def shape_of(widths, parents, lengths_s):
    """Tasks of one workflow in this order, each with at most one parent."""
    tasks = np.zeros(len(widths) + 1, TASK).view(np.recarray)
    tasks.length_s[:-1], tasks.procs[:-1] = lengths_s, widths
    tasks.parents_at = np.cumsum([0, *(parent is not None for parent in parents)])
    tasks.same[:-1] = np.arange(len(widths))
    edges = np.array([parent for parent in parents if parent is not None])
    moves = np.zeros((2, 1, 1))
    return PlacementShape(tasks, edges, np.zeros(len(edges)), np.ones((1, 1), bool), moves, -np.inf)


def empty_room(procs, end_s):
    windows = np.array([(0.0, end_s, procs, 1.0, 0, 0.0)], WINDOW).view(np.recarray)
    return make_room(windows, [Profile(procs, end_s).steps(0)])


@pytest.mark.parametrize("form", ["plain", "fast"])
def test_a_workflow_without_room_leaves_a_window_as_it_was(form):
    """On two processors: a chain of narrow and wide tasks, narrow ones in its gaps, such a chain
    again, and a task that is too long. All together have few steps, without the first chain many:
    more than there is space for."""
    chain_widths, gaps = [1, 2] * 25, [1] * 25
    parents = [None, *range(49), *gaps, 49, *range(75, 125)]
    parents[50:75] = [None] * 25
    shape = shape_of([*chain_widths, *gaps, *chain_widths, 1], parents, [10.0] * 125 + [9e3])
    room = empty_room(2, 5000.0)
    space = room.times_s.shape[1]
    starts_s, where = np.zeros((1, 126)), np.zeros((1, 126), np.int64)
    assert getattr(fill, form)(room, shape, starts_s, where) == 0
    assert starts_s[0, 50:75].tolist() == [20.0 * n for n in range(25)]  # in the gaps
    assert starts_s[0, 124] == 990.0
    assert room.heads.tolist() == [[1, 0]]
    assert room.windows.room_s.tolist() == [10_000.0]
    assert room.times_s.shape[1] == space


@pytest.mark.parametrize("form", ["plain", "fast"])
def test_equal_workflows_continue_with_more_space_for_steps(form):
    shape = shape_of([2, 3], [None, 0], [10.0, 10.0])
    room, act = empty_room(3, 5000.0), getattr(fill, form)
    starts_s, where = np.zeros((400, 2)), np.zeros((400, 2), np.int64)
    placed, enlarged = 0, 0
    while (more := act(room, shape, starts_s[placed:], where[placed:])) < 0:
        placed += -1 - more
        enlarged += 1
        room = with_more_steps(room)
    assert enlarged == 3
    assert placed + more == 250
    assert starts_s[:250, 0].tolist() == [20.0 * n for n in range(250)]


@pytest.mark.parametrize("form", ["plain", "fast"])
@settings(max_examples=examples(60), deadline=None)
@given(dags(8), st.integers(4, 6), st.booleans())
def test_equal_tasks_start_where_they_would_without_the_bounds_of_others(
    form, workflow, procs, dense
):
    rows = make_rows(workflow, question([workflow], 1, several(2), 9.0))
    rows.tasks.length_s[:-1] = 10.0 + rows.tasks.length_s[:-1] % 3 * 20.0  # many are equal
    _, equal = np.unique(rows.tasks[["length_s", "procs"]][:-1], return_inverse=True)
    limit_s = 900.0 if dense else -np.inf
    results = []
    for same in (equal, np.arange(len(rows.order))):
        tasks = rows.tasks.copy()
        tasks.same[:-1] = same
        windows = np.array([(0.0, 900.0, procs, 1.0, 0, 0.0)] * 2, WINDOW).view(np.recarray)
        room = make_room(windows, [Profile(procs, 900.0).steps(0)] * 2)
        holds = np.ones((len(rows.kinds), 2), bool)
        shape = PlacementShape(tasks, rows.parents, rows.mib, holds, np.zeros((2, 1, 1)), limit_s)
        starts_s, where = np.zeros((9, len(rows.order))), np.zeros((9, len(rows.order)), np.int64)
        placed = getattr(fill, form)(room, shape, starts_s, where)
        results.append((placed, starts_s[:placed].tolist(), where[:placed].tolist()))
    assert results[0] == results[1]
    assert results[0][0] > 0


@settings(max_examples=examples(60), deadline=None)
@given(dags(6), st.lists(st.tuples(st.integers(1, 4), st.floats(0.3, 1)), min_size=2, max_size=4))
def test_a_workflow_in_several_slots_is_done_where_all_its_tasks_are(workflow, rows):
    slots = tuple(
        machine(f"s{n}", procs, up=up, shared="all" * (n < 2)) for n, (procs, up) in enumerate(rows)
    )
    snapshot = question([workflow] * 3, 3, slots, 99.0)
    whole, single = Draft(snapshot), Draft(snapshot)
    names = [w.name for w in snapshot.workflow_set.workflows]
    pack_batch(whole, names, 3, slots, 99.0)
    for name in whole.scheduled:
        single.place_all([p for p in whole.placements if p.workflow == name])
        single.settle(name)
    assert {n: bits.tolist() for n, bits in whole.done.items()} == {
        n: bits.tolist() for n, bits in single.done.items()
    }
    assert whole.probabilities() == pytest.approx(single.probabilities())


@pytest.mark.more
def test_more_workflows_are_counted_than_a_number_of_sixteen_bits_has():
    """33,000 workflows of which all are done in every scenario."""
    count = 33_000
    sure = machine("sure", procs=count, usd=0.0, boot_s=0.0, up=1.0)
    snapshot = question([chain("w", 60.0)] * count, count, (sure,), 0.0)
    draft = Draft(snapshot)
    names = [w.name for w in snapshot.workflow_set.workflows]
    assert pack_batch(draft, names, count, snapshot.slots, 0.0) == count
    assert draft.counts.min() > 32_767
