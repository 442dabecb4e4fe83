"""Promises and reservations on recorded starts: real jobs as slots, no simulated queue in
between."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from vgrads_studies.promises.recorded import (
    GATHER_S,
    MOST,
    Jobs,
    lay_sets,
    offered,
    scaled,
    slots_of,
)
from vgrads_studies.promises.recorded_promises import (
    ARMS,
    HEAD,
    RecordedExtent,
    lines,
    study_log,
)
from vgrads_studies.promises.recorded_site import carry_out, run_recorded
from vgrads_studies.promises.replication import lead

from tests.planner import brief
from tests.qbets.test_state import simulated
from vgrads.planner.make import make_plan
from vgrads.planner.promise.rollout import rollout
from vgrads.planner.snapshot import Snapshot
from vgrads.qbets.predictor import Settings
from vgrads.qbets.views import ENDED, FULL
from vgrads.traces.swf import write_swf
from vgrads.vgrid.slot import Slot, StartCurve
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

pytestmark = pytest.mark.more


@cache
def busy():
    log = simulated(2500, seed=5)
    laid = lay_sets(log, 24, 0, [lead()])
    return log, laid, offered(log, laid, Settings())


@cache  # planning takes seconds
def planned(number):
    """A set's plan over the slots that it is offered."""
    _, laid, existing = busy()
    item = laid[number]
    slots = tuple(slot for jobs in item.jobs for slot in existing[number, jobs.machine])
    snapshot = Snapshot(workflow_set=item.workflow_set, slots=slots, seed=number)
    return item, snapshot, brief.make_plan(snapshot)


def test_slots_are_jobs_of_the_log_that_came_soon_after_the_first():
    log, laid, existing = busy()
    rows = {(s, int(p), r) for s, p, r in zip(log.submit_s, log.procs, log.request_s, strict=True)}
    assert {len(item.jobs) for item in laid} == {1, 2}
    for entry in laid:
        assert sum(len(jobs.submit_s) for jobs in entry.jobs) <= MOST
        for jobs in entry.jobs:
            slots = existing[entry.number, jobs.machine]
            for slot, request_s in zip(slots, jobs.request_s, strict=True):
                assert (jobs.at_s + slot.submit_s, slot.procs, request_s) in rows
                assert 0 <= slot.submit_s <= GATHER_S
                assert slot.end_s - slot.submit_s == pytest.approx(min(request_s, 86_400.0))


def test_the_same_sets_are_drawn_in_whatever_folder_the_log_is():
    log = busy()[0]
    one, two = (
        lay_sets(replace(log, name=name), 4, 0, [lead()])
        for name in ("one/batch.swf", 'my "project" ü/batch.swf.gz')
    )
    assert [item.workflow_set for item in one] == [item.workflow_set for item in two]
    assert [item.starts_s for item in one] == [item.starts_s for item in two]


def test_nothing_is_foretold_from_what_came_later():
    """What comes from the question on may be anything: the slots are offered as before."""
    log, laid, existing = busy()
    item = laid[0]
    at_s = min(jobs.at_s for jobs in item.jobs)
    later = log.start_s >= at_s
    changed = replace(log, wait_s=np.where(later, log.wait_s + 50_000.0, log.wait_s))
    again = offered(changed, [item], Settings())
    first = min(item.jobs, key=lambda jobs: jobs.at_s).machine
    for before, now in zip(existing[0, first], again[0, first], strict=True):
        assert np.array_equal(before.curve.probabilities, now.curve.probabilities)


@pytest.mark.parametrize("method", ["state", "qbets"])
def test_slots_of_a_view_are_offered_without_the_jobs_that_it_hides(method):
    log, laid, _ = busy()
    first = min(laid[0].jobs, key=lambda jobs: jobs.at_s)
    runs = log.start_s + log.run_s >= first.at_s
    longer = replace(log, request_s=np.where(runs, 1e6, log.request_s))

    def probabilities(part, view):
        slots = offered(part, laid[:1], Settings(method=method, view=view))[0, first.machine]
        return np.concatenate([slot.curve.probabilities for slot in slots])

    assert np.array_equal(probabilities(log, ENDED), probabilities(longer, ENDED))
    assert not np.array_equal(probabilities(log, FULL), probabilities(longer, FULL))


def test_what_a_plan_holds_starts_when_the_real_jobs_did_and_lives_as_long_as_requested():
    reserved = 0
    for number in range(8):
        item, snapshot, plan = planned(number)
        if not plan.feasible:
            continue
        outcome = carry_out(plan, snapshot, item.starts_s)
        for name, record in outcome.state.slots.items():
            slot = snapshot.slot_by_id[name]
            assert record.requested_s in (None, slot.submit_s)
            if record.ready_s is not None:
                reserved += 1
                assert record.ready_s == item.starts_s[name]
                assert record.ended_s <= item.starts_s[name] + slot.end_s - slot.submit_s + 1e-6
    assert reserved > 6


def test_a_promise_is_kept_where_all_slots_start_at_once_and_broken_where_none_starts():
    checked = 0
    for number in range(8):
        item, snapshot, plan = planned(number)
        if not plan.feasible:
            continue
        checked += 1
        requested = {slot.id: slot.submit_s for slot in snapshot.slots}
        first_s = min(p.start_s for p in plan.placements)
        if all(use.slot.submit_s <= first_s for use in plan.uses):
            assert run_recorded(plan, snapshot, requested, 0.0).kept
        never = dict.fromkeys(requested, item.workflow_set.deadline_s + 1.0)
        assert not run_recorded(plan, snapshot, never, 0.0).kept
    assert checked > 3


def test_a_fixed_slot_is_requested_when_it_is_and_its_curve_is_on_the_clock():
    curve = StartCurve(np.array([400.0, 650.0]), np.array([0.25, 0.4]))
    slot = Slot(
        id="a",
        site="one",
        queue="q",
        kind="batch",
        procs=4,
        curve=curve,
        end_s=4000.0,
        shared="one/q",
        submit_s=300.0,
        fixed=True,
    )
    flow = make_workflow("w", [Task(id="t", runtime_s=100.0, procs=2)])
    workflow_set = WorkflowSet(name="s", workflows=(flow,), deadline_s=700.0, needed=1)
    snapshot = Snapshot(workflow_set=workflow_set, slots=(slot,))
    plan = make_plan(snapshot)
    assert [use.submit_s for use in plan.uses] == [300.0]
    assert plan.promise.probability == pytest.approx(0.25, abs=0.03)
    done_s = rollout(snapshot, plan.placements, {"a": 300.0}).done_s["w"]
    assert set(done_s[np.isfinite(done_s)]) == {500.0}


def test_jobs_of_a_single_shape_are_foretold_alike_and_as_the_queue_is_queried():
    requested = []

    class Oracle:
        def probability(self, procs, walltime_s, within_s, submit_in_s):
            requested.append(submit_in_s)
            return np.clip(within_s / 1000.0 / procs, 0.0, 1.0)

    jobs = Jobs(
        machine="one",
        at_s=5.0,
        submit_s=np.array([0.0, 60.0]),
        procs=np.array([1, 1]),
        request_s=np.array([600.0, -1.0]),
        start_s=np.array([1.0, 61.0]),
    )
    slot, two = slots_of(Oracle(), jobs, 2000.0)
    assert requested == [0.0, 60.0]
    assert (slot.end_s, two.end_s) == (600.0, 60.0 + 86_400.0)
    assert slot.curve.by(500.0) == pytest.approx(0.5, abs=0.02)
    assert two.curve.by(560.0) == pytest.approx(0.5, abs=0.02)
    assert two.curve.by(59.0) == 0.0


def test_a_workflow_is_sized_as_long_and_as_wide_as_its_slots():
    shape = scaled(lead(), 600.0, 4)
    assert shape.critical_path_s() == pytest.approx(600.0)
    assert shape.width == 4
    assert {t.procs for t in shape.tasks.values()} == {1, 4}


@pytest.fixture
def history(tmp_path):
    file = tmp_path / "batch.swf"
    file.write_text(write_swf(simulated(1600, seed=7)))
    return file


@pytest.mark.parametrize("view", [FULL, pytest.param(ENDED, marks=pytest.mark.long)])
def test_what_is_promised_in_the_table_is_what_the_plan_promised_that_was_carried_out(
    history, view
):
    count = 2
    extent = RecordedExtent(count=count, view=view)
    result = study_log(history, extent, [lead()])
    assert {row.view for row in result.rows} == {view}
    assert {line[HEAD.index("view")] for line in lines(result)} == {view}
    assert {row.strategy for row in result.rows} <= set(ARMS)
    again = study_log(history, extent, [lead()])
    assert [r.result.promised for r in again.rows] == [r.result.promised for r in result.rows]
    assert len(result.rows) + sum(result.unplanned.values()) == count * len(ARMS)
    from vgrads_studies.promises.recorded_promises import QBETS  # noqa: PLC0415

    from vgrads.traces.history import read_history  # noqa: PLC0415

    log = read_history(history)
    laid = lay_sets(log, count, 0, [lead()])
    existing = offered(log, laid, replace(QBETS, view=view))
    for row in (r for r in result.rows if r.strategy == "qbets"):
        item = laid[row.case]
        slots = tuple(slot for jobs in item.jobs for slot in existing[row.case, jobs.machine])
        snapshot = Snapshot(workflow_set=item.workflow_set, slots=slots, seed=row.case)
        plan = make_plan(snapshot)
        assert plan.promise.probability == row.result.promised
        assert carry_out(plan, snapshot, item.starts_s).kept == row.result.kept


@pytest.mark.long
def test_the_recorded_study_answers_draws_and_repeats(vgrads, tmp_path, history):
    page = tmp_path / "report.html"
    requested = ("study", "promises", str(history), "--recorded", "--count", 6)
    first = vgrads(*requested, "--report", page, "--json")
    assert first.code == 0, first.err
    assert set(first.json) == {"rows", "reliability", "unplanned", "starts"}
    assert "<svg" in page.read_text()
    text = vgrads(*requested).out
    assert "6 sets; no feasible plan" in text
    assert "| slots | qbets |" in text
