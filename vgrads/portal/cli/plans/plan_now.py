"""``vgrads plan``: plan a set, with pilot runs if requested, and print the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgrads.api.plans.answers import plan_json
from vgrads.api.plans.pilots import pilots
from vgrads.api.plans.planning import Planned
from vgrads.api.plans.refusals import infeasible
from vgrads.api.plans.set_files import SetOverrides
from vgrads.api.queues.history_files import Instant
from vgrads.kernel.errors import InputError
from vgrads.portal.cli.options import answer_with
from vgrads.portal.cli.plans import planning
from vgrads.portal.cli.plans.plan_text import print_change, print_pilots, print_plan
from vgrads.portal.cli.terminal import busy, console

_BELOW_REQUEST = 3


@dataclass(frozen=True, kw_only=True)
class PlanChoices:
    """Options of ``vgrads plan``. ``strict``: a promise below the requested probability is an
    error; ``calibrate``: list pilot runs; ``run_pilots``: run them and plan again."""

    set_file: Path
    sites: Path | None
    at: Instant
    overrides: SetOverrides
    how: planning.HowToPlan
    gantt: Path | None = None
    strict: bool = False
    calibrate: bool = False
    run_pilots: bool = False
    as_json: bool = False


def plan_now(choices: PlanChoices) -> int:
    """Plan, print, return the exit code. Raise InfeasibleError where no plan is possible."""
    if choices.run_pilots and not choices.how.learned:
        raise InputError("ignores what pilots measure", where="--as-stated")
    planned, started = _plan(choices), None
    if choices.run_pilots:
        from vgrads.portal.cli.plans import pilot_runs  # noqa: PLC0415 late: few plans have any

        started = pilot_runs.run_pilots(planned, choices.how, choices.at, choices.as_json)
        planned = _plan(choices)
    tried = _pilots(planned, choices)
    if choices.gantt:
        planning.write_gantt(choices.gantt, planned)
    payload = plan_json(planned.plan) | ({} if tried is None else {"pilots": tried})
    answer_with(choices.as_json, payload | (started or {}), lambda: _print(planned, tried, started))
    if not planned.plan.feasible:
        raise infeasible(planned.plan, str(choices.set_file))
    return _BELOW_REQUEST if choices.strict and not planned.plan.meets_request else 0


def _plan(choices: PlanChoices) -> Planned:
    return planning.plan_file(
        choices.set_file, choices.sites, choices.at, choices.how, choices.overrides
    )


def _pilots(planned: Planned, choices: PlanChoices) -> list[dict[str, Any]] | None:
    if not choices.calibrate or choices.run_pilots:
        return None
    with busy(console(stderr=True), "comparing pilot runs"):
        return list(pilots(planned, choices.how.seed, choices.how.options))


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
