"""``vgrads plan``: plan a set, with pilot runs if requested, and print the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vgrads.api.plans.answers import plan_json
from vgrads.api.plans.pilots import pilots
from vgrads.api.plans.planning import Planned
from vgrads.api.plans.refusals import make_infeasible_error
from vgrads.kernel.errors import InputError
from vgrads.operations.plans.planning import make_planner_options
from vgrads.operations.plans.requests import PlanRequest
from vgrads.portal.cli.options import answer_with
from vgrads.portal.cli.plans import planning
from vgrads.portal.cli.plans.outputs import PlanOutput
from vgrads.portal.cli.plans.plan_text import print_change, print_pilots, print_plan
from vgrads.portal.cli.terminal import busy, console

_BELOW_REQUEST = 3


def plan_now(request: PlanRequest, output: PlanOutput) -> int:
    """Plan, print, return the exit code. Raise InfeasibleError where no plan is possible."""
    if request.run_pilots and request.as_stated:
        raise InputError("ignores what pilots measure", where="as_stated")
    planned, started = planning.plan_file(request), None
    if request.run_pilots:
        from vgrads.portal.cli.plans import pilot_runs  # noqa: PLC0415 late: few plans have any

        started = pilot_runs.run_pilots(planned, request, output.as_json)
        planned = planning.plan_file(request)
    tried = _choose_pilots(planned, request)
    if output.gantt:
        planning.write_gantt(output.gantt, planned)
    payload = plan_json(planned.plan) | ({} if tried is None else {"pilots": tried})
    answer_with(output.as_json, payload | (started or {}), lambda: _print(planned, tried, started))
    if not planned.plan.feasible:
        raise make_infeasible_error(planned.plan, str(request.set_file))
    return _BELOW_REQUEST if output.strict and not planned.plan.meets_request else 0


def _choose_pilots(planned: Planned, request: PlanRequest) -> list[dict[str, Any]] | None:
    if not request.calibrate or request.run_pilots:
        return None
    with busy(console(stderr=True), "comparing pilot runs"):
        return list(pilots(planned, request.seed, make_planner_options(request)))


def _print(
    planned: Planned,
    tried: Sequence[Mapping[str, Any]] | None,
    started: Mapping[str, Any] | None,
) -> None:
    out = console()
    print_plan(out, planned.plan)
    if tried is not None:
        print_pilots(out, tried)
    if started is not None:
        print_change(out, started["promise_before"], planned.plan)
