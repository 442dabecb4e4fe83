"""Changes of the request of a run that goes on: what they would promise, and their messages."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from vgrads.kernel.deadline import parse_deadline
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import needed_of, parse_fraction
from vgrads.portal.jobs.run_clock import elapsed_s, started_at
from vgrads.portal.records.mailbox import MessageBox
from vgrads.portal.records.reading.run_rows import GOES_ON, InapplicableError
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import RunRow

if TYPE_CHECKING:
    from sqlalchemy import Engine as SqlEngine

    from vgrads.api.plans.execution import StartedRun
    from vgrads.execmgr.core.execution_plan import ExecutionPlan
    from vgrads.execmgr.core.states import RequestChange, RunState
    from vgrads.operations.runs.requests import ChangeRequest

Json = dict[str, Any]


def core_change(
    request: ChangeRequest, execution: ExecutionPlan, now_s: float, by: str = ""
) -> RequestChange:
    """Return a requested change on the clock of its run, which shows ``now_s``; InputError for
    one that changes nothing, or that cannot be read."""
    from vgrads.execmgr.core.states import RequestChange

    deadline_s = needed = None
    if request.deadline is not None:
        deadline_s = now_s + parse_deadline(request.deadline, datetime.now(UTC), "deadline")
    if request.at_least is not None:
        count = len(execution.snapshot.workflow_set.workflows)
        digits = request.at_least.strip().isdigit()
        share = 1.0 if digits else parse_fraction(request.at_least, "at-least")
        needed = int(request.at_least) if digits else needed_of(share, count)
    change = RequestChange(
        deadline_s=deadline_s,
        needed=needed,
        budget_usd=request.budget,
        probability=request.probability,
        add_sites=request.add_sites,
        drop_sites=request.drop_sites,
        by=by,
    )
    if change == RequestChange(by=by):
        raise InputError(
            "nothing is to be changed", fix="name a deadline, number, budget, probability or site"
        )
    return change


def preview_change(url: str, run_id: str, request: ChangeRequest, by: str = "") -> Json:
    """Return what a run promises now, and what it would promise for a changed request; nothing is
    stored. InputError for a change that is refused."""
    from vgrads.api.plans.execution import plan_change_of
    from vgrads.execmgr.core.remainder import compute_current_promise

    with Store(url) as store:
        row = store.get_run(run_id)
        begun = _load_started(store, row)
        execution, state = begun.executions[begun.state.version], begun.state
        change = core_change(request, execution, state.now_s, by)
        changed = plan_change_of(begun, change)
    if changed.refused:
        raise InputError(changed.refused, where=run_id)
    # not the manager's last one, which may be a minute old: a falling promise would look higher
    now = compute_current_promise(execution, state).probability
    plan = (changed.execution or execution).plan
    return {
        "run": run_id,
        "change": asdict(change),
        "before": _describe_request(row, execution, now),
        "after": _describe_request(row, changed.execution or execution, changed.promise),
        "cost_usd": plan.cost_usd,
    }


def _describe_request(row: RunRow, execution: ExecutionPlan, promise: float | None) -> Json:
    plan = execution.plan
    due = started_at(row).timestamp() + plan.deadline_s
    return {
        "due": datetime.fromtimestamp(due, UTC).isoformat(),
        "deadline_s": plan.deadline_s,
        "needed": plan.needed,
        "probability": plan.requested_probability,
        "budget_usd": execution.snapshot.workflow_set.budget_usd,
        "promise": promise,
    }


def request_history(store: Store, row: RunRow, state: RunState) -> list[Json]:
    """Return what a run had to keep from its start on, and each change, refused ones with their
    reasons."""
    # imported late: the service starts without what runs are made of
    from vgrads.portal.records.run_record import RunRecord

    first = RunRecord(store.engine, row.id).executions()[0]
    start = _describe_request(row, first, first.plan.promise.probability)
    history = [{"at_s": 0.0, **start, "by": "", "refused": ""}]
    began_s = started_at(row).timestamp()
    for record in state.requests:
        entry = record._asdict()
        entry["due"] = datetime.fromtimestamp(began_s + record.deadline_s, UTC).isoformat()
        # a number that only the manager of the run needs
        entry.pop("message")
        history.append(entry)
    return history


def refuse_ended(run: RunRow) -> None:
    """Raise InapplicableError for a run that has ended."""
    if run.state not in GOES_ON:
        raise InapplicableError(f"run '{run.id}' has ended: its request cannot be changed")


def send_change(store: Store, run_id: str, change: RequestChange) -> int:
    """Send a change to a run's manager, now or when there is one; return the message's number.
    InapplicableError where the run has ended, also since it was last looked at."""
    refuse_ended(store.get_run(run_id))
    return MessageBox(store.engine, run_id).send({"kind": "change", "change": asdict(change)})


def _load_started(store: Store, row: RunRow) -> StartedRun:
    """Return a run as its journal has it, on its clock now."""
    from vgrads.api.plans.execution import is_simulated

    begun = stored_run(store.engine, row.id)
    now_s = elapsed_s(row, begun.state, is_simulated(begun.executions[0], begun.setup.catalog))
    return replace(begun, state=begun.state._replace(now_s=now_s))


def stored_run(engine: SqlEngine, run_id: str) -> StartedRun:
    """Return a run as its journal has it. InputError where it has not started yet."""
    from vgrads.api.plans.execution import StartedRun
    from vgrads.execmgr.core.journal import fold
    from vgrads.portal.records.acquisitions import newest_acquisitions
    from vgrads.portal.records.engine_reader import EngineReader
    from vgrads.portal.records.reading.runs import RunReader
    from vgrads.portal.records.runtimes import RunTimeRecords

    reader = EngineReader(engine)
    stored = RunReader(reader, run_id)
    executions = stored.executions()
    if not executions:
        raise InputError(f"run '{run_id}' has not started yet")
    return StartedRun(
        setup=stored.setup(),
        executions=executions,
        state=fold(executions, stored.events()),
        observed=newest_acquisitions(reader),
        run_times=RunTimeRecords.of_run(engine, run_id).learned(),
    )
