"""Plan a workflow set: for commands, Python programs and a service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from vgrads.api.config import read_planning_effort
from vgrads.api.plans.planning import GridSnapshot, Planned, open_grid, plan_set
from vgrads.api.plans.runtimes import NOTHING, RunTimes
from vgrads.api.plans.set_files import SetOverrides
from vgrads.kernel.progress import report_progress
from vgrads.operations.plans.requests import PlanningOptions, SetFileOptions
from vgrads.planner.make import Options
from vgrads.planner.plan import Done, Plan
from vgrads.planner.policies import check_rule, make_pipeline
from vgrads.vgrid.acquisition import Acquisition
from vgrads.vgrid.catalog import Catalog
from vgrads.workflows.sets import WorkflowSet


@dataclass(frozen=True, kw_only=True)
class PlanningContext:
    """Where a set is planned: the sites, what earlier runs observed there (``acquisitions``,
    ``run_times``), and which tasks of a set they have done. ``reading``: the context in which
    histories are read."""

    catalog: Catalog
    acquisitions: Callable[[], Sequence[Acquisition]] = tuple
    run_times: Callable[[], RunTimes] = lambda: NOTHING
    find_done: Callable[[WorkflowSet], tuple[Done, ...]] = lambda _: ()
    reading: Callable[[], AbstractContextManager[None]] = nullcontext


def make_planner_options(options: PlanningOptions) -> Options:
    """Return the options of the planner. Raise InputError for an unknown policy or model."""
    # made only to refuse an unknown policy before histories are read
    make_pipeline(options.policy)
    check_rule(options.promise_model)
    effort = read_planning_effort() if options.effort is None else options.effort
    return Options(policy=options.policy, probability=options.promise_model, effort=effort)


def open_sites(options: PlanningOptions, context: PlanningContext) -> GridSnapshot:
    """Learn from the histories of the sites' queues."""
    observed = () if options.as_stated else context.acquisitions()
    run_times = NOTHING if options.as_stated else context.run_times()
    with context.reading():
        return open_grid(
            context.catalog.only(options.only_sites, "only_sites"),
            options.at,
            notify=report_progress,
            observed=observed,
            run_times=run_times,
        )


def plan_workflow_set(
    workflow_set: WorkflowSet,
    options: PlanningOptions,
    context: PlanningContext,
    others: Sequence[Plan] = (),
) -> Planned:
    """Learn from the histories of the sites' queues, collect offers, and plan what is not done.

    ``others``: plans of similar requests, with which the search begins too.
    """
    how = make_planner_options(options)
    if options.probability is not None:
        workflow_set = replace(workflow_set, probability=options.probability)
    grid = open_sites(options, context)
    report_progress("looking for tasks that are up to date")
    done = context.find_done(workflow_set)
    return plan_set(workflow_set, grid, options.seed, how, done, others)


def set_overrides(options: SetFileOptions, cores: int | None = None) -> SetOverrides:
    """Return the overrides of a set's file. ``cores``: limit of the threads of Snakemake's
    rules."""
    return SetOverrides(
        deadline=options.deadline,
        inputs=options.inputs,
        targets=options.targets,
        config=options.config,
        cores=cores,
    )
