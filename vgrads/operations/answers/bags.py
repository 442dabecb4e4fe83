"""Answers about bags of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from vgrads.operations.fields import About


@dataclass(frozen=True, kw_only=True)
class SubmittedBag:
    """A bag that was submitted."""

    id: Annotated[str, About("Id of the bag.", example="bag-0123456789")]
    tasks: Annotated[int, About("Number of tasks.", example=1000)]
    state: Annotated[str, About("State.", example="waiting")]


@dataclass(frozen=True, kw_only=True)
class StoredTasks:
    """Tasks that were added to an open bag."""

    id: Annotated[str, About("Id of the bag.", example="bag-0123456789")]
    taken: Annotated[int, About("Number of lines that were stored.", example=2)]


@dataclass(frozen=True, kw_only=True)
class BagRequestSent:
    """What became of a request to a bag."""

    id: Annotated[str, About("Id of the bag.", example="bag-0123456789")]
    message: Annotated[str, About("In words.", example="asked its dispatcher to cancel it")]


@dataclass(frozen=True, kw_only=True)
class RetriedTasks(BagRequestSent):
    """Tasks of a bag that are done again."""

    tasks: Annotated[int, About("Number of tasks.", example=3)]


@dataclass(frozen=True, kw_only=True)
class DroppedTasks:
    """Tasks of a bag that were dropped."""

    id: Annotated[str, About("Id of the bag.", example="bag-0123456789")]
    tasks: Annotated[Sequence[int], About("Their numbers.", example=[3])]


@dataclass(frozen=True, kw_only=True)
class StoredPart:
    """A part of calls of functions that is stored."""

    id: Annotated[str, About("Id of the bag.", example="bag-0123456789")]
    part: Annotated[str, About("Its SHA-256.", example="0" * 64)]


@dataclass(frozen=True, kw_only=True)
class BagTimes:
    """Where the time of a bag's tasks went, in sum."""

    waited_s: Annotated[float | None, About("Wait at the agent.", "s", 0.1)] = None
    fetched_s: Annotated[float | None, About("Fetch of inputs.", "s")] = None
    ran_s: Annotated[float | None, About("Commands.", "s", 58.0)] = None
    sent_s: Annotated[float | None, About("Sending of outputs.", "s")] = None
    cpu_s: Annotated[float | None, About("Processors used.", "s", 55.0)] = None
    commit_s: Annotated[float | None, About("Storage of results.", "s")] = None
    own_s: Annotated[float | None, About("Work of the dispatcher.", "s")] = None


@dataclass(frozen=True, kw_only=True)
class GoalFields:
    """A goal."""

    deadline_s: Annotated[float, About("Deadline, from the submission on.", "s", 3600.0)]
    fraction: Annotated[float, About("Share of the tasks that is needed.", example=1.0)]
    at_least: Annotated[int | None, About("Number of tasks that is needed, instead.")]
    these: Annotated[bool, About("The first tasks by number; otherwise any.", example=True)]
    probability: Annotated[float, About("Requested probability.", example=0.95)]
    budget_usd: Annotated[float | None, About("Most cost.", "USD")]


@dataclass(frozen=True, kw_only=True)
class GoalChangeEntry:
    """A change of a goal, applied or refused."""

    at_s: Annotated[float, About("Instant.", "s", 75.0)]
    before: Annotated[GoalFields, About("The goal before.")]
    after: Annotated[GoalFields | None, About("The goal after; none: it was refused.")]
    refused: Annotated[str, About("Why it was refused; empty: it was applied.")]


@dataclass(frozen=True, kw_only=True)
class GoalChangeSent(BagRequestSent):
    """What became of a request to change a goal."""

    request: Annotated[int, About("Number of the request, from 0 on.", example=0)]
    goal: Annotated[
        BagDeadline | None, About("The goal once it was decided; none: not within the request.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class BagDeadline:
    """The deadline of a bag; empty without one. Instants count from the dispatcher's start."""

    state: Annotated[
        str | None,
        About("on track, at risk, cannot be met, failing, missed or met.", example="on track"),
    ] = None
    state_reason: Annotated[str | None, About("Why, with the numbers.")] = None
    due_s: Annotated[float | None, About("Deadline.", "s", 3600.0)] = None
    required: Annotated[int | None, About("Tasks needed in time.", example=1000)] = None
    left: Annotated[int | None, About("Those that are left.", example=12)] = None
    requested: Annotated[float | None, About("Requested probability.", example=0.9)] = None
    promise: Annotated[
        float | None, About("Last probability of the present goal.", example=0.97)
    ] = None
    promised_s: Annotated[float | None, About("When that was computed.", "s", 60.0)] = None
    promise_age_s: Annotated[float | None, About("How old it is.", "s", 15.0)] = None
    due: Annotated[datetime | None, About("Deadline; null at simulated sites.")] = None
    why: Annotated[str | None, About("Reason of the last decision.")] = None
    nodes: Annotated[
        Mapping[str, int] | None, About("Nodes wanted of each source.", example={"ec2": 2})
    ] = None
    spent_usd: Annotated[float | None, About("Cost so far.", "USD", 1.36)] = None
    budget_usd: Annotated[float | None, About("Most cost.", "USD")] = None
    reached_s: Annotated[float | None, About("When it was reached.", "s")] = None
    promises: Annotated[
        Sequence[Sequence[float]] | None, About("Instant and probability then.")
    ] = None
    nodes_over_time: Annotated[
        Sequence[Sequence[Any]] | None, About("Instant, and nodes of each source from then on.")
    ] = None
    changes: Annotated[Sequence[GoalChangeEntry] | None, About("Changes of the goal.")] = None


@dataclass(frozen=True, kw_only=True)
class BagSummary:
    """A bag with its last status, as its dispatcher wrote it; before that, only the first fields.
    Instants count from the dispatcher's start."""

    id: Annotated[str, About("Id of the bag.", example="bag-0123456789")]
    name: Annotated[str, About("Name of the bag.", example="sweep")]
    owner: Annotated[str, About("Who submitted it.", example="ann")]
    state: Annotated[str, About("waiting, running, done, failed or cancelled.", example="running")]
    tasks: Annotated[int, About("Number of tasks.", example=1000)]
    created: Annotated[datetime, About("When it was submitted.")]
    weight: Annotated[float | None, About("Its share among bags.", example=1.0)] = None
    waiting: Annotated[int | None, About("Tasks that wait.", example=900)] = None
    running: Annotated[int | None, About("Tasks at agents.", example=10)] = None
    done: Annotated[int | None, About("Tasks done.", example=90)] = None
    failed: Annotated[int | None, About("Tasks that failed.", example=0)] = None
    dropped: Annotated[int | None, About("Tasks that were dropped.", example=0)] = None
    tried_again: Annotated[int | None, About("Attempts after a failure.", example=0)] = None
    copied: Annotated[int | None, About("Further replicas of tasks.", example=0)] = None
    reused: Annotated[int | None, About("Results of earlier bags.", example=0)] = None
    retried: Annotated[int | None, About("Requests to do tasks again.", example=0)] = None
    typical_s: Annotated[float | None, About("Typical run time.", "s", 2.0)] = None
    ran_s: Annotated[float | None, About("Sum of run times.", "s", 180.0)] = None
    came_s: Annotated[float | None, About("Submission.", "s", 0.1)] = None
    first_s: Annotated[float | None, About("First start of a task.", "s", 0.4)] = None
    ended_s: Annotated[float | None, About("End.", "s")] = None
    rate: Annotated[float | None, About("Recent ends.", "tasks per second", 1.2)] = None
    left_s: Annotated[float | None, About("Expected until the end.", "s", 750.0)] = None
    reason: Annotated[str | None, About("Why it ended, or does not.")] = None
    problem: Annotated[str | None, About("What hinders it.")] = None
    times: Annotated[BagTimes | None, About("Where the time went.")] = None
    goal: Annotated[BagDeadline | None, About("Its deadline.")] = None


@dataclass(frozen=True, kw_only=True)
class AgentEntry:
    """A connected agent."""

    name: Annotated[str, About("Name of its host.", example="n017")]
    site: Annotated[str, About("Its site.", example="ec2")]
    slot: Annotated[str, About("Its slot.", example="h0")]
    node: Annotated[int, About("Number of the node in the slot.", example=0)]
    procs: Annotated[int, About("Processors.", "processors", 2)]
    holds: Annotated[int, About("Tasks that it has.", example=2)]
    done: Annotated[int, About("Tasks that it did.", example=90)]
    failed: Annotated[int, About("Tasks that failed there.", example=0)]
    joined_s: Annotated[float, About("When it came.", "s", 0.3)]
    leaving: Annotated[str, About("Why it leaves; empty: it stays.")]
    error_rate: Annotated[float | None, About("Recent share of failures.", example=0.01)]
    turnaround_s: Annotated[float | None, About("Recent time of a task there.", "s", 2.1)]
    barred_s: Annotated[float | None, About("For how long it gets no task.", "s")]


@dataclass(frozen=True, kw_only=True)
class FleetReason:
    """Why agents joined or left."""

    at_s: Annotated[float, About("Instant.", "s", 0.1)]
    site: Annotated[str, About("Site.", example="here")]
    reason: Annotated[str, About("The reason.", example="requested 1 agent: 2 loads wait")]


@dataclass(frozen=True, kw_only=True)
class DispatcherStatus:
    """The dispatcher of a bag and its agents; all null before it started."""

    now_s: Annotated[float | None, About("Present.", "s", 75.0)]
    host_count: Annotated[int | None, About("Connected agents.", example=1)]
    coming: Annotated[int | None, About("Agents that were requested.", example=0)]
    hosts: Annotated[Sequence[AgentEntry] | None, About("Connected agents.")]
    rates: Annotated[
        Sequence[Sequence[float]] | None,
        About("Instant, ends per second, agents.", example=[[75.0, 1.2, 1]]),
    ]
    reasons: Annotated[Sequence[FleetReason] | None, About("Why agents joined and left.")]
    problem: Annotated[str | None, About("What hinders it.")]
    refused: Annotated[int | None, About("Connections that were refused.", example=0)]


@dataclass(frozen=True, kw_only=True)
class BagDetails(BagSummary):
    """A bag with its last status, and its dispatcher."""

    dispatcher: Annotated[DispatcherStatus, About("Its dispatcher.")]


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """An obstacle between a task and an agent."""

    words: Annotated[str, About("In words.", example="it has the task")]
    slot: Annotated[str, About("Slot of the policy, if one decides.")]
    expression: Annotated[str, About("Its expression.")]
    values: Annotated[Mapping[str, Any], About("Values in it.")]


@dataclass(frozen=True, kw_only=True)
class AgentObstacles:
    """Why an agent does not get a task."""

    host: Annotated[str, About("Name of its host.", example="n017")]
    site: Annotated[str, About("Its site.", example="ec2")]
    why: Annotated[Sequence[Obstacle], About("Obstacles; none: it may get the task.")]


@dataclass(frozen=True, kw_only=True)
class TaskExplanation:
    """The state of a bag's task, and why agents do not get it."""

    task: Annotated[int, About("Number of the task, from 0.", example=3)]
    command: Annotated[str, About("Its command.", example="python sim.py --seed 3")]
    state: Annotated[str, About("State.", example="waits")]
    attempts: Annotated[int, About("Attempts.", example=0)]
    failures: Annotated[int, About("Those that failed.", example=0)]
    hosts_lost: Annotated[int, About("Agents that were lost while running it.", example=0)]
    reasons: Annotated[Sequence[str], About("In words.", example=["0 tasks precede it"])]
    hosts: Annotated[Sequence[AgentObstacles] | None, About("Of each agent.")] = None


@dataclass(frozen=True, kw_only=True)
class BagTaskResult:
    """The result of an attempt at a bag's task, with the end of its output."""

    task: Annotated[int, About("Number of the task, from 0.", example=3)]
    attempt: Annotated[int, About("Number of the attempt, from 1.", example=1)]
    code: Annotated[int | None, About("Exit code.", example=0)]
    how: Annotated[str, About("How it ended.", example="done")]
    command: Annotated[str, About("Its command.", example="python sim.py --seed 3")]
    host: Annotated[str, About("Name of the host.", example="n017")]
    at_s: Annotated[float, About("End.", "s", 12.5)]
    ran_s: Annotated[float, About("Command.", "s", 2.0)]
    peak_mib: Annotated[float | None, About("Most memory.", "MiB", 20.1)]
    waited_s: Annotated[float | None, About("Wait at the agent.", "s")]
    fetched_s: Annotated[float | None, About("Fetch of inputs.", "s")]
    sent_s: Annotated[float | None, About("Sending of outputs.", "s")]
    cpu_s: Annotated[float | None, About("Processors used.", "s", 1.9)]
    out: Annotated[str, About("End of its output.")]
    err: Annotated[str, About("End of its errors.")]
    final: Annotated[bool, About("Whether this attempt decides the task.")]
    reused: Annotated[bool, About("Whether it is of an earlier bag.", example=False)]
