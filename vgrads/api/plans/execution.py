"""Execution of plans: start, resume after the manager was killed, cancel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from vgrads.api.plans.planning import (
    GridSnapshot,
    Planned,
    open_grid,
)
from vgrads.api.plans.refusals import refuse_without_commands, refuse_without_s3
from vgrads.api.plans.replanners import (
    make_replanner,
    make_request_changer,
    make_task_adder,
    sufficient_changes,
)
from vgrads.api.plans.run_setup import RunOptions, Setup
from vgrads.api.plans.runtimes import NOTHING, RunTimes
from vgrads.api.plans.submissions import make_submission_planner
from vgrads.api.plans.up_to_date import carry_over
from vgrads.api.wiring import (
    PILOT,
    RunFiles,
    Wiring,
    are_all_simulated,
    await_gone,
    make_clock,
    make_drivers,
    make_local_engine,
    make_real_engine,
    make_virtual_engine,
    remove_other_jobs,
)
from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.alarm_checks import AlarmSender
from vgrads.execmgr.core.completion import find_done_workflows
from vgrads.execmgr.core.execution_plan import ExecutionPlan, make_execution
from vgrads.execmgr.core.journal import EventJournal, advance
from vgrads.execmgr.core.remainder import compute_current_promise
from vgrads.execmgr.core.states import Cancelled, Event, RequestChange, RunState, SlotUpdate
from vgrads.execmgr.core.step import begin
from vgrads.execmgr.core.submissions import no_submission_planner
from vgrads.execmgr.core.times import Times
from vgrads.execmgr.engines.base import Engine
from vgrads.execmgr.engines.outside import OutsideEngine
from vgrads.execmgr.mailbox import Mailbox
from vgrads.execmgr.pilots import SitePolling
from vgrads.execmgr.runner import (
    POLL_S,
    ChangedPlan,
    Runner,
    RunnerSetup,
    Watcher,
    no_replanner,
)
from vgrads.execmgr.slot_names import spec_id
from vgrads.kernel.clock import Moment
from vgrads.planner.plan import Relaxation
from vgrads.vgrid.acquisition import Acquisition
from vgrads.vgrid.catalog import Catalog

_QUICK_S = 0.1  # mailbox polling interval of a run with released tasks


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """Result of a run: workflow → when it was done, and whether the promise was kept; ``spent``:
    total times of its tasks."""

    execution: ExecutionPlan
    state: RunState
    done: Mapping[str, float]
    spent: Times = Times()  # noqa: RUF009 frozen

    @property
    def in_time(self) -> int:
        """Number of workflows done by the deadline."""
        deadline_s = self.execution.plan.deadline_s
        return sum(at_s <= deadline_s for at_s in self.done.values())

    @property
    def kept(self) -> bool:
        return self.in_time >= self.execution.plan.needed

    @property
    def verdict(self) -> str:
        """kept, broken or cancelled."""
        if self.kept:
            return "kept"
        return "cancelled" if self.state.cancelled else "broken"


@dataclass(frozen=True, kw_only=True)
class StartedRun:
    """A run whose manager is gone: its setup, its execution plans, its state according to its
    journal.

    ``observed``: acquisitions of slots by earlier runs, ``run_times``: learned run times of tasks,
    both for replanning.
    """

    setup: Setup
    executions: list[ExecutionPlan]
    state: RunState
    observed: Sequence[Acquisition] = ()
    run_times: RunTimes = NOTHING

    @property
    def elapsed_s(self) -> float:
        """Time since its start, in seconds of its clock; never before the last event of its
        journal."""
        began = Moment(self.setup.began_unix_s, self.setup.began_boot, self.setup.began_up_s)
        return max(began.elapsed_s(), self.state.now_s)


class Record(EventJournal, Protocol):
    """A journal that also stores execution plans, and returns cancellation requests."""

    def keep_setup(self, setup: Setup) -> None:
        """Store the setup of the run."""

    def store_execution(self, version: int, execution: ExecutionPlan) -> None:
        """Store an execution plan."""

    def mailbox(self) -> Mailbox | None:
        """Return the mailbox of the program that releases the tasks of the run; None if there is
        none."""

    def alarms(self) -> AlarmSender | None:
        """Return what sends messages about the promise; None: nothing is sent."""

    def stop_reason(self) -> str:
        """Return why the run is to be cancelled; empty if it is not."""


def run_plan(
    planned: Planned,
    options: RunOptions,
    record: Record,
    watch: Watcher | None = None,
    outside: OutsideEngine | None = None,
) -> RunOutcome:
    """Execute a plan to its end; ``outside``: an outside engine runs the tasks, in real time."""
    setup, execution = prepare_run(planned, options, outside is None)
    # stored before anything is requested: whoever resumes the run needs both
    record.keep_setup(setup)
    record.store_execution(0, execution)
    return start_run(planned.grid, setup, execution, record, watch, outside)


def prepare_run(
    planned: Planned, options: RunOptions, own: bool = True
) -> tuple[Setup, ExecutionPlan]:
    """Return the setup of a run, to be stored before anything is done; InputError for tasks that
    cannot be run here, if they are ``own``."""
    execution = make_execution(planned.plan, planned.snapshot)
    setup = begin_now(options, planned.grid.catalog)
    if own and not is_simulated(execution, setup.catalog) and not execution.released:
        refuse_without_commands(execution)
        refuse_without_s3(execution)
    return setup, execution


def start_run(
    grid: GridSnapshot,
    setup: Setup,
    execution: ExecutionPlan,
    record: Record,
    watch: Watcher | None = None,
    outside: OutsideEngine | None = None,
) -> RunOutcome:
    """Execute a run without a journal from its beginning."""
    carry_over(execution.plan.done, execution.snapshot.workflow_set, setup.options.folder)
    if not execution.plan.placements:  # all was done before
        return RunOutcome(execution=execution, state=begin(execution), done={})
    around = _make_surroundings(execution, setup, grid, record, 0.0, outside)
    return _make_outcome(
        Runner(setup.options.run_id, execution, around, watch), lambda runner: runner.run()
    )


def resume_run(
    begun: StartedRun,
    record: Record,
    watch: Watcher | None = None,
    outside: OutsideEngine | None = None,
) -> RunOutcome:
    """Continue a run whose manager is gone. Simulated sites ended with it: those are simulated
    again."""
    setup, executions = begun.setup, begun.executions
    grid = _make_grid(begun)
    if is_simulated(executions[0], setup.catalog):
        return start_run(grid, setup, executions[0], record, watch, outside)
    if begun.state == begin(executions[0]):  # its manager may have ended before this was done
        carry_over(
            executions[0].plan.done, executions[0].snapshot.workflow_set, setup.options.folder
        )
    if not executions[0].plan.placements:
        return RunOutcome(execution=executions[0], state=begun.state, done={})
    around = _make_surroundings(executions[0], setup, grid, record, begun.elapsed_s, outside)
    needed = list_needed_slots(executions[begun.state.version], begun.state, setup.options.run_id)
    # a manager that was killed may have left jobs that nobody needs any more
    remove_other_jobs(around.drivers, setup.options.run_id, needed)
    runner = Runner(setup.options.run_id, executions[begun.state.version], around, watch)
    return _make_outcome(runner, lambda r: r.resume(begun.state))


def plan_change_of(begun: StartedRun, change: RequestChange) -> ChangedPlan:
    """Return the plan of a run's remainder for a changed request, as its manager would make it;
    nothing is stored."""
    plan = make_request_changer(_make_grid(begun), _list_usable_sites(begun), lambda *_: None)
    return plan(begun.executions[begun.state.version], begun.state, change)


def find_changes_of_run(begun: StartedRun) -> tuple[Relaxation, ...] | None:
    """Return the changes of a run's request, each alone, with which what remains would meet it;
    None for a set that is too large to try them."""
    execution = begun.executions[begun.state.version]
    return sufficient_changes(_make_grid(begun), _list_usable_sites(begun), execution, begun.state)


def _list_usable_sites(begun: StartedRun) -> tuple[str, ...]:
    simulated = is_simulated(begun.executions[0], begun.setup.catalog)
    return _check_same_world(begun.setup.catalog, simulated)


def _make_grid(begun: StartedRun) -> GridSnapshot:
    """Return the sites of a run now; its closures are those seen from its begin."""
    setup = begun.setup
    grid = open_grid(
        setup.catalog, setup.options.at, observed=begun.observed, run_times=begun.run_times
    )
    if setup.options.at is None:
        grid = replace(grid, now_s=dict.fromkeys(grid.now_s, setup.began_unix_s))
    return grid


def list_needed_slots(execution: ExecutionPlan, state: RunState, run_id: str) -> set[str]:
    """Return the slots that a run has or may still request, by their names at the sites; terminal
    ones are not needed."""
    ended = {s for s, r in state.slots.items() if r.state is not None and r.state.ended}
    again = {s: r.again for s, r in state.slots.items()}
    return {spec_id(s, run_id, again.get(s, 0)) for s in execution.uses if s not in ended}


def cancel_run(begun: StartedRun, record: Record, reason: str) -> RunOutcome:
    """Release the resources of a run whose manager is gone, and return when they are gone; nothing
    is planned."""
    catalog, options, state = begun.setup.catalog, begun.setup.options, begun.state
    execution = begun.executions[state.version]
    if is_simulated(begun.executions[0], catalog):  # its sites ended with its manager
        end: list[Event] = [Cancelled(at_s=state.now_s, reason=reason), *_list_released(state)]
        record.append(end)
        for event in end:
            state = advance(begun.executions, state, event)
        return RunOutcome(
            execution=execution, state=state, done=find_done_workflows(execution, state)
        )
    clock = make_clock(False, None, begun.elapsed_s)
    open_slots = {s for s, r in state.slots.items() if r.state is not None and not r.state.ended}
    needed = sorted({execution.uses[slot].slot.site for slot in open_slots})
    sites = {
        execution.uses[slot].slot.site for slot, r in state.slots.items() if r.state is not None
    }
    nothing = Wiring(logs={}, instants={}, until_s=0.0, seed=0)
    drivers = make_drivers(catalog, needed, clock, nothing, sorted(sites))
    engine = make_local_engine(clock, _list_files(options, execution))
    around = RunnerSetup(drivers=drivers, clock=clock, journal=record, engine=engine)
    runner = Runner(options.run_id, execution, around)
    return _make_outcome(runner, lambda r: r.cancel(state, reason))


def _list_released(state: RunState) -> list[Event]:
    return [
        SlotUpdate(
            at_s=state.now_s, slot=slot, state=SlotState.RELEASED, reason="ended with its manager"
        )
        for slot, record in state.slots.items()
        if record.state is not None and not record.state.ended
    ]


def _list_files(options: RunOptions, execution: ExecutionPlan) -> RunFiles:
    workflow_set = execution.snapshot.workflow_set
    return RunFiles(
        run=options.run_id,
        folder=options.folder,
        set_folder=Path(workflow_set.directory),
        own=options.own,
        pass_env=workflow_set.pass_env,
        account=options.account,
    )


def begin_now(options: RunOptions, catalog: Catalog) -> Setup:
    """Return the setup of a run that starts now."""
    now = Moment.now()
    return Setup(
        options=options,
        catalog=catalog,
        began_unix_s=now.unix_s,
        began_boot=now.boot,
        began_up_s=now.up_s,
        pilot=PILOT,
    )


def _make_outcome(runner: Runner, work: Callable[[Runner], RunState]) -> RunOutcome:
    state = work(runner)
    if state.cancelled:
        remove_other_jobs(runner.around.drivers, runner.run_id, ())
        await_gone(runner.around.drivers, runner.run_id)
    done = find_done_workflows(runner.execution, state)
    return RunOutcome(
        execution=runner.execution, state=state, done=done, spent=runner.own_work.spent
    )


def is_simulated(execution: ExecutionPlan, catalog: Catalog) -> bool:
    return are_all_simulated(
        catalog.site(name) for name in {u.slot.site for u in execution.uses.values()}
    )


def _make_surroundings(
    execution: ExecutionPlan,
    setup: Setup,
    grid: GridSnapshot,
    record: Record,
    elapsed_s: float,
    outside: OutsideEngine | None = None,
) -> RunnerSetup:
    """Return drivers, engine, clock and planner of a run that began ``elapsed_s`` ago."""
    catalog, options = setup.catalog, setup.options
    simulated = is_simulated(execution, catalog)
    clock = outside.clock if outside else make_clock(simulated, options.speed, elapsed_s)
    around = Wiring(
        logs=grid.logs,
        instants=grid.instants,
        until_s=execution.plan.deadline_s,
        seed=options.seed,
        now_s=grid.now_s,
    )
    needed = sorted({use.slot.site for use in execution.uses.values()})
    drivers = make_drivers(catalog, needed, clock, around, _check_same_world(catalog, simulated))
    names = tuple(drivers)
    polling: dict[str, SitePolling] = {}
    engine: Engine
    if outside is not None:
        engine = outside
    elif simulated:
        engine = make_virtual_engine(clock, execution.snapshot, options.seed)
    else:
        engine, polling = make_real_engine(catalog, names, clock, _list_files(options, execution))
    return RunnerSetup(
        drivers=drivers,
        clock=clock,
        journal=record,
        engine=engine,
        polling=polling,
        replan=make_replanner(grid, names, record.store_execution)
        if options.replan
        else no_replanner,
        promise_now=compute_current_promise,
        plan_submissions=(
            make_submission_planner(grid, record.store_execution)
            if options.replan and not simulated
            else no_submission_planner
        ),
        add_tasks=make_task_adder(grid, names, record.store_execution),
        change_request=make_request_changer(grid, names, record.store_execution),
        mailbox=record.mailbox(),
        alarms=record.alarms(),
        poll_s=_QUICK_S if execution.released else POLL_S,
        stop_requested=record.stop_reason,
    )


def _check_same_world(catalog: Catalog, simulated: bool) -> tuple[str, ...]:
    """Return the sites that a run may use: all simulated ones, or all real ones."""
    return tuple(s.name for s in catalog.sites if (s.driver == "simulated") == simulated)
