"""Carrying a run out under its lease: from the beginning, or taken over where its last manager left
it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

from vgrads.api.plans.answers import outcome_json, plan_json, planned_gantt, run_gantt
from vgrads.api.plans.attempts import attempts_of
from vgrads.api.plans.execution import (
    Begun,
    Outcome,
    RunOptions,
    Setup,
    cancel_run,
    is_simulated,
    prepare_run,
    resume_run,
    start_run,
)
from vgrads.api.plans.planning import Planned
from vgrads.api.plans.runtimes import records_of
from vgrads.api.plans.upgraded import with_todays_pilots
from vgrads.api.wiring import any_real
from vgrads.execmgr.core.acquisitions import acquisitions
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.journal import LeaseLost, advance
from vgrads.execmgr.core.states import Event, RunState
from vgrads.execmgr.core.step import begin
from vgrads.execmgr.engines.outside import OutsideEngine
from vgrads.execmgr.runner import Watcher
from vgrads.execmgr.tasks.folder import AWAY, BESIDE, HERE, TaskFolder, clean_up
from vgrads.kernel.clock import WallClock
from vgrads.kernel.errors import InputError
from vgrads.portal.records.run_lease import RunLease, ask_manager_to_stop, leave_word
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.runtimes import RunTimeRecords
from vgrads.portal.records.store import GOES_ON, Store, new_run
from vgrads.portal.records.tables import RunRow
from vgrads.portal.records.work import Works
from vgrads.traces.task_record import TaskRecord
from vgrads.workflows.written import document_of

_log = logging.getLogger("vgrads.runs")


@dataclass(frozen=True, kw_only=True)
class TakenOver:
    """A run whose manager this process has become.

    ``replayed``: simulated sites ended with the last one; ``stop``: why it is only to be given
    back.
    """

    begun: Begun
    replayed: bool
    stop: str = ""


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """A run that was added to the database; nothing of it is done yet."""

    store: Store
    record: RunRecord
    planned: Planned
    setup: Setup
    book: Book

    def execute(self, watch: Watcher | None = None) -> Outcome:
        """Carry it out to its end."""

        def work() -> Outcome:
            return start_run(self.planned.grid, self.setup, self.book, self.record, watch)

        return carry_out(self.store, self.record, planned_gantt(self.planned), work)


def create_run(
    store: Store, planned: Planned, options: RunOptions, chosen: Path | None = None
) -> NewRun:
    """Add a run of a plan, with all that it can be resumed from; ``chosen``: the folder of its
    files, if its user chose it."""
    setup, book = prepare_run(planned, options)
    name, document = planned.wanted.name, document_of(planned.wanted)
    set_id = store.add_set(name, document, plan_json(planned.plan), planned_gantt(planned))
    record = RunRecord(store.engine, options.run_id)
    record.create(new_run(set_id, options.run_id, chosen), setup, book)
    return NewRun(store=store, record=record, planned=planned, setup=setup, book=book)


def ask_to_stop(store: Store, run_id: str, reason: str) -> str:
    """Have a run stopped that goes on: what was done about it; empty where it holds something and
    has no manager."""
    if ask_manager_to_stop(store.engine, run_id, reason):
        return "its manager was asked to stop"
    if store.count_events(run_id):
        return ""
    works = Works(store.engine)
    if not works.drop(run_id) and works.awaits(run_id):
        leave_word(store.engine, run_id, reason)
        return "its manager was asked to stop"
    lease = RunLease(store.engine, run_id)
    lease.take()
    if store.count_events(run_id) == 0:  # no slot was requested
        store.end_run(run_id, "cancelled", {"reason": "before it began"}, {})
    lease.leave()
    return "it had not begun"


def unended(store: Store, run_id: str) -> RunRow:
    """A run that goes on, or can; InputError where it is over."""
    row = store.get_run(run_id)
    if row.state not in GOES_ON:
        raise InputError(f"run '{run_id}' is over: {row.state}", fix="vgrads status lists runs")
    return row


def take_over(
    store: Store, record: RunRecord, stop: str = "", until: int | None = None
) -> TakenOver:
    """Become the manager of a run that was begun; InputError while another one is at work, or for a
    damaged record.

    ``stop``: only to give everything back, as where somebody left that word. ``until``: of the
    journal only the events before this one are believed, and kept.
    """
    setup = record.setup()
    record.lease.take()
    try:
        stop = stop or record.stop_reason()
        books = record.books()
        state = _read_through(record, books, record.events(until))
    except InputError:
        record.lease.leave()
        raise
    if until is not None:
        record.cut(until)
    replayed = not any_real(setup.catalog, books[0].plan)
    if replayed and not stop:
        record.begin_again()
    begun = Begun(
        setup=setup,
        books=books,
        state=state,
        seen=store.acquisitions(),
        run_times=RunTimeRecords(store.engine).learned(),
    )
    return TakenOver(begun=begun, replayed=replayed, stop=stop)


def _read_through(record: RunRecord, books: list[Book], events: list[Event]) -> RunState:
    """What a journal has come to; InputError for an event that can be read and does not fit what
    was before it, or for books that are gone."""
    if not books:
        record.refuse_unbegun()
    state = begin(books[0])
    for position, event in enumerate(events):
        try:
            state = advance(books, state, event)
        except (LookupError, TypeError, ValueError) as error:
            record.refuse_event(position, f"does not fit: {error!r}")
    return state


def go_on(
    store: Store,
    record: RunRecord,
    taken: TakenOver,
    watch: Watcher | None = None,
    outside: OutsideEngine | None = None,
) -> Outcome:
    """Work on a run that was taken over to its end."""
    if outside is not None and not taken.replayed:
        outside.clock = WallClock(taken.begun.passed_s)

    def work() -> Outcome:
        if taken.stop:
            return cancel_run(taken.begun, record, taken.stop)
        ours = outside is None and not taken.replayed
        begun = with_todays_pilots(taken.begun, record, watch) if ours else taken.begun
        return resume_run(begun, record, watch, outside)

    return carry_out(store, record, store.gantt_of(record.run_id), work)


def carry_out(
    store: Store, record: RunRecord, gantt: dict[str, Any], work: Callable[[], Outcome]
) -> Outcome:
    """Do a run's work under its lease, and keep how it ended; on an error it stands as
    interrupted."""
    run_id, lease = record.run_id, record.lease
    lease.take()
    lease.while_leased(lambda: store.set_run_state(run_id, "running"))
    try:
        outcome = work()
    except LeaseLost:  # all of it is another manager's, or will be
        raise
    except BaseException:
        store.end_run(run_id, "interrupted", {}, gantt)
        lease.leave()
        raise
    lease.confirm_now()
    found = acquisitions(outcome.book, outcome.state)
    lease.while_leased(lambda: store.add_acquisitions(run_id, found))
    lease.while_leased(lambda: _learn(store, record, outcome))
    ended = (run_id, outcome.verdict, outcome_json(outcome), run_gantt(outcome))
    lease.while_leased(lambda: store.end_run(*ended))
    lease.leave()
    return outcome


def _learn(store: Store, record: RunRecord, outcome: Outcome) -> None:
    """Keep what tasks took that really ran, for the next plan."""
    setup = record.setup()
    if is_simulated(outcome.book, setup.catalog):
        return
    own_mib = getrusage(RUSAGE_SELF).ru_maxrss / 1024.0
    attempts, _ = attempts_of(record.books(), record.events())
    found = records_of(outcome.book, attempts, (record.run_id, setup.began_unix_s), own_mib)
    by_kind: dict[str, list[TaskRecord]] = {}
    for one in found:
        by_kind.setdefault(one.kind, []).append(one)
    for refused in RunTimeRecords(store.engine).learn_by_kind(by_kind):
        _log.warning("of run %s not learned: %s", record.run_id, refused)


def tidy(outcome: Outcome, options: RunOptions, keep: str) -> None:
    """Leave of the workflows that are done what is asked for: all, results (no scratch folders), or
    final ones."""
    if keep == "all" or not options.folder.is_dir():
        return
    shutil.rmtree(options.folder / BESIDE, ignore_errors=True)
    for kind in (HERE, AWAY):
        folder = TaskFolder(options.folder, options.folder, kind)
        for name in outcome.done:
            clean_up(folder, outcome.book.snapshot.workflow_by_name[name], keep == "final")
