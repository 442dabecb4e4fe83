"""What a service does in the background, each in a process of its own: plan a set, carry a run out.

Everything goes through the database, so that whoever takes the work after a crash finds what there
was.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

from vgrads.api.config import embedded_data, run_folder, set_folder
from vgrads.api.plans.answers import plan_json
from vgrads.api.plans.execution import Outcome, RunOptions, run_plan
from vgrads.api.plans.planning import Grid, Planned, open_grid, plan_set, take_snapshot
from vgrads.api.plans.up_to_date import up_to_date
from vgrads.execmgr.core.journal import LeaseExpired, LeaseLost
from vgrads.execmgr.engines.outside import OutsideEngine
from vgrads.kernel.documents import parse_mapping, validate, validate_field
from vgrads.kernel.errors import InputError, VgradsError
from vgrads.planner.make import make_plan
from vgrads.planner.plan import Done
from vgrads.portal.jobs.beside import clean_environment
from vgrads.portal.jobs.runs import carry_out, go_on, take_over
from vgrads.portal.records.earlier import runs_of_set
from vgrads.portal.records.lease import LEASE_S
from vgrads.portal.records.reconnect import DatabaseLost, await_database
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.runtimes import RunTimeRecords
from vgrads.portal.records.sets import Head, Sets
from vgrads.portal.records.store import GOES_ON, Store, summary_of
from vgrads.vgrid.catalog import Catalog
from vgrads.workflows.dag import Workflow
from vgrads.workflows.formats.load import load_workflow
from vgrads.workflows.runtimes import Runtimes
from vgrads.workflows.sets import SetDocument, WorkflowSet, build_set

_log = logging.getLogger("vgrads.work")
FRESH_S = 300.0
"""A plan for real sites that is older than this is made anew before it is run."""


def be_a_child() -> None:
    """In a process of the service: leave Ctrl-C to the service, and end when it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    clean_environment()
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def warm_in_child(catalog: Catalog) -> None:
    """Learn from all histories of a catalogue; what cannot be read is told to who asks for it."""
    with suppress(VgradsError):
        open_grid(catalog)


def plan_in_child(url: str, catalog: Catalog, set_id: str) -> None:
    """Plan a set of the database at ``url``."""
    _with_store(url, lambda store: plan_one(store, catalog, set_id))


def run_in_child(url: str, catalog: Catalog, run_id: str) -> None:
    """Carry a run of the database at ``url`` out, or go on with it."""
    be_a_child()
    try:
        _with_store(url, lambda store: run_one(store, catalog, run_id))
    except (DatabaseLost, LeaseExpired) as error:  # whoever takes the work next goes on
        _log.error("%s", error)
        sys.exit(error.exit_code)


def _with_store(url: str, work: Callable[[Store], None]) -> None:
    """Do what may be done twice; a database that is lost meanwhile is waited for."""

    def once(_: bool) -> None:
        with Store(url) as store:
            work(store)

    end_s = time.monotonic() + LEASE_S
    await_database(once, lambda: end_s)


def wanted_of(document: SetDocument, folder: Path | None = None) -> WorkflowSet:
    """The set behind a document that came from outside: it may name only workflows that ship with
    vgrads.

    ``folder``: where the files of its tasks lie beside it; there are none but what is put there for
    it.
    """
    return build_set(document, _shipped_workflow, "body", directory=str(folder or ""))


@dataclass(frozen=True, slots=True)
class CheckedSet:
    """A set that came from outside, read, checked and written down as it is kept."""

    name: str
    text: str

    @property
    def digest(self) -> str:
        """Tells it from every other."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def check_set(body: bytes, kind: str, most_tasks: int) -> CheckedSet:
    """Read a set (``kind``: json or yaml) from outside; InputError names the field. Takes a while
    where it is large."""
    try:
        given = parse_mapping(body.decode(), "body", kind)
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8 text", where="body") from error
    if kind == "yaml":
        given.pop("sites", None)  # of the file's own place; the service has its own
    return check_document(given, most_tasks)


def check_document(given: Mapping[str, Any], most_tasks: int) -> CheckedSet:
    """The same for what has been read already."""
    document = validate_field(SetDocument, given)
    wanted = wanted_of(document)
    if sum(len(w.tasks) for w in wanted.workflows) > most_tasks:
        raise InputError(f"more than {most_tasks} tasks", where="workflows")
    return CheckedSet(document.name, json.dumps(document.model_dump(mode="json", by_alias=True)))


def _shipped_workflow(file: str, runtimes: Runtimes, inputs: str | None) -> Workflow:
    names = sorted(p.name for p in embedded_data().glob("*.json"))
    if file not in names:
        raise InputError(
            f"'{file}' is not served here", where="workflows.file", fix=f"known: {', '.join(names)}"
        )
    if inputs is not None:
        raise InputError("names a file, and none is served here", where="workflows.inputs")
    return load_workflow(embedded_data() / file, runtimes)


def _grid(store: Store, catalog: Catalog) -> Grid:
    """What the histories say; where a file of one lies is told to the log, not to users."""
    try:
        known = RunTimeRecords(store.engine).learned()
        return open_grid(catalog, seen=store.acquisitions(), run_times=known)
    except InputError as error:
        _log.exception("a history cannot be read")
        raise InputError(
            "the history of a queue cannot be read; the service's log says which", where="sites"
        ) from error


def plan_one(store: Store, catalog: Catalog, set_id: str, everything: bool = False) -> None:
    """Plan what is left of a set, or ``everything``, and keep the plan; what is wrong with the set
    is kept with it."""
    sets = Sets(store.engine)
    try:
        done = _done_already(store, catalog, set_id, everything)
        planned = plan_set(_asked(sets, set_id), _grid(store, catalog), done=done)
    except DatabaseLost:  # nothing is wrong with the set
        raise
    except VgradsError as error:
        sets.fail(set_id, str(error))
        return
    sets.put_plan(set_id, planned.plan, planned.snapshot)


def _asked(sets: Sets, set_id: str) -> WorkflowSet:
    document = SetDocument.model_validate(json.loads(sets.text(set_id, "document")))
    return wanted_of(document, set_folder(set_id))


def _done_already(
    store: Store, catalog: Catalog, set_id: str, everything: bool
) -> tuple[Done, ...]:
    """The tasks of a set that need not run again; with ``everything`` none."""
    runs = [] if everything else runs_of_set(store, set_id)
    return up_to_date(_asked(Sets(store.engine), set_id), catalog, runs) if runs else ()


def run_one(
    store: Store, catalog: Catalog, run_id: str, outside: OutsideEngine | None = None
) -> None:
    """Carry a run out, from where it stands; its end is kept, also one that is an error."""
    record = RunRecord(store.engine, run_id)
    row = store.get_run(run_id)
    if row.state not in GOES_ON:
        return  # its last manager died after the end
    try:
        if record.begun():
            go_on(store, record, take_over(store, record), outside=outside)
        else:
            _begin(store, record, catalog, outside)
    except (DatabaseLost, LeaseExpired):  # it goes on when the database is there again
        raise
    except LeaseLost as error:
        _log.warning("%s", error)
    except VgradsError as error:
        gantt = json.loads(Sets(store.engine).text(row.set_id, "gantt"))
        store.end_run(run_id, "failed", {"reason": str(error)}, gantt)


def _begin(
    store: Store, record: RunRecord, catalog: Catalog, outside: OutsideEngine | None
) -> None:
    row = store.get_run(record.run_id)
    how = json.loads(row.how)
    sets = Sets(store.engine)
    everything = bool(how.get("rerun")) or outside is not None
    planned = _planned(store, catalog, row.set_id, everything)
    if not planned.plan.feasible:
        raise InputError(f"cannot be promised any more: {planned.plan.lacking}", where=row.set_id)
    set_folder(row.set_id).mkdir(parents=True, exist_ok=True)
    options = RunOptions(
        run_id=record.run_id,
        folder=run_folder(record.run_id),
        speed=how.get("speed"),
        seed=how.get("seed", 0),
    )

    def work() -> Outcome:
        return run_plan(planned, options, record, outside=outside)

    carry_out(store, record, json.loads(sets.text(row.set_id, "gantt")), work)


def _planned(store: Store, catalog: Catalog, set_id: str, everything: bool) -> Planned:
    """The plan as it was shown; made anew where real sites have moved on since, where other tasks
    are done by now, or where it cannot be read."""
    sets, found = Sets(store.engine), None
    if _fresh(sets.head(set_id)):
        with suppress(InputError):  # another version of vgrads wrote it
            found = sets.archived(set_id)
    if found is None or found[0].done != _done_already(store, catalog, set_id, everything):
        plan_one(store, catalog, set_id, everything)
        found = sets.archived(set_id)
    if found is None:
        raise InputError("could not be planned", where=set_id)
    plan, snapshot = found
    wanted = replace(snapshot.wanted, directory=str(set_folder(set_id)))  # 0.1 kept another one
    snapshot = replace(snapshot, wanted=wanted)
    grid = _grid(store, catalog)
    return Planned(wanted=snapshot.wanted, grid=grid, snapshot=snapshot, plan=plan)


def _fresh(head: Head | None) -> bool:
    return head is not None and (not head.real or time.time() - head.planned_s < FRESH_S)


def usable(catalog: Catalog, granted: frozenset[str]) -> tuple[Catalog, bool]:
    """The sites that a user's sets are planned for, and whether these are real ones.

    Those that the operator opened for the user; else the simulated ones; where there are none, all:
    such a plan can be looked at, and run by an outside engine where that asks nothing of others'
    machines.
    """
    opened = tuple(s for s in catalog.sites if s.name in granted and s.driver != "simulated")
    simulated = tuple(s for s in catalog.sites if s.driver == "simulated")
    chosen = opened or simulated or catalog.sites
    return replace(catalog, sites=chosen), chosen is not simulated


def what_if_in_child(
    url: str, catalog: Catalog, text: str, wishes: Mapping[str, Any]
) -> dict[str, Any]:
    """What would be promised for a set with other wishes: its plan in short, or what is lacking."""
    changed = json.loads(text) | wishes
    if "fraction" in wishes:
        changed["at_least"] = None
    wanted = wanted_of(validate(SetDocument, changed, "wishes"))
    with Store(url) as store:
        grid = _grid(store, catalog)
    plan = make_plan(take_snapshot(wanted, grid, seed=0))
    return summary_of(plan_json(plan))
