"""Planning from the command line: reads files, writes charts and rows."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from vgrads.api.plans.answers import plan_json, planned_gantt
from vgrads.api.plans.planning import Planned, list_notes
from vgrads.api.plans.runtimes import describe_basis as guesses
from vgrads.api.plans.set_files import load_set
from vgrads.api.plans.up_to_date import exclude_tasks, find_up_to_date
from vgrads.api.queues.start_estimate_prior import describe_priors, list_refusals
from vgrads.kernel.documents import load_mapping
from vgrads.kernel.errors import InputError
from vgrads.kernel.extras import require
from vgrads.kernel.progress import send_progress
from vgrads.operations.plans.planning import (
    PlanningContext,
    make_planner_options,
    plan_workflow_set,
    set_overrides,
)
from vgrads.operations.plans.requests import PlanningOptions, PlanRequest, RunRequest
from vgrads.planner.explain import explain
from vgrads.planner.plan import Done
from vgrads.portal.cli.terminal import busy, console, print_notes, print_warnings
from vgrads.portal.jobs.forecasts.plans import issue_plan
from vgrads.portal.records.reading.earlier_runs import runs_of_name
from vgrads.portal.records.reading.learned_since import add_learned_note
from vgrads.portal.records.reading.runtimes import read_past_run_times
from vgrads.portal.records.reading.sites import (
    choose_catalog,
    is_this_machine,
    read_past_acquisitions,
)
from vgrads.vgrid.catalog import Catalog
from vgrads.workflows.sets import WorkflowSet


def plan_file(request: PlanRequest | RunRequest) -> Planned:
    """Plan the set in a file for the sites given, named by the set, of the database, or embedded.

    InputError for an unknown planning policy or model is raised before any file is read. On this
    machine threads of Snakemake's rules are limited to its cores, as ``snakemake --cores`` limits
    them.
    """
    make_planner_options(request)
    cores = os.cpu_count() if is_this_machine(request.sites) else None
    with busy(console(stderr=True), f"reading {request.set_file}"):
        workflow_set, named = load_set(request.set_file, overrides=set_overrides(request, cores))
    file = request.sites or (Path(named) if named else None)
    return plan_here(workflow_set, choose_catalog(file), file, request, rerun=request.rerun)


def plan_here(
    workflow_set: WorkflowSet,
    catalog: Catalog,
    file: Path | None,
    options: PlanningOptions,
    rerun: bool = False,
    again: Sequence[str] = (),
) -> Planned:
    """Plan a set, show progress, print warnings. ``file``: of the sites, for these warnings;
    ``rerun``: plan also tasks that are already done; ``again``: plan these, and those that depend
    on them."""

    def find_done(chosen: WorkflowSet) -> tuple[Done, ...]:
        done = () if rerun else find_up_to_date(chosen, catalog, runs_of_name(chosen.name))
        return exclude_tasks(done, chosen, again)

    out = console(stderr=True)
    context = PlanningContext(
        catalog=catalog,
        acquisitions=read_past_acquisitions,
        run_times=read_past_run_times,
        find_done=find_done,
    )
    with busy(out, "planning") as show, send_progress(lambda progress: show(progress.phase)):
        planned = issue_plan(plan_workflow_set(workflow_set, options, context))
        planned = planned if options.as_stated else add_learned_note(planned)
    grid = planned.grid
    print_warnings(out, dict.fromkeys(w for log in grid.logs.values() for w in log.warnings))
    print_warnings(out, describe_priors(grid.words, file))
    print_warnings(out, guesses(planned.plan.run_times))
    of_files = list_notes(workflow_set)
    print_notes(out, [note for note in planned.plan.notes if note in of_files])
    print_warnings(out, [note for note in planned.plan.notes if note not in of_files])
    if planned.plan.feasible:
        print_warnings(out, list_refusals(grid.words))
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
    require("studies", "'vgrads study'")
    studies = {point.name: point for point in entry_points(group="vgrads.studies")}
    if name in ("--help", "-h"):
        console().print(
            f"vgrads study NAME [options]; studies: {', '.join(sorted(studies))}. Each has --help.",
            highlight=False,
        )
        return
    if name not in studies:
        raise InputError(
            f"unknown study '{name}'",
            where="NAME",
            fix=f"choose one of {', '.join(sorted(studies))}",
        )
    studies[name].load()(list(arguments))


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
