"""Answers about workflow sets and their plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from vgrads.operations.answers.runs import ResultOfRun
from vgrads.operations.fields import About

SetState = Literal["planning", "planned", "failed"]


@dataclass(frozen=True, kw_only=True)
class PromiseEstimate:
    """A probability that is estimated by simulation."""

    probability: Annotated[float, About("That enough workflows end in time.", example=0.97)]
    standard_error: Annotated[float, About("Of the probability.", example=0.002)]


@dataclass(frozen=True, kw_only=True)
class PromiseAnswer(PromiseEstimate):
    """The probability that a plan keeps its deadline."""

    cautious: Annotated[float, About("The probability, less what it may be wrong by.")]
    requested: Annotated[float, About("The probability that was requested.", example=0.9)]
    meets_request: Annotated[bool, About("Whether the plan is as probable as requested.")]


@dataclass(frozen=True, kw_only=True)
class PlanPromise(PromiseAnswer):
    """The probability that a plan keeps its deadline, with that of each workflow."""

    by_workflow: Annotated[
        Mapping[str, float], About("Of each workflow, by name.", example={"lead-1": 0.97})
    ]


@dataclass(frozen=True, kw_only=True)
class ExpectedCost:
    """Cost and use on average, with early releases."""

    cost_usd: Annotated[float, About("Cost.", "USD", 2.72)]
    processor_hours: Annotated[float, About("Reserved processors and hours.", "processor-hours")]


@dataclass(frozen=True, kw_only=True)
class SufficientChange:
    """The smallest change of one kind with which the minimum can be placed."""

    change: Annotated[str, About("What is changed.", example="deadline")]
    amount: Annotated[float, About("By how much.", example=600.0)]
    unit: Annotated[str, About("Of the amount.", example="s")]
    probability: Annotated[float, About("Of the promise after the change.", example=0.95)]
    cost_usd: Annotated[float, About("After the change.", "USD", 3.4)]


@dataclass(frozen=True, kw_only=True)
class SubmittedSet:
    """A set that was submitted; figures of its plan where that is made already."""

    id: Annotated[str, About("Id of the set.", example="set-0123456789")]
    name: Annotated[str, About("Name of the set.", example="lead")]
    plan: Annotated[
        str, About("Path of its plan.", example="/v1/workflow-sets/set-0123456789/plan")
    ]
    state: Annotated[SetState, About("State of the set.", example="planned")]
    feasible: Annotated[bool | None, About("Whether enough workflows could be placed.")] = None
    promise: Annotated[PromiseAnswer | None, About("Of the plan.")] = None
    cost_usd: Annotated[float | None, About("At most.", "USD", 2.72)] = None
    needed: Annotated[int | None, About("Workflows that must end in time.", example=6)] = None
    deadline_s: Annotated[float | None, About("From the start of the run.", "s", 7200.0)] = None
    lacking: Annotated[str | None, About("Why too few could be placed.")] = None


@dataclass(frozen=True, kw_only=True)
class RunOfSet:
    """A run in the list of its set."""

    id: Annotated[str, About("Id of the run.", example="run-0123456789")]
    state: Annotated[str, About("State of the run.", example="kept")]
    started: Annotated[datetime, About("Start.")]
    outcome: Annotated[ResultOfRun, About("Result; empty while it runs.")]


@dataclass(frozen=True, kw_only=True)
class SetSummary:
    """A set with figures of its plan, and its runs."""

    id: Annotated[str, About("Id of the set.", example="set-0123456789")]
    name: Annotated[str, About("Name of the set.", example="lead")]
    created: Annotated[datetime, About("When it was submitted.")]
    owner: Annotated[str, About("Who submitted it.", example="ann")]
    state: Annotated[SetState, About("State of the set.", example="planned")]
    problem: Annotated[str | None, About("Why it could not be planned.")]
    revision: Annotated[int, About("Number of its plan; 0: there is none yet.", example=1)]
    archived: Annotated[bool, About("Whether lists of work leave it out.", example=False)]
    needed: Annotated[int | None, About("Workflows that must end in time.", example=6)]
    deadline_s: Annotated[float | None, About("From the start of the run.", "s", 7200.0)]
    feasible: Annotated[bool | None, About("Whether enough workflows could be placed.")]
    promise: Annotated[PromiseAnswer | None, About("Of the plan.")]
    cost_usd: Annotated[float | None, About("At most.", "USD", 2.72)]
    runs: Annotated[Sequence[RunOfSet], About("Its runs.")]


@dataclass(frozen=True, kw_only=True)
class SetDetails(SetSummary):
    """A set as submitted, with figures of its plan, and its runs."""

    document: Annotated[
        Mapping[str, Any],
        About("The set as submitted, with its defaults.", example={"name": "lead"}),
    ]


@dataclass(frozen=True, kw_only=True)
class PlanningStarted:
    """A set that is planned again."""

    id: Annotated[str, About("Id of the set.", example="set-0123456789")]
    state: Annotated[Literal["planning"], About("State of the set.", example="planning")]


@dataclass(frozen=True, kw_only=True)
class SlotOfPlan:
    """A slot that a plan uses."""

    id: Annotated[str, About("Id of the slot.", example="ec2-1")]
    site: Annotated[str, About("Its site.", example="ec2")]
    queue: Annotated[str, About("Its queue; empty where the site has none.", example="default")]
    kind: Annotated[str, About("Kind of the site.", example="cloud")]
    procs: Annotated[int, About("Processors.", "processors", 16)]
    start_s: Annotated[float, About("Start.", "s")]
    end_s: Annotated[float, About("End.", "s", 7200.0)]
    submit_s: Annotated[float, About("When it is requested.", "s")]
    probability: Annotated[float, About("That it is ready at its start.", example=0.97)]
    cost_usd: Annotated[float, About("At most.", "USD", 2.72)]


@dataclass(frozen=True, kw_only=True)
class PlannedSlot(SlotOfPlan):
    """A slot of a plan, with the basis of its forecast."""

    basis: Annotated[str | None, About("What its forecast is based on, where that is unusual.")]


@dataclass(frozen=True, kw_only=True)
class PlannedTask:
    """A replica of a task in its slot."""

    workflow: Annotated[str, About("Name of the workflow.", example="lead-1")]
    task: Annotated[str, About("Name of the task.", example="wrf")]
    copy: Annotated[int, About("Number of the replica, from 0.", example=0)]
    slot: Annotated[str, About("Id of its slot.", example="ec2-1")]
    start_s: Annotated[float, About("Planned start.", "s", 446.0)]
    end_s: Annotated[float, About("Planned end.", "s", 5066.0)]
    procs: Annotated[int, About("Processors.", "processors", 16)]
    probability: Annotated[float, About("That it ends in time.", example=0.93)]


@dataclass(frozen=True, kw_only=True)
class PlanOfComparison:
    """A plan with which another one was compared."""

    rule: Annotated[str, About("How it was made.", example="the four phases")]
    promise: Annotated[float, About("Its probability.", example=0.93)]
    expected_usd: Annotated[float, About("Cost on average.", "USD")]
    expected_hours: Annotated[float, About("Use on average.", "processor-hours", 162.3)]
    slots: Annotated[int, About("Slots.", example=9)]


@dataclass(frozen=True, kw_only=True)
class PlanStep:
    """A step of a phase; its fields depend on the phase."""

    workflow: Annotated[str | None, About("Workflow that was placed.", example="lead-1")] = None
    placed: Annotated[bool | None, About("Whether it could be placed.")] = None
    promise: Annotated[float | None, About("Probability after the step.", example=0.93)] = None
    chosen: Annotated[str | None, About("What helps more: workflow or copy.")] = None
    before: Annotated[float | None, About("Probability before the step.")] = None
    with_workflow: Annotated[float | None, About("Probability with a further workflow.")] = None
    with_copy: Annotated[float | None, About("Probability with a further replica.")] = None
    copy_of: Annotated[Sequence[str] | None, About("Workflow and task of a replica.")] = None
    slot: Annotated[str | None, About("Slot of a replica.")] = None
    rule: Annotated[str | None, About("How a compared plan was made.")] = None
    expected_usd: Annotated[float | None, About("Its cost on average.", "USD")] = None
    expected_hours: Annotated[float | None, About("Its use.", "processor-hours")] = None
    slots: Annotated[int | None, About("Its slots.")] = None
    compared: Annotated[PlanOfComparison | None, About("The best of the simple plans.")] = None


@dataclass(frozen=True, kw_only=True)
class PlanPhase:
    """A phase of planning."""

    name: Annotated[str, About("Name of the phase.", example="minimal")]
    placed: Annotated[int, About("Replicas that it placed.", example=6)]
    probability_before: Annotated[float, About("Before the phase.")]
    probability_after: Annotated[float, About("After the phase.", example=0.93)]
    steps: Annotated[Sequence[PlanStep], About("Its steps.")]


@dataclass(frozen=True, kw_only=True)
class PlannedRunTime:
    """Where the run times of one kind of task are from."""

    kind: Annotated[str, About("Kind of task.", example="wrf")]
    tasks: Annotated[int, About("Tasks of this kind.", example=8)]
    source: Annotated[str, About("stated, learned or prior.", example="stated")]
    predicted: Annotated[int, About("Tasks with a learned run time.", example=0)]
    observations: Annotated[int, About("Observations that it is learned from.", example=0)]
    shortest_s: Annotated[float, About("Shortest.", "s", 338.0)]
    longest_s: Annotated[float, About("Longest.", "s", 338.0)]
    spread: Annotated[float, About("Relative spread of a task.")]
    kind_spread: Annotated[float, About("Relative spread that all tasks of the kind share.")]


@dataclass(frozen=True, kw_only=True)
class OtherPlace:
    """Another slot that was considered for a replica."""

    slot: Annotated[str, About("Id of the slot.", example="ec2-2")]
    start_s: Annotated[float, About("Start there.", "s")]
    end_s: Annotated[float, About("End there.", "s", 60.0)]
    probability: Annotated[float, About("Of an end in time there.", example=0.93)]
    changes: Annotated[float | None, About("Change of the promise.")] = None
    more_usd: Annotated[float | None, About("Additional cost.", "USD")] = None


@dataclass(frozen=True, kw_only=True)
class PlacementReason:
    """Why a replica is in its slot."""

    workflow: Annotated[str, About("Name of the workflow.", example="lead-1")]
    task: Annotated[str, About("Name of the task.", example="wrf")]
    copy: Annotated[int, About("Number of the replica, from 0.", example=0)]
    phase: Annotated[str | None, About("Phase that placed it.", example="minimal")] = None
    rule: Annotated[str | None, About("Rule of the choice.", example="most probable")] = None
    considered: Annotated[int | None, About("Slots that were considered.", example=12)] = None
    adds: Annotated[float | None, About("What it adds to the promise.")] = None
    slot_needed_until_s: Annotated[float | None, About("Without it.", "s")] = None
    others: Annotated[Sequence[OtherPlace], About("Other slots.")] = ()


@dataclass(frozen=True, kw_only=True)
class TaskDoneBefore:
    """A task that need not run, since an earlier run did it."""

    workflow: Annotated[str, About("Name of the workflow.", example="lead-1")]
    task: Annotated[str, About("Name of the task.", example="wrf")]
    run: Annotated[str, About("Id of the run that did it.", example="run-0123456789")]


@dataclass(frozen=True, kw_only=True)
class DroppedWorkflow:
    """A workflow that is not in the plan."""

    workflow: Annotated[str, About("Name of the workflow.", example="lead-8")]
    why: Annotated[str, About("The reason.", example="it cannot end in time")]


@dataclass(frozen=True, kw_only=True)
class WithdrawalRule:
    """When workflows of a run are given up."""

    spare: Annotated[int | None, About("Workflows beyond the needed ones; null: all.")]


@dataclass(frozen=True, kw_only=True)
class PlanAnswer:
    """The plan of a set, as ``vgrads plan --json``. Instants count from the start of the run."""

    name: Annotated[str, About("Name of the set.", example="lead")]
    feasible: Annotated[bool, About("Whether enough workflows could be placed.")]
    lacking: Annotated[str | None, About("Why too few could be placed.")]
    deadline_s: Annotated[float, About("Deadline.", "s", 7200.0)]
    needed: Annotated[int, About("Workflows that must end in time.", example=6)]
    scheduled: Annotated[int, About("Workflows in the plan.", example=8)]
    promise: Annotated[PlanPromise, About("Of the plan.")]
    cost_usd: Annotated[float, About("At most.", "USD", 2.72)]
    expected: Annotated[ExpectedCost, About("On average.")]
    withdraw: Annotated[WithdrawalRule, About("When workflows are given up.")]
    phases: Annotated[Sequence[PlanPhase], About("How it was made.")]
    policy: Annotated[str, About("How it was made, in a line.", example="vgrads")]
    run_times: Annotated[Sequence[PlannedRunTime], About("Where run times are from.")]
    notes: Annotated[Sequence[str], About("Remarks.", example=["lead-1: 6 tasks, 6 edges"])]
    done: Annotated[Sequence[TaskDoneBefore], About("Tasks that need not run.")]
    dropped: Annotated[Sequence[DroppedWorkflow], About("Workflows that are not in it.")]
    relaxations: Annotated[Sequence[SufficientChange], About("Sufficient changes, if infeasible.")]
    slots: Annotated[Sequence[PlannedSlot], About("Its slots.")]
    placements: Annotated[Sequence[PlannedTask], About("Its tasks.")]
    reasons: Annotated[Sequence[PlacementReason], About("Why each task is where it is.")]
    seconds: Annotated[Mapping[str, float], About("What each phase took.", "s", {"minimal": 0.02})]


@dataclass(frozen=True, kw_only=True)
class PlanCounts:
    """How many of each a plan has."""

    tasks: Annotated[int, About("Tasks.", example=48)]
    replicas: Annotated[int, About("Further replicas of tasks.", example=6)]
    slots: Annotated[int, About("Slots.", example=9)]
    sites: Annotated[int, About("Sites.", example=5)]


@dataclass(frozen=True, kw_only=True)
class PlanSummary:
    """Figures of a plan that is not stored."""

    feasible: Annotated[bool, About("Whether enough workflows could be placed.")]
    lacking: Annotated[str | None, About("Why too few could be placed.")]
    deadline_s: Annotated[float, About("Deadline.", "s", 5400.0)]
    needed: Annotated[int, About("Workflows that must end in time.", example=6)]
    scheduled: Annotated[int, About("Workflows in the plan.", example=8)]
    promise: Annotated[PromiseAnswer, About("Of the plan.")]
    cost_usd: Annotated[float, About("At most.", "USD", 2.72)]
    expected: Annotated[ExpectedCost, About("On average.")]
    policy: Annotated[str, About("How it was made, in a line.", example="vgrads")]
    notes: Annotated[Sequence[str], About("Remarks.", example=["lead-1: 6 tasks, 6 edges"])]
    relaxations: Annotated[Sequence[SufficientChange], About("Sufficient changes, if infeasible.")]
    counts: Annotated[PlanCounts | None, About("How many of each it has.")] = None
    budget_usd: Annotated[float | None, About("Most cost, if limited.", "USD")] = None


@dataclass(frozen=True, kw_only=True)
class ActualSlot:
    """When a slot was there."""

    ready_s: Annotated[float | None, About("Start.", "s", 563.0)]
    ended_s: Annotated[float | None, About("End.", "s", 5036.0)]
    reason: Annotated[str | None, About("Why it ended.", example="released")]


@dataclass(frozen=True, kw_only=True)
class ChartSlot(PlannedSlot):
    """A slot as a lane of the chart."""

    ready_p5_s: Annotated[float | None, About("5th of a hundred starts; null: never.", "s")]
    ready_p50_s: Annotated[float | None, About("50th of a hundred starts.", "s", 30.0)]
    ready_p95_s: Annotated[float | None, About("95th of a hundred starts.", "s")]
    state: Annotated[str, About("State of the slot.", example="released")]
    actual: Annotated[ActualSlot | None, About("In a run.")]


@dataclass(frozen=True, kw_only=True)
class ActualTask:
    """When a replica ran."""

    start_s: Annotated[float | None, About("Start.", "s", 563.0)]
    end_s: Annotated[float | None, About("End; null while it runs.", "s", 5036.0)]


@dataclass(frozen=True, kw_only=True)
class ChartTask(PlannedTask):
    """A replica as a bar of the chart."""

    state: Annotated[str, About("State of the replica.", example="done")]
    actual: Annotated[ActualTask | None, About("In a run.")]
    reason: Annotated[str | None, About("Why it is in this state.")] = None


@dataclass(frozen=True, kw_only=True)
class RunDecision:
    """A decision during a run."""

    at_s: Annotated[float, About("Instant.", "s", 35.0)]
    text: Annotated[str, About("What was decided.", example="slot ec2-1 is overdue")]


@dataclass(frozen=True, kw_only=True)
class GanttChart:
    """Slots and placements, planned and (in a run) actual. Instants count from its start."""

    name: Annotated[str, About("Name of the set.", example="lead")]
    deadline_s: Annotated[float, About("Deadline.", "s", 7200.0)]
    needed: Annotated[int, About("Workflows that must end in time.", example=6)]
    now_s: Annotated[float | None, About("Instant of the run.", "s")]
    promise: Annotated[PromiseEstimate, About("Of the plan.")]
    cost_usd: Annotated[float, About("At most.", "USD", 2.72)]
    decisions: Annotated[Sequence[RunDecision], About("During the run.")]
    workflows: Annotated[Sequence[str], About("Names.", example=["lead-1", "lead-2"])]
    done: Annotated[Sequence[TaskDoneBefore], About("Tasks that need not run.")]
    slots: Annotated[Sequence[ChartSlot], About("Lanes.")]
    placements: Annotated[Sequence[ChartTask], About("Bars.")]
    set: Annotated[str, About("Id of the set.", example="set-0123456789")]
    run: Annotated[str | None, About("Id of the newest run.", example="run-0123456789")]
    state: Annotated[str, About("State of that run, or of the set.", example="running")]
    started: Annotated[datetime | None, About("Start of that run.")]


@dataclass(frozen=True, kw_only=True)
class ExplainedReplica(PlannedTask):
    """A replica with the reasons of its placement."""

    slot_probability: Annotated[float, About("That its slot is ready in time.", example=0.97)]
    why: Annotated[PlacementReason | None, About("The reasons.")]


@dataclass(frozen=True, kw_only=True)
class RivalPlan(PlanOfComparison):
    """A plan that was not taken."""

    why: Annotated[str, About("Why it was not taken.", example="it is less probable")]


@dataclass(frozen=True, kw_only=True)
class PlacementExplanation:
    """Why a task is where it is, as ``vgrads explain --json``."""

    workflow: Annotated[str, About("Name of the workflow.", example="lead-1")]
    task: Annotated[str, About("Name of the task.", example="wrf")]
    copies: Annotated[Sequence[ExplainedReplica], About("Its replicas.")]
    promise: Annotated[float, About("Of the plan.", example=0.97)]
    rivals: Annotated[Sequence[RivalPlan], About("Plans that were not taken.")]
    text: Annotated[str, About("The same in words.", example="lead-1/wrf in a plan …")]
    dropped: Annotated[str | None, About("Why its workflow is not in the plan.")] = None
    done_by: Annotated[str | None, About("Run that did it before.")] = None
