"""Pilot runs from the command line: started, reported, learned from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vgrads.api.plans.answers import plan_json
from vgrads.api.plans.execution import RunOutcome
from vgrads.api.plans.pilot_set import make_pilot_set
from vgrads.api.plans.pilots import choose_pilots_to_start
from vgrads.api.plans.planning import Planned
from vgrads.kernel.errors import InputError
from vgrads.operations.plans.planning import make_planner_options
from vgrads.operations.plans.requests import PlanningOptions
from vgrads.portal.cli.plans import planning, running
from vgrads.portal.cli.plans.plan_text import print_started
from vgrads.portal.cli.terminal import console

Json = dict[str, Any]
_SIMULATED = "all sites are simulated, so nothing would be learned"


def run_pilots(planned: Planned, options: PlanningOptions, as_json: bool) -> Json:
    """Run the pilots of a set that can be started, as an ordinary run with its own folder, whose
    end adds their run times to the database. Failures are reported; what is interrupted ends the
    command.

    Return the pilots, each with its state, and the promise before.
    """
    chosen, left = choose_pilots_to_start(planned, options.seed, make_planner_options(options))
    states = _run(planned, chosen, options, as_json) if chosen else []
    left = [item | {"state": "not started"} for item in left]
    if not as_json:
        print_started(console(), [*states, *left])
    return {"pilots": [*states, *left], "promise_before": plan_json(planned.plan)["promise"]}


def _run(
    planned: Planned, chosen: list[Json], options: PlanningOptions, as_json: bool
) -> list[Json]:
    catalog, own = planned.grid.catalog, PlanningOptions(seed=options.seed, at=options.at)
    if all(site.driver == "simulated" for site in catalog.sites):
        return _add_state(chosen, "not started", _SIMULATED)
    try:
        trial = planning.plan_here(make_pilot_set(planned, chosen), catalog, None, own)
        if not trial.plan.feasible:
            return _add_state(chosen, "not started", trial.plan.lacking)
        choices = running.RunChoices(
            speed=None,
            seed=own.seed,
            gantt=None,
            folder=None,
            as_json=False,
            at=own.at,
            quiet=as_json,
        )
        outcome = running.run_here(trial, choices)
    except InputError as error:
        return _add_state(chosen, "not started", str(error))
    return _list_results(trial, chosen, outcome)


def _list_results(trial: Planned, chosen: Iterable[Json], outcome: RunOutcome) -> list[Json]:
    names = [workflow.name for workflow in trial.workflow_set.workflows]
    return [
        item
        | (
            {"state": "done", "reason": ""}
            if name in outcome.done
            else {"state": "cancelled" if outcome.state.cancelled else "failed", "reason": ""}
        )
        for name, item in zip(names, chosen, strict=True)
    ]


def _add_state(chosen: Iterable[Json], state: str, reason: str) -> list[Json]:
    return [item | {"state": state, "reason": reason} for item in chosen]
