"""Runs of plans in this process: no database and no service; Ctrl-C releases all slots."""

from __future__ import annotations

import secrets

from vgrads.api.config import run_folder
from vgrads.api.plans.execution import RunOutcome, run_plan
from vgrads.api.plans.refusals import make_infeasible_error
from vgrads.api.plans.results_folder import exclusive
from vgrads.api.plans.run_setup import RunOptions
from vgrads.execmgr.tasks.folder import make_room
from vgrads.interface.arguments import FileName, path_of
from vgrads.interface.catalogs import Sites
from vgrads.interface.plans import PlanResult, SetSource, plan_source
from vgrads.interface.run_journal import EventCallback, RunJournal
from vgrads.interface.run_results import RunResult, run_result
from vgrads.kernel.errors import InputError
from vgrads.operations.plans.requests import (
    ExecutionOptions,
    PlanningOptions,
    SetFileOptions,
    list_changed_options,
)


def run_source(  # noqa: PLR0913 its requests, and what only Python has
    source: PlanResult | SetSource,
    folder: FileName | None,
    sites: Sites | None,
    on_event: EventCallback | None,
    *,
    execution: ExecutionOptions,
    changes: SetFileOptions,
    options: PlanningOptions,
) -> RunResult:
    """Run a plan or set; the arguments are those of :func:`vgrads.run`."""
    planned = _plan_of(source, sites, changes, options)
    _refuse(planned)
    run_id, chosen = f"run-{secrets.token_hex(5)}", None if folder is None else path_of(folder)
    setup = RunOptions(
        run_id=run_id,
        folder=(chosen or run_folder(run_id)).resolve(),
        speed=execution.speed,
        seed=planned.seed,
        at=planned.at,
        replan=execution.replan,
        own=True,
    )
    journal = RunJournal(on_event)
    # two runs in one folder would mix their results
    with exclusive(chosen, f"folder {chosen}"):
        if chosen is not None:
            make_room(setup.folder, planned.planned.snapshot.workflow_set.workflows)
        outcome = _carry_out(planned, setup, journal)
    return run_result(setup, outcome, journal)


def _carry_out(planned: PlanResult, options: RunOptions, journal: RunJournal) -> RunOutcome:
    """Run to the end; after Ctrl-C nothing is left at the sites."""
    try:
        return run_plan(planned.planned, options, journal, journal.watch)
    except KeyboardInterrupt:
        journal.release_all()
        raise


def _plan_of(
    source: PlanResult | SetSource,
    sites: Sites | None,
    changes: SetFileOptions,
    options: PlanningOptions,
) -> PlanResult:
    if not isinstance(source, PlanResult):
        return plan_source(source, sites, (), changes, options)
    changed = list_changed_options(changes, SetFileOptions) | list_changed_options(
        options, PlanningOptions
    )
    names = [*changed, *([] if sites is None else ["sites"])]
    if names:
        raise InputError(
            "cannot change a plan that is already made; give it to plan", where=", ".join(names)
        )
    return source


def _refuse(planned: PlanResult) -> None:
    if planned.planned.workflow_set.released:
        why = "its tasks are released one by one, which needs a service"
        raise InputError(why, where="released", fix="submit it with vgrads.Client")
    if planned.feasible:
        return
    raise make_infeasible_error(planned.planned.plan, planned.name)
