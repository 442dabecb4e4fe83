"""Runs of plans in this process: no database and no service; Ctrl-C releases all slots."""

from __future__ import annotations

import secrets

from vgrads.api.config import run_folder
from vgrads.api.plans.execution import RunOutcome, run_plan
from vgrads.api.plans.refusals import infeasible
from vgrads.api.plans.results_folder import exclusive
from vgrads.api.plans.run_setup import RunOptions
from vgrads.execmgr.tasks.folder import make_room
from vgrads.interface.arguments import FileName, named_arguments, path_of
from vgrads.interface.catalogs import Sites
from vgrads.interface.plans import PlanResult, SetSource, plan
from vgrads.interface.run_journal import EventCallback, RunJournal
from vgrads.interface.run_results import RunResult, run_result
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import parse_speed


@named_arguments()
def run(
    source: PlanResult | SetSource,
    folder: FileName | None = None,
    speed: float | str = "max",
    *,
    sites: Sites | None = None,
    replan: bool = True,
    on_event: EventCallback | None = None,
) -> RunResult:
    """Run a plan, or plan a set and run it, to the end.

    ``source``: a result of :func:`vgrads.plan`, or a set; ``sites``: of the set, as for
    :func:`vgrads.plan`. ``folder``: for the files of the tasks; by default a new one in the data
    folder of vgrads. ``speed``: of simulated sites: ``"max"``, or virtual seconds in one second.
    ``replan``: plan the remainder again where too few workflows are left. ``on_event``: called with
    each event as a mapping; an exception in it ends the run.

    The run ends with this process: Ctrl-C or an exception releases its slots. A run that outlives
    the process belongs to a service (:class:`vgrads.Client`). InfeasibleError where there is no
    plan.

    >>> import vgrads
    >>> from vgrads.api.config import embedded_data
    >>> result = vgrads.run(vgrads.plan(embedded_data() / "lead.yaml"))
    >>> result.verdict, result.needed, result.in_time
    ('kept', 1, 1)
    """
    planned = _plan_of(source, sites)
    _refuse(planned)
    run_id, chosen = f"run-{secrets.token_hex(5)}", None if folder is None else path_of(folder)
    options = RunOptions(
        run_id=run_id,
        folder=(chosen or run_folder(run_id)).resolve(),
        speed=parse_speed(speed, "speed"),
        seed=planned.seed,
        at=planned.at,
        replan=replan,
        own=True,
    )
    journal = RunJournal(on_event)
    with exclusive(chosen, f"folder {chosen}"):
        if chosen is not None:
            make_room(options.folder, planned.planned.snapshot.workflow_set.workflows)
        outcome = _carry_out(planned, options, journal)
    return run_result(options, outcome, journal)


def _carry_out(planned: PlanResult, options: RunOptions, journal: RunJournal) -> RunOutcome:
    """Run to the end; after Ctrl-C nothing is left at the sites."""
    try:
        return run_plan(planned.planned, options, journal, journal.watch)
    except KeyboardInterrupt:
        journal.release_all()
        raise


def _plan_of(source: PlanResult | SetSource, sites: Sites | None) -> PlanResult:
    if not isinstance(source, PlanResult):
        return plan(source, sites)
    if sites is not None:
        raise InputError(
            "cannot change a plan that is already made; give them to plan", where="sites"
        )
    return source


def _refuse(planned: PlanResult) -> None:
    if planned.planned.workflow_set.released:
        why = "its tasks are released one by one, which needs a service"
        raise InputError(why, where="released", fix="submit it with vgrads.Client")
    if planned.feasible:
        return
    raise infeasible(planned.planned.plan, planned.name)
