"""Background work of a service, each in its own process: plan a set, run a run.

All state is in the database, so that the next process can continue after a crash.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vgrads.api.config import embedded_data, run_folder, set_folder
from vgrads.api.plans.answers import plan_json
from vgrads.api.plans.execution import RunOutcome, run_plan
from vgrads.api.plans.planning import GridSnapshot, Planned, open_grid, plan_set
from vgrads.api.plans.run_setup import RunOptions
from vgrads.api.plans.set_bags import make_bag_workflow
from vgrads.api.plans.up_to_date import exclude_tasks, find_up_to_date
from vgrads.execmgr.core.lease_errors import LeaseExpired, LeaseLost
from vgrads.execmgr.engines.outside import OutsideEngine
from vgrads.kernel.documents import parse_mapping, validate, validate_field
from vgrads.kernel.errors import InputError, VgradsError
from vgrads.kernel.progress import send_progress
from vgrads.kernel.units import format_count
from vgrads.operations.plans.planning import (
    PlanningContext,
    make_planner_options,
    open_sites,
    plan_workflow_set,
)
from vgrads.operations.plans.requests import (
    USUAL_OPTIONS,
    PlanningOptions,
    list_changed_options,
    read_stored_options,
)
from vgrads.planner.plan import Done, Plan
from vgrads.portal.jobs.alarm_delivery import AT_TERMINAL, AlarmSettings
from vgrads.portal.jobs.forecasts.plans import issue_plan, issue_run
from vgrads.portal.jobs.run_alarms import with_owner_rules
from vgrads.portal.jobs.runs import carry_out, go_on, take_over
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.earlier import runs_of_set
from vgrads.portal.records.heartbeat import LEASE_S
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.reconnect import DatabaseLost, await_database
from vgrads.portal.records.run_lease import ManagedElsewhere
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.runtimes import RunTimeRecords
from vgrads.portal.records.sets import Head, Sets
from vgrads.portal.records.store import Store, summary_of
from vgrads.portal.records.tables import OPERATOR, RunRow
from vgrads.portal.records.work import ProgressRecorder
from vgrads.vgrid.catalog import Catalog
from vgrads.workflows.dag import Workflow
from vgrads.workflows.formats.load import load_workflow
from vgrads.workflows.sets import SetDocument, WorkflowDocument, WorkflowSet, build_set

_log = logging.getLogger("vgrads.work")
_PAUSE_S = 0.5  # between looks whether another manager has ended
_AT_A_GLANCE = 0.3  # effort: somebody waits for the points of a curve
FRESH_S = 300.0
"""Age in seconds at which a plan for real sites is recomputed before its run."""


def warm(catalog: Catalog) -> None:
    """Learn from all histories of a catalogue; unreadable ones are reported when they are
    queried."""
    with suppress(VgradsError):
        open_grid(catalog)


def plan_in_child(url: str, catalog: Catalog, set_id: str) -> None:
    """Plan a set of the database at ``url``."""
    _retry_with_store(url, lambda store: plan_stored_set(store, catalog, set_id))


def run_in_child(url: str, catalog: Catalog, run_id: str, alarms: AlarmSettings) -> None:
    """Run, or resume, a run of the database at ``url``."""
    try:
        _retry_with_store(url, lambda store: run_set(store, catalog, run_id, alarms))
    except (DatabaseLost, LeaseExpired) as error:  # the next process takes over
        _log.error("%s", error)
        sys.exit(error.exit_code)


def _retry_with_store(url: str, work: Callable[[Store], None]) -> None:
    """Run repeatable work; wait while the database is unreachable."""

    def once(_: bool) -> None:
        with Store(url) as store:
            work(store)

    end_s = time.monotonic() + LEASE_S
    await_database(once, lambda: end_s)


def workflow_set_of(document: SetDocument, folder: Path | None = None) -> WorkflowSet:
    """Return the set of a document submitted from outside: it may name only workflows that ship
    with vgrads.

    ``folder``: location of its tasks' files; it contains only files put there for it.
    """
    return build_set(document, _read_shipped_workflow, "body", directory=str(folder or ""))


@dataclass(frozen=True, slots=True)
class CheckedSet:
    """A set submitted from outside, parsed, checked and in its stored form."""

    name: str
    text: str
    tasks: int
    options: PlanningOptions = USUAL_OPTIONS

    @property
    def digest(self) -> str:
        """Return its digest."""
        return hashlib.sha256(f"{self.text}{self.stored_options}".encode()).hexdigest()

    @property
    def stored_options(self) -> str:
        """Return the options that differ from their defaults, as JSON."""
        return json.dumps(list_changed_options(self.options, PlanningOptions))


def check_set(
    body: bytes, kind: str, most_tasks: int, change: Mapping[str, Any] | None = None
) -> CheckedSet:
    """Read a set (``kind``: json or yaml) submitted from outside; ``change``: values of its keys
    instead of those of the text. Raise InputError with the field, and its line. Slow for a large
    one."""
    try:
        document = parse_mapping(body.decode(), "body", kind)
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8 text", where="body") from error
    if kind == "yaml":
        document.pop("sites", None)  # local to the file; the service has its own
    try:
        return check_document(document.replaced(**(change or {})), most_tasks)
    except InputError as error:
        raise error.at_line(document.line_of(error.where.removeprefix("body: "))) from None


def check_document(value: Mapping[str, Any], most_tasks: int) -> CheckedSet:
    """Check a document that is already parsed."""
    document = validate_field(SetDocument, value)
    workflow_set = workflow_set_of(document)
    if workflow_set.task_count > most_tasks:
        raise InputError(f"more than {format_count(most_tasks, 'task')}", where="workflows")
    text = json.dumps(document.model_dump(mode="json", by_alias=True))
    return CheckedSet(document.name, text, workflow_set.task_count)


def _read_shipped_workflow(entry: WorkflowDocument) -> Workflow:
    if entry.kind == "bag":
        return make_bag_workflow(entry, None)
    file = entry.file
    # only by an exact name, so that no path leads to another file
    names = sorted(p.name for p in embedded_data().glob("*.json"))
    if file is None or file not in names:
        raise InputError(
            f"file '{file}' is not available on this service",
            where="workflows.file",
            fix=f"known: {', '.join(names)}",
        )
    if entry.inputs is not None:
        raise InputError(
            "names a file, but this service provides no input files", where="workflows.inputs"
        )
    return load_workflow(embedded_data() / file, entry.runtimes)


@contextmanager
def _hide_paths() -> Iterator[None]:
    """Paths of histories that cannot be read are written to the log, not shown to users."""
    try:
        yield
    except InputError as error:
        _log.exception("a history cannot be read")
        raise InputError(
            "the history of a queue cannot be read; see the log of the service", where="sites"
        ) from error


def _make_context(
    store: Store,
    catalog: Catalog,
    owner: str,
    find_done: Callable[[WorkflowSet], tuple[Done, ...]] = lambda _: (),
) -> PlanningContext:
    return PlanningContext(
        catalog=catalog,
        acquisitions=store.acquisitions,
        run_times=RunTimeRecords(store.engine, owner).learned,
        find_done=find_done,
        reading=_hide_paths,
    )


@dataclass(frozen=True, slots=True)
class TasksToRun:
    """Which tasks of a set a run has besides those that are not done: all (``everything``), or
    ``again`` with those that depend on them."""

    everything: bool = False
    again: tuple[str, ...] = ()


_REMAINING = TasksToRun()


def plan_stored_set(
    store: Store, catalog: Catalog, set_id: str, which: TasksToRun = _REMAINING
) -> None:
    """Plan the remaining tasks of a set, and store the plan; errors in the set are stored with
    it."""
    sets = Sets(store.engine)
    try:

        def find_done(chosen: WorkflowSet) -> tuple[Done, ...]:
            return _list_done(store, catalog, chosen, set_id, which)

        context = _make_context(store, catalog, _find_owner(sets, set_id), find_done)
        with send_progress(ProgressRecorder(store.engine, set_id)):
            planned = plan_workflow_set(
                _read_requested_set(sets, set_id), _read_requested_options(sets, set_id), context
            )
    except DatabaseLost:  # not an error of the set
        raise
    except VgradsError as error:
        sets.fail(set_id, str(error))
        return
    planned = issue_plan(planned, store, _find_owner(sets, set_id))
    sets.put_plan(set_id, planned.plan, planned.snapshot)


def _read_requested_set(sets: Sets, set_id: str) -> WorkflowSet:
    document = SetDocument.model_validate(json.loads(sets.text(set_id, "document")))
    return workflow_set_of(document, set_folder(set_id))


def _read_requested_options(sets: Sets, set_id: str) -> PlanningOptions:
    """Return how a set is planned, as requested when it was submitted."""
    return read_stored_options(json.loads(sets.text(set_id, "options")))


def _list_done(
    store: Store, catalog: Catalog, workflow_set: WorkflowSet, set_id: str, which: TasksToRun
) -> tuple[Done, ...]:
    """Return the tasks of a set that need not run again."""
    runs = [] if which.everything else runs_of_set(store, set_id)
    if not runs:
        return ()
    owner = _find_owner(Sets(store.engine), set_id)
    account = AccessControl(store.engine).account_of(owner)
    done = find_up_to_date(workflow_set, catalog, runs, account)
    return exclude_tasks(done, workflow_set, which.again)


def check_tasks(url: str, set_id: str, names: Sequence[str]) -> None:
    """Raise InputError for a name that no task of a set has."""
    with Store(url) as store:
        workflow_set = _read_requested_set(Sets(store.engine), set_id)
    try:
        exclude_tasks((), workflow_set, names)
    except InputError as error:
        raise InputError(error.what, where="tasks") from error


def tasks_of_set(url: str, set_id: str) -> dict[str, frozenset[str]]:
    """Return workflow → its tasks, of a planned set; equal workflows share them."""
    with Store(url) as store:
        archived = Sets(store.engine).archived(set_id)
    if archived is None:
        raise InputError(f"set '{set_id}' has no plan", where="set")
    workflows = archived[1].workflow_set.workflows
    names = {id(w.tasks): frozenset(w.tasks) for w in workflows}
    return {w.name: names[id(w.tasks)] for w in workflows}


def run_set(
    store: Store,
    catalog: Catalog,
    run_id: str,
    alarms: AlarmSettings = AT_TERMINAL,
    outside: OutsideEngine | None = None,
) -> None:
    """Run a run from its current state; its outcome is stored, also an error. A manager that has
    it is waited for: that of a service that was killed ends a moment later."""
    has_waited = False
    while (row := store.get_run(run_id)).state in GOES_ON:  # else its last manager has ended it
        try:
            _carry_on(store, catalog, row, alarms, outside)
        except ManagedElsewhere as error:
            if not has_waited:
                _log.warning("%s; waiting for its end", error.what)
            has_waited = True
            time.sleep(_PAUSE_S)
        else:
            return


def _carry_on(
    store: Store,
    catalog: Catalog,
    row: RunRow,
    alarms: AlarmSettings,
    outside: OutsideEngine | None,
) -> None:
    run_id, record = row.id, RunRecord(store.engine, row.id)
    try:
        if record.begun():
            taken = take_over(store, record)
            go_on(store, record, taken, outside=outside, alarms=alarms)
        else:
            _begin(store, record, catalog, alarms, outside)
    except (DatabaseLost, LeaseExpired, ManagedElsewhere):  # it resumes later
        raise
    except LeaseLost as error:
        _log.warning("%s", error)
    except VgradsError as error:
        gantt = json.loads(Sets(store.engine).text(row.set_id, "gantt"))
        store.end_run(run_id, "failed", {"reason": str(error)}, gantt)


def _begin(
    store: Store,
    record: RunRecord,
    catalog: Catalog,
    alarms: AlarmSettings,
    outside: OutsideEngine | None,
) -> None:
    row = store.get_run(record.run_id)
    how = json.loads(row.how)
    sets = Sets(store.engine)
    everything = bool(how.get("rerun")) or outside is not None
    which = TasksToRun(everything, tuple(how.get("again", ())))
    planned = _load_plan(store, catalog, row.set_id, which)
    planned = with_owner_rules(store, _find_owner(sets, row.set_id), planned)
    if not planned.plan.feasible:
        raise InputError(f"cannot be promised any more: {planned.plan.lacking}", where=row.set_id)
    set_folder(row.set_id).mkdir(parents=True, exist_ok=True)
    head = sets.head(row.set_id)
    options = RunOptions(
        run_id=record.run_id,
        folder=run_folder(record.run_id),
        speed=how.get("speed"),
        seed=_read_requested_options(sets, row.set_id).seed,
        replan=how.get("replan", True),
        account=AccessControl(store.engine).account_of(head.owner) if head else 0,
    )

    issue_run(store, record.run_id, planned)

    def work() -> RunOutcome:
        return run_plan(planned, options, record, outside=outside)

    carry_out(store, record, json.loads(sets.text(row.set_id, "gantt")), work, alarms)


def _load_plan(store: Store, catalog: Catalog, set_id: str, which: TasksToRun) -> Planned:
    """Return the stored plan; recomputed where real sites have changed since, where other tasks are
    done by now, or where it cannot be read."""
    sets, result = Sets(store.engine), None
    if _is_fresh(sets.head(set_id)):
        with suppress(InputError):  # written by another version of vgrads
            result = sets.archived(set_id)
    if result is None or result[0].done != _list_done(
        store, catalog, _read_requested_set(sets, set_id), set_id, which
    ):
        plan_stored_set(store, catalog, set_id, which)
        result = sets.archived(set_id)
    if result is None:
        raise InputError("could not be planned", where=set_id)
    plan, snapshot = result
    # the home may have been moved since
    workflow_set = replace(snapshot.workflow_set, directory=str(set_folder(set_id)))
    snapshot = replace(snapshot, workflow_set=workflow_set)
    context = _make_context(store, catalog, _find_owner(sets, set_id))
    grid = open_sites(_read_requested_options(sets, set_id), context)
    return Planned(workflow_set=snapshot.workflow_set, grid=grid, snapshot=snapshot, plan=plan)


def _is_fresh(head: Head | None) -> bool:
    return head is not None and (not head.real or time.time() - head.planned_s < FRESH_S)


def _find_owner(sets: Sets, set_id: str) -> str:
    head = sets.head(set_id)
    return head.owner if head else OPERATOR


def what_if_in_child(
    url: str, catalog: Catalog, of_set: tuple[str, str, str], wishes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the promise for a set (id, document, owner) with other options: a summary of its plan,
    or the missing resources. The search begins with the set's own plan too: who asks for less is
    not promised less."""
    set_id, text, owner = of_set
    changed = json.loads(text) | wishes
    if "fraction" in wishes:
        # a set may state only one of both
        changed["at_least"] = None
    workflow_set = workflow_set_of(validate(SetDocument, changed, "wishes"))
    with Store(url) as store:
        options = _read_requested_options(Sets(store.engine), set_id)
        grid = open_sites(options, _make_context(store, catalog, owner))
        archived = None
        with suppress(InputError):  # written by another version of vgrads
            archived = Sets(store.engine).archived(set_id)
    own = [archived[0]] if archived else []
    if options.probability is not None and "probability" not in wishes:
        workflow_set = replace(workflow_set, probability=options.probability)
    plan = _plan_briefly(workflow_set, grid, options, relax=False, others=own)
    return summary_of(plan_json(plan))


def promise_in_child(
    url: str, catalog: Catalog, owner: str, written: tuple[bytes, Mapping[str, Any]], most: int
) -> dict[str, Any]:
    """Return the promise for a set that is not submitted: a summary of its brief plan, with the
    changes that meet the request where it falls short, and its number of ``workflows``.

    ``written``: the text (YAML) and values instead of its own, see :func:`check_set`; ``most``:
    tasks.
    """
    checked_set = check_set(written[0], "yaml", most, written[1])
    document = SetDocument.model_validate(json.loads(checked_set.text))
    workflow_set = workflow_set_of(document)
    with Store(url) as store:
        grid = open_sites(USUAL_OPTIONS, _make_context(store, catalog, owner))
    plan = _plan_briefly(workflow_set, grid, USUAL_OPTIONS)
    summary = summary_of(plan_json(plan), workflow_set.budget_usd)
    return summary | {"workflows": len(workflow_set.workflows)}


def _plan_briefly(
    workflow_set: WorkflowSet,
    grid: GridSnapshot,
    options: PlanningOptions,
    relax: bool = True,
    others: Sequence[Plan] = (),
) -> Plan:
    """Return the plan that a page shows while somebody waits for it. ``relax``: also look for
    changes that meet the request where it falls short; ``others``: as :func:`plan_set`."""
    usual = make_planner_options(options)
    briefly = replace(usual, effort=min(usual.effort, _AT_A_GLANCE), relax=relax)
    return plan_set(workflow_set, grid, options.seed, briefly, others=others).plan
