"""Execution of a run under its lease: from the start, or taken over from its last manager."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

from vgrads.api.plans.answers import outcome_json, plan_json, planned_gantt, run_gantt
from vgrads.api.plans.attempts import list_attempts
from vgrads.api.plans.execution import (
    RunOutcome,
    StartedRun,
    cancel_run,
    is_simulated,
    prepare_run,
    resume_run,
    start_run,
)
from vgrads.api.plans.planning import Planned
from vgrads.api.plans.run_setup import RunOptions, Setup
from vgrads.api.plans.runtimes import make_records
from vgrads.api.plans.upgraded import update_pilots
from vgrads.api.wiring import uses_real_site
from vgrads.execmgr.core.acquisitions import list_acquisitions
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.journal import advance
from vgrads.execmgr.core.lease_errors import LeaseLost
from vgrads.execmgr.core.states import Event, RunState
from vgrads.execmgr.core.step import begin
from vgrads.execmgr.engines.outside import OutsideEngine
from vgrads.execmgr.runner import Watcher
from vgrads.execmgr.tasks.folder import AWAY, HERE, SIBLINGS, TaskFolder, clean_up
from vgrads.kernel.clock import WallClock
from vgrads.kernel.errors import InputError, brief
from vgrads.portal.jobs.alarm_delivery import AT_TERMINAL, AlarmSettings
from vgrads.portal.jobs.alarm_messages import AlarmMessages
from vgrads.portal.jobs.forecasts.plans import issue_run, score_run
from vgrads.portal.jobs.run_alarms import with_owner_rules
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.run_lease import RunLease, request_stop, store_stop_request
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.runtimes import RunTimeRecords
from vgrads.portal.records.sets import Sets
from vgrads.portal.records.store import Store, new_run
from vgrads.portal.records.tables import OPERATOR, RunRow
from vgrads.portal.records.work import Works
from vgrads.traces.task_record import TaskRecord
from vgrads.workflows.written import write_document

_log = logging.getLogger("vgrads.runs")


@dataclass(frozen=True, kw_only=True)
class TakenOver:
    """A run whose manager this process has become.

    ``replayed``: simulated sites ended with the last manager; ``stop``: why it is only to be
    released.
    """

    begun: StartedRun
    replayed: bool
    stop: str = ""


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """A run added to the database; none of it is done yet."""

    store: Store
    record: RunRecord
    planned: Planned
    setup: Setup
    execution: ExecutionPlan

    def execute(self, watch: Watcher | None = None) -> RunOutcome:
        """Run it to its end."""
        issue_run(self.store, self.record.run_id, self.planned)

        def work() -> RunOutcome:
            return start_run(self.planned.grid, self.setup, self.execution, self.record, watch)

        return carry_out(self.store, self.record, planned_gantt(self.planned), work)


def create_run(
    store: Store,
    planned: Planned,
    options: RunOptions,
    chosen: Path | None = None,
    set_id: str = "",
) -> NewRun:
    """Add a run of a plan, with all data needed to resume it; ``chosen``: the folder of its files,
    if its user chose it; ``set_id``: the stored set that it is one more run of."""
    planned = with_owner_rules(store, OPERATOR, planned)
    setup, execution = prepare_run(planned, options)
    name, document = planned.workflow_set.name, write_document(planned.workflow_set)
    if set_id:
        Sets(store.engine).put_plan(set_id, planned.plan, planned.snapshot)
    else:
        set_id = store.add_set(name, document, plan_json(planned.plan), planned_gantt(planned))
    record = RunRecord(store.engine, options.run_id)
    record.create(new_run(set_id, options.run_id, chosen), setup, execution)
    return NewRun(store=store, record=record, planned=planned, setup=setup, execution=execution)


def ask_to_stop(store: Store, run_id: str, reason: str) -> str:
    """Request cancellation of an active run; return what was done; empty where it holds resources
    and has no manager."""
    if request_stop(store.engine, run_id, reason):
        return "its manager was asked to stop"
    # it has begun, and may hold slots: whoever cancels it must take it over
    if store.count_events(run_id):
        return ""
    works = Works(store.engine)
    if not works.drop(run_id) and works.awaits(run_id):
        store_stop_request(store.engine, run_id, reason)
        return "its manager was asked to stop"
    lease = RunLease(store.engine, run_id)
    lease.take()
    # a manager may have begun it before the lease was taken
    if store.count_events(run_id) == 0:  # no slot was requested
        store.end_run(run_id, "cancelled", {"reason": "before it began"}, {})
    lease.leave()
    return "it had not begun"


def unended(store: Store, run_id: str) -> RunRow:
    """Return a run that is active, or can be resumed. Raise InputError where it is terminal."""
    row = store.get_run(run_id)
    if row.state not in GOES_ON:
        raise InputError(
            f"run '{run_id}' has ended: {row.state}", fix="list runs with 'vgrads status'"
        )
    return row


def take_over(
    store: Store, record: RunRecord, stop: str = "", until: int | None = None
) -> TakenOver:
    """Become the manager of a started run. Raise InputError while another one is running, or for a
    damaged record.

    ``stop``: only release everything, also where a cancellation was requested. ``until``: only the
    events of the journal before this one are used, and kept.
    """
    setup = record.setup()
    # first, so that no other manager appends to the journal that is read now
    record.lease.take()
    try:
        stop = stop or record.stop_reason()
        executions = record.executions()
        state = _read_through(record, executions, record.events(until))
    except InputError:
        record.lease.leave()
        raise
    if until is not None:
        # only after what is left of the journal was read without an error
        record.cut(until)
    replayed = not uses_real_site(setup.catalog, executions[0].plan)
    if replayed and not stop:
        record.begin_again()
    begun = StartedRun(
        setup=setup,
        executions=executions,
        state=state,
        observed=store.acquisitions(),
        run_times=RunTimeRecords.of_run(store.engine, record.run_id).learned(),
    )
    return TakenOver(begun=begun, replayed=replayed, stop=stop)


def _read_through(
    record: RunRecord, executions: list[ExecutionPlan], events: list[Event]
) -> RunState:
    """Return the state of a journal. Raise InputError for an event that is readable and
    inconsistent with the earlier ones, or for missing execution plans."""
    if not executions:
        record.stored.refuse_unbegun()
    state = begin(executions[0])
    for position, event in enumerate(events):
        try:
            state = advance(executions, state, event)
        except (LookupError, TypeError, ValueError) as error:
            record.stored.refuse_event(
                position, f"does not match the events before it: {brief(error)}"
            )
    return state


def go_on(
    store: Store,
    record: RunRecord,
    taken: TakenOver,
    watch: Watcher | None = None,
    outside: OutsideEngine | None = None,
    alarms: AlarmSettings = AT_TERMINAL,
) -> RunOutcome:
    """Run a run that was taken over to its end."""
    if outside is not None and not taken.replayed:
        outside.clock = WallClock(taken.begun.elapsed_s)

    def work() -> RunOutcome:
        if taken.stop:
            return cancel_run(taken.begun, record, taken.stop)
        ours = outside is None and not taken.replayed
        begun = update_pilots(taken.begun, record, watch) if ours else taken.begun
        return resume_run(begun, record, watch, outside)

    return carry_out(store, record, store.gantt_of(record.run_id), work, alarms)


def carry_out(
    store: Store,
    record: RunRecord,
    gantt: dict[str, Any],
    work: Callable[[], RunOutcome],
    alarms: AlarmSettings = AT_TERMINAL,
) -> RunOutcome:
    """Do a run's work under its lease, and store the outcome; after an error it is marked as
    interrupted."""
    run_id, lease = record.run_id, record.lease
    lease.take()
    lease.while_leased(lambda: store.set_run_state(run_id, "running"))
    row = lease.while_leased(lambda: store.get_run(run_id))
    record.notify_by(AlarmMessages(store.engine, record, row, alarms))
    try:
        outcome = work()
    except LeaseLost:  # it belongs to another manager, or will
        raise
    except BaseException:
        store.end_run(run_id, "interrupted", {}, gantt)
        lease.leave()
        raise
    # a manager that was replaced while it worked must not store its outcome
    lease.confirm_now()
    result = list_acquisitions(outcome.execution, outcome.state)
    lease.while_leased(lambda: store.add_acquisitions(run_id, result))
    executions = lease.while_leased(record.executions)
    lease.while_leased(lambda: _learn(store, record, outcome, executions))
    score_run(store, run_id, outcome)
    promised = executions[0].plan.promise.probability
    result_json = outcome_json(outcome) | {"promised": promised}
    ended = (run_id, outcome.verdict, result_json, run_gantt(outcome))
    lease.while_leased(lambda: store.end_run(*ended))
    lease.leave()
    return outcome


def _learn(
    store: Store, record: RunRecord, outcome: RunOutcome, executions: list[ExecutionPlan]
) -> None:
    """Store the run times of tasks that really ran, for the next plan."""
    setup = record.setup()
    if is_simulated(outcome.execution, setup.catalog):
        return
    own_mib = getrusage(RUSAGE_SELF).ru_maxrss / 1024.0
    attempts, _ = list_attempts(executions, record.events())
    task_records = make_records(
        outcome.execution, attempts, (record.run_id, setup.began_unix_s), own_mib
    )
    by_kind: dict[str, list[TaskRecord]] = {}
    for task_record in task_records:
        by_kind.setdefault(task_record.kind, []).append(task_record)
    run_times = RunTimeRecords.of_run(store.engine, record.run_id)
    for refused in run_times.learn_by_kind(by_kind):
        _log.warning("run times of run %s were not learned: %s", record.run_id, refused)


def tidy(outcome: RunOutcome, options: RunOptions, keep: str) -> None:
    """Delete files of finished workflows except the requested ones: all, results (no scratch
    folders), or final ones."""
    if keep == "all" or not options.folder.is_dir():
        return
    shutil.rmtree(options.folder / SIBLINGS, ignore_errors=True)
    for kind in (HERE, AWAY):
        folder = TaskFolder(options.folder, options.folder, kind)
        for name in outcome.done:
            clean_up(folder, outcome.execution.snapshot.workflow_by_name[name], keep == "final")
