"""The optimal plan for small sets: an integer programme over sampled scenarios.

Binary: a task starts in a slot at one of its possible instants (in several slots: replicas). In a
scenario, a replica succeeds if its slot is available and, for each parent, a replica that ended
early enough succeeded; a workflow is done if all its tasks are; the objective is the share of
scenarios in which enough workflows are done. Exact for these scenarios and instants; the oracle for
:mod:`vgrads.planner.phases`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import pulp

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count
from vgrads.planner.placement.draft import Draft
from vgrads.planner.plan import Placement
from vgrads.planner.snapshot import Snapshot, TaskKey
from vgrads.vgrid.availability import sample_availability
from vgrads.vgrid.slot import Slot
from vgrads.vgrid.solver import Highs

MOST_TASKS = 10
MOST_SLOTS = 4
_SCENARIOS = 48
_INSTANTS = 14  # starts considered in each slot, the earliest
_SECONDS = 30.0
_CHEAP = 1e-4  # weight of a dollar against the probability: breaks ties only


@dataclass(frozen=True, slots=True)
class _Start:
    """A task in a slot from an instant on."""

    key: TaskKey
    slot: str
    start_s: float
    end_s: float
    procs: int


def place_optimal(draft: Draft) -> float | None:
    """Place the best plan into an empty draft; return the solver's gap, None if nothing can be
    placed.

    InputError if the set is too large.
    """
    snapshot = draft.snapshot
    tasks = snapshot.workflow_set.task_count
    if tasks > MOST_TASKS or len(snapshot.slots) > MOST_SLOTS:
        raise InputError(
            f"{format_count(tasks, 'task')} over "
            f"{format_count(len(snapshot.slots), 'slot', 'are')} too many for the policy 'optimal'",
            where="--policy",
            fix=f"at most {MOST_TASKS} tasks and {MOST_SLOTS} slots",
        )
    starts = _list_starts(snapshot)
    model = pulp.LpProblem("plan", pulp.LpMaximize)
    take = {start: model.add_variable(f"x{n}", cat="Binary") for n, start in enumerate(starts)}
    _add_room(model, snapshot, take)
    spent = _add_money(model, snapshot, take)
    enough = _add_scenarios(model, snapshot, take)
    # of equal plans the cheapest, and of these the one with fewest replicas
    model.setObjective(
        pulp.lpSum(enough) * (1.0 / len(enough)) - _CHEAP * spent - 1e-7 * pulp.lpSum(take.values())
    )
    solver = Highs(_SECONDS)
    model.solve(solver)
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return None
    # solvers return binary variables as floating-point numbers near 0 and 1
    chosen = [start for start, x in take.items() if (x.value() or 0.0) > 0.5]
    gap = solver.gap or 0.0
    _put(draft, chosen, gap)
    return gap if draft.scheduled else None


def _list_starts(snapshot: Snapshot) -> list[_Start]:
    """Return every task in every slot at milestones of the slot and at possible ends of other
    tasks."""
    starts = []
    for slot in snapshot.slots:
        durations = [
            snapshot.duration_s(task, slot)
            for workflow in snapshot.workflow_set.workflows
            for task in workflow.tasks.values()
        ]
        instants = _list_instants(slot, durations, snapshot.workflow_set.deadline_s)
        for workflow in snapshot.workflow_set.workflows:
            for task in workflow.tasks.values():
                length_s = snapshot.duration_s(task, slot)
                if not slot.holds(task.needs):
                    continue
                for at_s in instants:
                    if at_s + length_s <= min(slot.end_s, snapshot.workflow_set.deadline_s) + 1e-9:
                        starts.append(
                            _Start(
                                (workflow.name, task.id), slot.id, at_s, at_s + length_s, task.procs
                            )
                        )
    return starts


def _list_instants(slot: Slot, durations: Sequence[float], deadline_s: float) -> list[float]:
    """Return the milestones of the slot, each plus run times of up to four tasks in a row."""
    sums = {0.0}
    for size in range(1, 5):
        sums.update(sum(chosen) for chosen in combinations(durations, size))
    begins = [time_s for time_s, _ in slot.curve.milestones]
    # rounded: the same run times added in another order are the same instant
    every = {round(b + s, 6) for b in begins for s in sums if b + s < deadline_s}
    return sorted(every)[:_INSTANTS]


def _add_room(
    model: pulp.LpProblem, snapshot: Snapshot, take: Mapping[_Start, pulp.LpVariable]
) -> None:
    """Limit each task to one replica per slot, and the processors in use at any start."""
    for slot in snapshot.slots:
        here = [start for start in take if start.slot == slot.id]
        for key in {start.key for start in here}:
            model.addConstraint(pulp.lpSum(take[s] for s in here if s.key == key) <= 1)
        # use rises only at starts, so these instants suffice
        for instant in {start.start_s for start in here}:
            busy = [s for s in here if s.start_s <= instant < s.end_s]
            model.addConstraint(pulp.lpSum(s.procs * take[s] for s in busy) <= slot.procs)


def _add_money(
    model: pulp.LpProblem, snapshot: Snapshot, take: Mapping[_Start, pulp.LpVariable]
) -> pulp.LpAffineExpression:
    """Charge every paid slot for the time until its last end."""
    costs = []
    for n, slot in enumerate(slot for slot in snapshot.slots if slot.paid):
        cost = model.add_variable(f"cost{n}", 0)
        for start, x in take.items():
            if start.slot == slot.id:
                # a bound for each start: the last end decides what is paid
                model.addConstraint(cost >= slot.cost_usd(start.end_s) * x)
        costs.append(cost)
    if snapshot.workflow_set.budget_usd is not None and costs:
        model.addConstraint(pulp.lpSum(costs) <= snapshot.workflow_set.budget_usd)
    return pulp.lpSum(costs)


def _add_scenarios(
    model: pulp.LpProblem, snapshot: Snapshot, take: Mapping[_Start, pulp.LpVariable]
) -> list[pulp.LpVariable]:
    """Define for each scenario whether the minimum is done."""
    fates = {
        slot.id: sample_availability(slot, _SCENARIOS, snapshot.seed) for slot in snapshot.slots
    }
    enough = []
    for n in range(_SCENARIOS):
        # need not be binary: only whole numbers bound them
        works = {
            start: model.add_variable(f"u{n}_{m}", 0, 1)
            for m, start in enumerate(take)
            if fates[start.slot][0][n] <= start.start_s and fates[start.slot][1][n] >= start.end_s
        }
        for start, u in works.items():
            model.addConstraint(u <= take[start])
            for supply in _list_suppliers(snapshot, start, list(works)):
                model.addConstraint(u <= pulp.lpSum(works[s] for s in supply))
        done = []
        for w, workflow in enumerate(snapshot.workflow_set.workflows):
            d = model.add_variable(f"d{n}_{w}", cat="Binary")
            for task_id in workflow.tasks:
                replicas = [
                    u for start, u in works.items() if start.key == (workflow.name, task_id)
                ]
                model.addConstraint(d <= pulp.lpSum(replicas))
            done.append(d)
        z = model.add_variable(f"z{n}", cat="Binary")
        model.addConstraint(snapshot.workflow_set.needed * z <= pulp.lpSum(done))
        enough.append(z)
    return enough


def _list_suppliers(
    snapshot: Snapshot, start: _Start, others: Sequence[_Start]
) -> list[list[_Start]]:
    """Return for each parent the starts whose data can arrive in time."""
    workflow, result = snapshot.workflow_by_name[start.key[0]], []
    site = snapshot.slot_by_id[start.slot].site
    for parent in workflow.tasks[start.key[1]].parents:
        in_time = []
        for other in others:
            if other.key == (workflow.name, parent):
                source = snapshot.slot_by_id[other.slot].site
                moved_s = snapshot.transfer_s(workflow, parent, start.key[1], (source, site))
                if other.end_s + moved_s <= start.start_s + 1e-9:
                    in_time.append(other)
        result.append(in_time)
    return result


def _put(draft: Draft, chosen: Sequence[_Start], gap: float) -> None:
    """Place the chosen starts, parents first; incomplete workflows are omitted."""
    tasks = {start.key for start in chosen}
    for workflow in draft.snapshot.workflow_set.workflows:
        if not all((workflow.name, task_id) in tasks for task_id in workflow.tasks):
            continue
        for task_id in workflow.order:
            starts = sorted(
                (s for s in chosen if s.key == (workflow.name, task_id)), key=lambda s: s.start_s
            )
            for replica, s in enumerate(starts):
                p = Placement(
                    workflow=workflow.name,
                    task=task_id,
                    replica=replica,
                    slot=s.slot,
                    start_s=s.start_s,
                    end_s=s.end_s,
                    procs=s.procs,
                )
                draft.place(p)
                draft.note(
                    p, "optimal for the sampled scenarios", {"gap": gap, "scenarios": _SCENARIOS}
                )
        draft.settle(workflow.name)
