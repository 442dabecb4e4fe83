"""Submissions of slots that are planned again while they are ahead."""

import os
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.execmgr.test_execmgr import place, ready, simulate
from tests.execmgr.test_survival import World, check_ended_well, no_leaving, run_through_crashes
from tests.planner.brief import make_plan
from tests.planner.test_planner import chain, make_set, slot
from tests.qbets.test_state import simulated
from vgrads.api.plans.planning import add_live_queues, open_grid, plan_set
from vgrads.api.plans.submissions import make_submission_planner
from vgrads.drivers.simulated import SiteBehaviour
from vgrads.execmgr.core.execution_plan import make_execution
from vgrads.execmgr.core.journal import MemoryJournal
from vgrads.execmgr.core.states import Replanned, RequestSlot, Tick
from vgrads.execmgr.core.step import begin, step
from vgrads.execmgr.core.submissions import CHECK_S, plan_submissions
from vgrads.execmgr.runner import Runner
from vgrads.planner.make import Options
from vgrads.planner.plan import EVERYTHING
from vgrads.planner.snapshot import Snapshot
from vgrads.planner.uses import derive_slot_uses
from vgrads.traces.swf import write_swf
from vgrads.vgrid.catalog import load_catalog
from vgrads.vgrid.slot import make_certain_curve

__all__ = ["no_leaving"]  # a fixture

START_S, WAIT_S = 1200.0, 30.0


@dataclass(frozen=True)
class WaitCurve:
    """Futures of a queue: waits are uniform between two bounds (s)."""

    low_s: float
    high_s: float
    limit: float = 1.0

    def chance(self, procs, walltime_s, submit_in_s, by_s):
        assert walltime_s >= 100.0
        return float(
            np.interp(by_s - submit_in_s, [self.low_s, self.high_s + 1e-6], [0.0, self.limit])
        )


def later_slot(wait_s=WAIT_S, site="x", queue="q", **more):
    """The slot ``later`` of a batch queue is needed from 1,200 s on; its queue takes ``wait_s``."""
    slots = (
        slot("first", 1, end_s=4000.0, site=site),
        slot(
            "later",
            1,
            make_certain_curve(wait_s),
            end_s=4000.0,
            kind="batch",
            queue=queue,
            site=site,
            **more,
        ),
    )
    flow = chain("w", START_S, 100.0)
    snapshot = Snapshot(workflow_set=make_set([flow], deadline_s=4000.0), slots=slots)
    placed = (
        place("w", "t0", "first", 0.0, START_S),
        place("w", "t1", "later", START_S, START_S + 100.0),
    )
    plan = replace(
        make_plan(snapshot, Options(effort=0)),
        placements=placed,
        uses=derive_slot_uses(snapshot, placed),
        spare_workflows=EVERYTHING,
    )
    plan.check(snapshot)
    return make_execution(plan, snapshot)


class QueueWorld(World):
    """A world whose queue is as ``futures`` says at every check."""

    def __init__(self, futures, wait_s=WAIT_S):
        super().__init__(later_slot(wait_s), SiteBehaviour(boot_s=1.0, seed=1))
        self.futures, self.checks_s = futures, []

    def plan_submissions(self, execution, state, now_s):
        self.checks_s.append(now_s)
        check = plan_submissions(execution, state, now_s, lambda use, ahead: self.futures)
        if check.execution is not None:
            self.executions.append(check.execution)
        return check

    def around(self, journal, stop=lambda: ""):
        return replace(super().around(journal, stop), plan_submissions=self.plan_submissions)


def run_in(world):
    journal = MemoryJournal()
    state = Runner("r", world.executions[0], world.around(journal)).run()
    check_ended_well(world, state, journal)
    return state, journal


PLANNED_S = later_slot().uses["later"].submit_s


@pytest.mark.parametrize(
    ("wait_s", "earliest_s", "latest_s"),
    [
        (600.0, START_S - 600.0 - 2 * CHECK_S, START_S - 600.0),  # the queue has grown
        (WAIT_S, PLANNED_S - 2 * CHECK_S, PLANNED_S),  # as planned
        (1.0, PLANNED_S - 2 * CHECK_S, START_S - 1.0),  # it has shrunk
        (3000.0, 0.0, 0.0),  # too late whatever is done: at once is the best that is left
    ],
)
def test_a_slot_is_submitted_as_the_queue_requires(wait_s, earliest_s, latest_s):
    world = QueueWorld(WaitCurve(0.0, wait_s))
    state, _ = run_in(world)
    assert earliest_s <= state.slots["later"].requested_s <= latest_s
    texts = [text for _, text in state.notes if "submission of slot later moved" in text]
    assert bool(texts) == (state.slots["later"].requested_s != PLANNED_S)
    assert len(world.checks_s) < 40
    requested_s = state.slots["later"].requested_s
    pending = [at_s for at_s in world.checks_s if at_s <= requested_s]
    assert all(np.diff(pending) >= CHECK_S - 1e-6)


def test_a_slot_whose_queue_has_shrunk_is_submitted_later_than_planned():
    world = QueueWorld(WaitCurve(0.0, 10.0), wait_s=600.0)
    state, _ = run_in(world)
    assert world.executions[0].uses["later"].submit_s == START_S - 600.0
    assert START_S - 10.0 - 2 * CHECK_S <= state.slots["later"].requested_s <= START_S - 10.0
    assert any("moved from 10m to 1" in text for _, text in state.notes)


def test_a_slot_that_is_submitted_earlier_is_reserved_until_its_planned_end():
    world = QueueWorld(WaitCurve(0.0, 600.0))
    state, _ = run_in(world)
    last = world.executions[-1]
    requested_s = state.slots["later"].requested_s
    assert last.spec("later", "r").duration_s == last.uses["later"].slot.end_s - requested_s
    assert {use.slot.id: use for use in last.plan.uses} == last.uses


def test_without_a_current_forecast_the_planned_instant_stays():
    world = QueueWorld(None)
    state, journal = run_in(world)
    assert state.slots["later"].requested_s == PLANNED_S
    assert not any(isinstance(event, Replanned) for event in journal.events)


@pytest.mark.more
def test_runs_with_moved_submissions_survive_their_manager_at_every_position():
    plain, journal = run_in(QueueWorld(WaitCurve(0.0, 600.0)))
    assert any(isinstance(event, Replanned) for event in journal.events)
    for before in (True, False):
        for position in range(1, len(journal.events) + 3):
            world = QueueWorld(WaitCurve(0.0, 600.0))
            state, _ = run_through_crashes(world, [position], before)
            assert set(state.done) == set(plain.done)
            assert state.slots["later"].requested_s <= START_S - 600.0


def test_tasks_that_wait_in_the_slot_keep_their_order():
    execution = later_slot()
    state, _ = simulate(execution, Tick(at_s=0.0), ready("first", 1.0))
    check = plan_submissions(execution, state, 10.0, lambda use, ahead: WaitCurve(0.0, 3000.0))
    before = state.replicas
    state, commands = step(
        check.execution, state, Replanned(at_s=10.0, version=1, reason=check.reason)
    )
    assert commands == [RequestSlot("later")]
    assert state.replicas == before


@example(0.0, 1.0, 0.97, 550.0)
@given(
    st.floats(0, 2000),
    st.floats(0, 2000),
    st.sampled_from([0.3, 0.97, 1.0]),
    st.floats(0, 599),
)
def test_no_move_lowers_the_probability_of_a_start_in_time(low_s, spread_s, limit, now_s):
    execution = later_slot(600.0)
    state, _ = step(execution, begin(execution), Tick(at_s=0.0))
    futures = WaitCurve(low_s, low_s + spread_s, limit)
    check = plan_submissions(execution, state, now_s, lambda use, ahead: futures)
    assert check.again_s >= now_s + CHECK_S - 1e-6
    if check.execution is None:
        return
    after_s = check.execution.uses["later"].submit_s
    before, after = (
        futures.chance(1, 4000.0, submit_s - now_s, START_S - now_s)
        for submit_s in (600.0, after_s)
    )
    assert after_s >= now_s
    if after_s < 600.0:
        assert after >= before - 2e-3
    else:
        assert after >= 1.0 - 2e-3  # as planned


SITES = """
[[site]]
name = "toy"
kind = "batch"
procs = 32
cores_per_node = 8
driver = "slurm"
[[site.queue]]
name = "batch"
history = "past.swf"
"""
SQUEUE = "#!/bin/sh\ncat {folder}/queued || exit 1\n"


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """A site whose ``squeue`` prints the file ``queued``, and fails without it."""
    folder = tmp_path_factory.mktemp("toy")
    log = simulated(1500)
    past = replace(log, unix_start_s=round(time.time() - log.end_s))
    (folder / "past.swf").write_text(write_swf(past))
    (folder / "sites.toml").write_text(SITES)
    (folder / "squeue").write_text(SQUEUE.format(folder=folder))
    (folder / "squeue").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VGRADS_HOME", str(folder / "home"))
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        (folder / "queued").write_text("")
        yield folder, open_grid(load_catalog(folder / "sites.toml"))


@pytest.mark.parametrize(("jobs", "moves"), [(0, False), (12, True), (None, False)])
def test_the_queue_of_a_real_site_moves_a_submission(jobs, moves, grid, tmp_path, monkeypatch):
    """Also in the first check of a run: its home has no listing yet."""
    folder, existing = grid
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path))
    (folder / "queued").unlink(missing_ok=True)
    if jobs is not None:
        line = "batch|ann|{}|32|1:00:00|1:00:00|0\n"
        waiting = line.format("RUNNING") + line.format("PENDING") * jobs
        (folder / "queued").write_text(waiting if jobs else "")
    execution = later_slot(site="toy", queue="batch")
    state, _ = simulate(execution, Tick(at_s=0.0), ready("first", 1.0))
    stored = []
    check = make_submission_planner(existing, lambda version, plan: stored.append((version, plan)))(
        execution, state, 10.0
    )
    assert (check.execution is not None) == moves
    assert stored == ([(1, check.execution)] if moves else [])
    if moves:
        assert check.execution.uses["later"].submit_s == 10.0
        assert "submission of slot later moved from 19m 30s to 10s" in check.reason
    assert check.again_s - 10.0 >= (CHECK_S if jobs is not None else 5 * CHECK_S)


def test_a_slot_that_costs_money_is_not_submitted_earlier():
    execution = later_slot(price_usd_per_hour=1.0)
    state, _ = simulate(execution, Tick(at_s=0.0), ready("first", 1.0))
    check = plan_submissions(execution, state, 10.0, lambda use, ahead: WaitCurve(0.0, 3000.0))
    assert check.execution is None


def test_a_site_that_vanishes_while_planning_is_planned_by_its_last_waits(grid):
    folder, existing = grid
    (folder / "queued").unlink(missing_ok=True)  # squeue fails from now on
    workflow_set = make_set([chain("w", 100.0)], deadline_s=7200.0)
    planned = plan_set(workflow_set, add_live_queues(existing), options=Options(effort=0.1))
    assert planned.plan.feasible
    planned.plan.check(planned.snapshot)
    assert {use.slot.site for use in planned.plan.uses} == {"toy"}
