"""Plans of workflow sets: the promise, the slots, the placements, and their Gantt chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from vgrads.api.plans.answers import plan_json, planned_gantt
from vgrads.api.plans.planning import Planned
from vgrads.api.plans.refusals import describe_relaxation
from vgrads.api.plans.runtimes import describe_basis
from vgrads.api.plans.up_to_date import EarlierRun, find_up_to_date
from vgrads.api.queues.start_estimate_prior import describe_priors, list_refusals
from vgrads.interface.arguments import (
    FileName,
    named_arguments,
    path_of,
)
from vgrads.interface.catalogs import Sites, catalog_of
from vgrads.interface.gantt import gantt_html, gantt_png
from vgrads.interface.sets import LoadedSet, read_changed
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, format_duration, format_usd
from vgrads.operations.plans.planning import (
    PlanningContext,
    make_planner_options,
    plan_workflow_set,
)
from vgrads.operations.plans.requests import PlanningOptions, SetFileOptions, list_changed_options
from vgrads.planner.explain import explain, explain_text
from vgrads.planner.plan import Promise, Relaxation
from vgrads.portal.charts.exports import reasons_of, write_chart

SetSource = LoadedSet | FileName | Mapping[str, Any]
"""What :func:`vgrads.plan` and :func:`vgrads.run` take as a set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSlot:
    """A slot of a plan: a reservation of processors at a site.

    ``kind``: batch, cloud, dedicated, reservation or local. ``submit_s``, ``start_s``, ``end_s``:
    seconds from the beginning of the run. ``probability``: that the slot is ready at ``start_s``.
    ``basis``: what that rests on where the queue has no history.
    """

    id: str
    site: str
    queue: str
    kind: str
    procs: int
    start_s: float
    end_s: float
    submit_s: float
    probability: float
    cost_usd: float
    basis: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlacement:
    """A replica of a task in a slot, planned from ``start_s`` to ``end_s``.

    ``replica``: 0 is the first. ``slot``: id of a :class:`PlanSlot`. ``probability``: that it is
    done by ``end_s``.
    """

    workflow: str
    task: str
    replica: int
    slot: str
    start_s: float
    end_s: float
    procs: int
    probability: float


@dataclass(frozen=True, kw_only=True, repr=False)
class PlanResult:
    """The plan of a workflow set.

    ``feasible``: a plan exists. ``lacking``: why none exists, or why its promise is below the
    request; ``relaxations``: what would do. ``promise``: probability that ``needed`` workflows are
    done by ``deadline_s``, its standard error, and the probability of each workflow. ``requested``:
    the probability that the set asks for; ``meets_request``: the promise reaches it. ``scheduled``:
    workflows in the plan. ``cost_usd``: at most. ``slots`` and ``placements``: the plan itself.
    ``notes``: warnings.
    ``planned``: all that the plan was computed from.
    """

    name: str
    feasible: bool
    lacking: str
    promise: Promise
    requested: float
    meets_request: bool
    deadline_s: float
    needed: int
    scheduled: int
    cost_usd: float
    slots: tuple[PlanSlot, ...]
    placements: tuple[TaskPlacement, ...]
    relaxations: tuple[Relaxation, ...]
    notes: tuple[str, ...]
    seed: int
    at: float | datetime | None
    planned: Planned = field(compare=False)

    def to_json(self) -> dict[str, Any]:
        """The JSON of ``vgrads plan --json``."""
        return plan_json(self.planned.plan)

    @named_arguments()
    def explain(self, task: str) -> str:
        """Why the replicas of a task are where they are; ``task``: ``workflow/task``, or a task
        that only one workflow has."""
        return explain_text(explain(self.to_json(), task))

    def gantt(self, path: FileName) -> Path:
        """Write the Gantt chart; the ending of the name chooses html, svg, png, pdf or json (a
        trace for Perfetto)."""
        return write_gantt(path, planned_gantt(self.planned), "Planned, not run.", self.to_json())

    @property
    def sentence(self) -> str:
        """The promise in words."""
        goal = f"{self.needed} or more workflows within {format_duration(self.deadline_s)}"
        if not self.feasible:
            return f"No plan for {goal}: {self.lacking}"
        if not self.placements:
            return "All tasks are up to date; nothing is left to run."
        return (
            f"{goal} with probability {self.promise.probability:.3f} ± "
            f"{self.promise.standard_error:.3f}, for {format_usd(self.cost_usd)}"
        )

    def __repr__(self) -> str:
        return (
            f"PlanResult '{self.name}': {self.sentence}\n"
            f"  {format_count(len(self.placements), 'placement')} in "
            f"{format_count(len(self.slots), 'slot')}, "
            f"{format_count(self.scheduled, 'workflow')} scheduled, {self.requested:g} requested"
        )

    def _repr_html_(self) -> str:
        relaxations = [
            f"Sufficient change: {describe_relaxation(change)}" for change in self.relaxations
        ]
        chart = planned_gantt(self.planned) if self.placements else None
        return gantt_html(self.sentence, chart, [*relaxations, *self.notes])

    def _repr_png_(self) -> bytes | None:
        return gantt_png(planned_gantt(self.planned)) if self.placements else None


def write_gantt(
    path: FileName, chart: Mapping[str, Any], sentence: str, plan: Mapping[str, Any]
) -> Path:
    """A chart in a file; its path."""
    file = path_of(path)
    write_chart(file, chart, sentence, reasons_of(plan))
    return file


def plan_source(
    source: SetSource,
    sites: Sites | None,
    earlier: Sequence[FileName],
    changes: SetFileOptions,
    options: PlanningOptions,
) -> PlanResult:
    """Plan a set; the arguments are those of :func:`vgrads.plan`."""
    make_planner_options(options)  # an unknown policy is refused before anything is read
    loaded = _set_of(source, changes)
    catalog = catalog_of(sites, loaded.sites)
    runs = [EarlierRun(path_of(folder).name, path_of(folder).resolve()) for folder in earlier]
    context = PlanningContext(
        catalog=catalog, find_done=lambda chosen: find_up_to_date(chosen, catalog, runs)
    )
    planned = plan_workflow_set(loaded.workflow_set, options, context)
    return plan_result(planned, options.seed, options.at)


def _set_of(source: SetSource, changes: SetFileOptions) -> LoadedSet:
    if not isinstance(source, LoadedSet):
        return read_changed(source, changes)
    changed = list_changed_options(changes, SetFileOptions)
    if changed:
        raise InputError(
            "cannot change a set that is already read; give them to read_set",
            where=", ".join(changed),
        )
    return source


def plan_result(planned: Planned, seed: int, at: float | datetime | None) -> PlanResult:
    """The result for a plan."""
    decision, document = planned.plan, plan_json(planned.plan)
    return PlanResult(
        name=decision.set_name,
        feasible=decision.feasible,
        lacking=decision.lacking,
        promise=decision.promise,
        requested=decision.requested_probability,
        meets_request=decision.meets_request,
        deadline_s=decision.deadline_s,
        needed=decision.needed,
        scheduled=decision.scheduled,
        cost_usd=decision.cost_usd,
        slots=tuple(PlanSlot(**row) for row in document["slots"]),
        placements=tuple(_make_placement(row) for row in document["placements"]),
        relaxations=decision.relaxations,
        notes=tuple(_list_notes(planned)),
        seed=seed,
        at=at,
        planned=planned,
    )


def _make_placement(row: Mapping[str, Any]) -> TaskPlacement:
    fields = {name: value for name, value in row.items() if name != "copy"}
    return TaskPlacement(replica=row["copy"], **fields)


def _list_notes(planned: Planned) -> Iterator[str]:
    """Warnings, as the command line prints them."""
    # queues may share one log, and so its warnings
    yield from dict.fromkeys(w for log in planned.grid.logs.values() for w in log.warnings)
    yield from describe_priors(planned.grid.words)
    yield from describe_basis(planned.plan.run_times)
    yield from planned.plan.notes
    if planned.plan.feasible:
        yield from list_refusals(planned.grid.words)
