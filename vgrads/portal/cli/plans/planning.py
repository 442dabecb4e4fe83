"""Planning from the command line: reads files, writes charts and rows."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from vgrads.api.config import planning_effort
from vgrads.api.plans.answers import plan_json, planned_gantt
from vgrads.api.plans.planning import Planned, notes_of, open_grid, plan_set
from vgrads.api.plans.runtimes import NOTHING
from vgrads.api.plans.runtimes import describe_basis as guesses
from vgrads.api.plans.set_files import NO_OVERRIDES, SetOverrides, load_set
from vgrads.api.plans.up_to_date import up_to_date, without_tasks
from vgrads.api.queues.history_files import Instant
from vgrads.api.queues.log_queues import changed_defaults
from vgrads.api.queues.start_estimate_prior import describe_priors, refusals
from vgrads.kernel.documents import load_mapping
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import parse_probability
from vgrads.planner.explain import explain
from vgrads.planner.make import Options
from vgrads.planner.policies import check_rule, make_pipeline
from vgrads.portal.cli.terminal import busy, console, print_notes, print_warnings
from vgrads.portal.jobs.forecasts.plans import issue_plan
from vgrads.portal.records.reading.earlier_runs import runs_of_name
from vgrads.portal.records.reading.learned_since import with_learned_note
from vgrads.portal.records.reading.runtimes import past_run_times
from vgrads.portal.records.reading.sites import choose_catalog, is_this_machine, past_acquisitions
from vgrads.vgrid.catalog import Catalog
from vgrads.workflows.sets import WorkflowSet


def options_of(policy: str = "vgrads", rule: str = "joint", effort: float | None = None) -> Options:
    """Return the options of planning; ``effort``: as the environment states unless given."""
    effort = planning_effort() if effort is None else effort
    return Options(policy=policy, probability=rule, effort=effort)


@dataclass(frozen=True, kw_only=True)
class HowToPlan:
    """Options of a plan. ``learned``: correct the sites' descriptions by observations of earlier
    runs; ``probability``: required probability of the promise, in place of the set's; ``rerun``:
    plan also tasks that are already done; ``again``: plan these, and those that depend on them."""

    seed: int = 0
    learned: bool = True
    options: Options = field(default_factory=options_of)
    probability: float | None = None
    rerun: bool = False
    again: tuple[str, ...] = ()


def level_of(text: str | None) -> float | None:
    """Parse the required probability of a promise. Raise InputError for an invalid one."""
    if text is None:
        return None
    if text in ("joint", "paper"):
        raise InputError(
            "must be a number",
            where="--probability",
            fix=f"to select the rule, use --promise-model {text}",
        )
    return parse_probability(text, "--probability")


def overrides_of(
    deadline: str | None,
    inputs: Path | None,
    targets: Sequence[str] | None,
    config: Sequence[str] | None,
    sites: Path | None,
) -> SetOverrides:
    """Return what options say in addition to a set's file. On this machine threads of Snakemake's
    rules are limited to its cores, as ``snakemake --cores`` limits them."""
    return SetOverrides(
        deadline=deadline,
        inputs=inputs,
        targets=tuple(targets or ()),
        config=tuple(config or ()),
        cores=os.cpu_count() if is_this_machine(sites) else None,
    )


def plan_file(
    set_file: Path,
    sites: Path | None,
    at: Instant,
    how: HowToPlan,
    overrides: SetOverrides = NO_OVERRIDES,
) -> Planned:
    """Plan the set in a file for the sites given, named by the set, of the database, or embedded.

    ``overrides``: options that override the file; with a deadline the file may be a workflow's.

    InputError for an unknown planning policy or rule is raised before any file is read.
    """
    make_pipeline(how.options.policy)
    check_rule(how.options.probability)
    with busy(console(stderr=True), f"reading {set_file}"):
        workflow_set, named = load_set(set_file, overrides=overrides)
    if how.probability is not None:
        workflow_set = replace(workflow_set, probability=how.probability)
    file = sites or (Path(named) if named else None)
    return plan_here(workflow_set, choose_catalog(file), file, at, how)


def plan_here(
    workflow_set: WorkflowSet, catalog: Catalog, file: Path | None, at: Instant, how: HowToPlan
) -> Planned:
    """Plan a set, show progress, print warnings. ``file``: of the sites, for these warnings."""
    out = console(stderr=True)
    with busy(out, "planning") as doing:
        observed = past_acquisitions() if how.learned else ()
        run_times = past_run_times() if how.learned else NOTHING
        grid = open_grid(catalog, at, notify=doing, observed=observed, run_times=run_times)
        doing("looking for tasks that are up to date")
        done = (
            () if how.rerun else up_to_date(workflow_set, catalog, runs_of_name(workflow_set.name))
        )
        done = without_tasks(done, workflow_set, how.again)
        doing("planning")
        planned = issue_plan(plan_set(workflow_set, grid, how.seed, how.options, done))
        planned = with_learned_note(planned) if how.learned else planned
    print_warnings(out, dict.fromkeys(w for log in grid.logs.values() for w in log.warnings))
    print_warnings(out, changed_defaults(catalog))
    print_warnings(out, describe_priors(grid.words, file))
    print_warnings(out, guesses(planned.plan.run_times))
    of_files = notes_of(workflow_set)
    print_notes(out, [note for note in planned.plan.notes if note in of_files])
    print_warnings(out, [note for note in planned.plan.notes if note not in of_files])
    if planned.plan.feasible:
        print_warnings(out, refusals(grid.words))
    return planned


def explain_task(plan: str, task: str) -> dict[str, Any]:
    """Explain the placement of a task: of a plan's JSON file, or a set or run of the database."""
    file = Path(plan)
    if file.is_file():
        document = load_mapping(file)
    else:
        from vgrads.portal.records.store import Store

        with Store() as store:
            set_id = store.get_run(plan).set_id if plan.startswith("run-") else plan
            row = store.get_set(set_id)
        if row is None:
            raise InputError(f"no file, set or run is named '{plan}'", where="PLAN")
        document = json.loads(row.plan)
    if "placements" not in document or "slots" not in document:
        raise InputError("is not a plan; write one with 'vgrads plan SET --json'", where=plan)
    return explain(document, task)


def run_study(name: str, arguments: Sequence[str]) -> None:
    """Run an installed study by name; without a name, or with a wrong one, list them."""
    existing = {point.name: point for point in entry_points(group="vgrads.studies")}
    if name in ("--help", "-h"):
        console().print(
            f"vgrads study NAME [options]; studies: {', '.join(sorted(existing))}. "
            "Each has --help.",
            highlight=False,
        )
        return
    if name not in existing:
        raise InputError(
            f"unknown study '{name}'",
            where="NAME",
            fix=f"choose one of {', '.join(sorted(existing))}",
        )
    existing[name].load()(list(arguments))


def write_gantt(path: Path, planned: Planned) -> None:
    """Write the chart of a plan."""
    from vgrads.portal.charts.exports import reasons_of, write_chart

    reasons = reasons_of(plan_json(planned.plan))
    write_chart(path, planned_gantt(planned), "Planned, not run.", reasons)


def draw_run(run_id: str, path: Path) -> None:
    """Draw the chart of a run in the database."""
    from vgrads.portal.charts.exports import reasons_of, write_chart
    from vgrads.portal.records.store import Store

    with Store() as store:
        row = store.get_run(run_id)
        planned = store.get_set(row.set_id)
    gantt = json.loads(row.gantt)
    if not gantt:
        raise InputError(f"run '{run_id}' has no chart yet; its state is {row.state}")
    reasons = reasons_of(json.loads(planned.plan)) if planned else None
    write_chart(path, gantt, f"The promise was {row.state}.", reasons)
