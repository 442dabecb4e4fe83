"""Answers about runs of workflow sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from vgrads.operations.fields import About


@dataclass(frozen=True, kw_only=True)
class TimesOfTasks:
    """Where the time of tasks went."""

    waited_s: Annotated[float | None, About("Wait for a start.", "s", 0.1)] = None
    in_s: Annotated[float | None, About("Fetch of inputs.", "s", 0.2)] = None
    ran_s: Annotated[float | None, About("Command.", "s", 58.0)] = None
    out_s: Annotated[float | None, About("Storage of outputs.", "s")] = None
    cpu_s: Annotated[float | None, About("Processors used.", "s", 55.0)] = None
    peak_mib: Annotated[float | None, About("Most memory.", "MiB", 92.5)] = None
    own_s: Annotated[float | None, About("Work of the service for it.", "s", 0.01)] = None


@dataclass(frozen=True, kw_only=True)
class ResultOfRun:
    """The result of a run; empty while it runs."""

    kept: Annotated[bool | None, About("Whether enough workflows ended in time.")] = None
    in_time: Annotated[int | None, About("Workflows that ended in time.", example=6)] = None
    needed: Annotated[int | None, About("Workflows that had to.", example=6)] = None
    finished_s: Annotated[
        Mapping[str, float] | None, About("End of each workflow.", "s", {"lead-1": 5036.0})
    ] = None
    copies: Annotated[
        Mapping[str, int] | None, About("Replicas by state.", example={"done": 48})
    ] = None
    ended_s: Annotated[float | None, About("End of the run.", "s", 5036.0)] = None
    spent_usd: Annotated[float | None, About("Cost.", "USD", 2.72)] = None
    promised: Annotated[
        float | None, About("Probability that its first plan promised.", example=0.95)
    ] = None
    times: Annotated[TimesOfTasks | None, About("Where the time went.")] = None
    problem: Annotated[str | None, About("Error that ended it.")] = None
    reason: Annotated[str | None, About("Why it ended early.")] = None


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run with the set that it is of."""

    id: Annotated[str, About("Id of the run.", example="run-0123456789")]
    set: Annotated[str, About("Id of its set.", example="set-0123456789")]
    name: Annotated[str, About("Name of its set.", example="lead")]
    owner: Annotated[str, About("Who submitted the set.", example="ann")]
    state: Annotated[str, About("State of the run.", example="kept")]
    started: Annotated[datetime, About("Start.")]
    outcome: Annotated[ResultOfRun, About("Result; empty while it runs.")]


@dataclass(frozen=True, kw_only=True)
class RunStarted:
    """A run that was queued."""

    run: Annotated[str, About("Id of the run.", example="run-0123456789")]


@dataclass(frozen=True, kw_only=True)
class RunRequestSent:
    """What became of a request to a run."""

    run: Annotated[str, About("Id of the run.", example="run-0123456789")]
    message: Annotated[str, About("In words.", example="its manager was asked to stop")]


@dataclass(frozen=True, kw_only=True)
class TaskCounts:
    """Tasks of a run."""

    done: Annotated[int, About("Done.", example=41)]
    of: Annotated[int, About("All.", example=48)]
    running: Annotated[int, About("Running.", example=2)]
    before: Annotated[int, About("Further ones that an earlier run did.")]


@dataclass(frozen=True, kw_only=True)
class WorkflowCounts:
    """Workflows of a run."""

    done: Annotated[int, About("Done.", example=5)]
    needed: Annotated[int, About("Needed in time.", example=6)]
    of: Annotated[int, About("All.", example=8)]


@dataclass(frozen=True, kw_only=True)
class SlotCounts:
    """Slots of a run."""

    ready: Annotated[int, About("Ready.", example=4)]
    waiting: Annotated[int, About("Requested, not ready.", example=1)]
    lost: Annotated[int, About("Lost.")]
    of: Annotated[int, About("All.", example=9)]


@dataclass(frozen=True, kw_only=True)
class FailedTarget:
    """A target that did not get a message."""

    target: Annotated[str, About("Name of the target.", example="mail")]
    reason: Annotated[str, About("Why.", example="the connection was refused")]


@dataclass(frozen=True, kw_only=True)
class AlarmOfRun:
    """A message about the promise of a run."""

    number: Annotated[int, About("Number of the message, from 1.", example=1)]
    at: Annotated[datetime, About("When it was due.")]
    state: Annotated[str, About("What it is about.", example="at risk")]
    reason: Annotated[str, About("Why it was due.")]
    sent_to: Annotated[Sequence[str], About("Targets that got it.", example=["mail"])]
    failed: Annotated[Sequence[FailedTarget], About("Targets that did not.")]
    escalated: Annotated[
        bool, About("Whether it repeats one that nobody acknowledged.", example=False)
    ]
    acknowledged_by: Annotated[str, About("Who takes care of it; empty: nobody.", example="ann")]


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """Status of the newest run of a set; only the first fields where there is none."""

    run: Annotated[str | None, About("Id of the run.", example="run-0123456789")]
    state: Annotated[str, About("State of the run, or of the set.", example="running")]
    promised: Annotated[float | None, About("Probability of the plan.", example=0.97)]
    outcome: Annotated[ResultOfRun, About("Result; empty while it runs.")]
    tasks: Annotated[TaskCounts | None, About("Tasks.")] = None
    workflows: Annotated[WorkflowCounts | None, About("Workflows.")] = None
    slots: Annotated[SlotCounts | None, About("Slots.")] = None
    now_s: Annotated[float | None, About("Instant, from the start.", "s", 1200.0)] = None
    deadline_s: Annotated[float | None, About("From the start.", "s", 7200.0)] = None
    spent_usd: Annotated[float | None, About("Cost so far.", "USD", 1.36)] = None
    cost_usd: Annotated[float | None, About("Cost of the plan, at most.", "USD", 2.72)] = None
    started: Annotated[datetime | None, About("Start.")] = None
    now: Annotated[datetime | None, About("Present of the run.")] = None
    due: Annotated[datetime | None, About("Deadline.")] = None
    ended: Annotated[datetime | None, About("End.")] = None
    promise_state: Annotated[
        str | None,
        About("State of the promise; null once it has ended.", example="at risk"),
    ] = None
    promise_now: Annotated[
        float | None, About("Last computed probability; null before the first.", example=0.98)
    ] = None
    promise_age_s: Annotated[
        float | None, About("Age of that probability, on the run's clock.", "s", 12.0)
    ] = None
    failing: Annotated[str | None, About("Which command of the user fails each time, and how.")] = (
        None
    )
    lost_s: Annotated[
        float | None, About("Since when the promise cannot be met, from the start.", "s", 600.0)
    ] = None
    expected_end: Annotated[datetime | None, About("Expected end.")] = None
    delays: Annotated[
        Sequence[str], About("What delays it.", example=["slot ec2-1 is overdue"])
    ] = ()
    alarms: Annotated[Sequence[AlarmOfRun], About("Messages about its promise.")] = ()
    simulated: Annotated[bool | None, About("Whether its clock is that of a simulation.")] = None


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt at a task."""

    workflow: Annotated[str, About("Name of the workflow.", example="lead-1")]
    task: Annotated[str, About("Name of the task.", example="wrf")]
    copy: Annotated[int, About("Number of the replica, from 0.", example=0)]
    attempt: Annotated[int, About("Number of the attempt, from 0.", example=0)]
    state: Annotated[str, About("State.", example="done")]
    exit: Annotated[int | None, About("Exit code.", example=0)]
    reason: Annotated[str | None, About("Why it failed.")]
    started_s: Annotated[float | None, About("Start.", "s", 563.0)]
    seconds: Annotated[float | None, About("How long it ran.", "s", 58.0)]
    site: Annotated[str | None, About("Its site.", example="ec2")]
    slot: Annotated[str | None, About("Its slot.", example="ec2-1")]
    times: Annotated[TimesOfTasks | None, About("Where the time went.")]
    stdout: Annotated[str | None, About("End of its output, where it was requested.")]
    stderr: Annotated[str | None, About("End of its errors, where they were requested.")]
    folder: Annotated[None, About("Null: a path on the machine of the service.")]


@dataclass(frozen=True, kw_only=True)
class AttemptsOfRun:
    """Every attempt of a run, as ``vgrads logs --json``."""

    run: Annotated[str | None, About("Id of the run; null: none.", example="run-0123456789")]
    attempts: Annotated[Sequence[Attempt], About("The attempts.")]


@dataclass(frozen=True, kw_only=True)
class TaskAttempts:
    """The attempts at one task, with the end of each output."""

    attempts: Annotated[Sequence[Attempt], About("The attempts.")]


@dataclass(frozen=True, kw_only=True)
class PromisePoint:
    """The probability of a promise at an instant."""

    at_s: Annotated[float, About("Instant, from the start.", "s", 35.0)]
    probability: Annotated[float, About("Of the promise then.", example=0.97)]
    done: Annotated[int, About("Workflows done then.", example=1)]


@dataclass(frozen=True, kw_only=True)
class PromiseHistory:
    """The probability of the promise over the newest run."""

    run: Annotated[str | None, About("Id of the run; null: none.", example="run-0123456789")]
    points: Annotated[Sequence[PromisePoint], About("In the order of time.")]


@dataclass(frozen=True, kw_only=True)
class RunEvent:
    """An event of a run's journal; further fields depend on its kind."""

    kind: Annotated[str | None, About("Kind of event.", example="slot")] = None
    at_s: Annotated[float | None, About("Instant, from the start.", "s", 35.0)] = None
    run: Annotated[str | None, About("Id of the run, of the last event.")] = None
    state: Annotated[str | None, About("State of the slot, of the last event: of the run.")] = None


@dataclass(frozen=True, kw_only=True)
class StartPermit:
    """Permit to start a replica of a task."""

    copy: Annotated[int, About("Number of the replica, from 0.", example=0)]
    attempt: Annotated[int, About("Number of the attempt, from 0.", example=0)]
    site: Annotated[str, About("Its site.", example="here")]
    slot: Annotated[str, About("Its slot.", example="here-1")]
    procs: Annotated[int, About("Processors.", "processors", 1)]


@dataclass(frozen=True, kw_only=True)
class StartPermits:
    """The permits to start a task; none: not yet."""

    permits: Annotated[Sequence[StartPermit], About("The permits.")]


@dataclass(frozen=True, kw_only=True)
class CompletionCounted:
    """What became of a reported result."""

    counted: Annotated[bool, About("False where it was no longer needed.")]


@dataclass(frozen=True, kw_only=True)
class ReleasesStored:
    """Releases that were stored."""

    run: Annotated[str, About("Id of the run.", example="run-0123456789")]
    after: Annotated[int, About("Number of the newest answer before them.", example=17)]


@dataclass(frozen=True, kw_only=True)
class ReleasedTaskState:
    """A change of a released task; of the last event: the run and its state."""

    state: Annotated[str, About("running, done, failed, lost; of the run.", example="running")]
    workflow: Annotated[str | None, About("Name of the workflow.", example="calls-1")] = None
    task: Annotated[str | None, About("Name of the task.", example="align-a")] = None
    run: Annotated[str | None, About("Id of the run, of the last event.")] = None


@dataclass(frozen=True, kw_only=True)
class JointSubmissionState:
    """State of a joint submission, for one of its callers."""

    state: Annotated[Literal["waiting", "begun", "failed"], About("State.", example="waiting")]
    came: Annotated[int, About("Callers so far.", example=2)]
    of: Annotated[int, About("Callers that are expected.", example=3)]
    waits_s: Annotated[float | None, About("For how long it still waits.", "s", 540.0)] = None
    set: Annotated[str | None, About("Id of the set.", example="set-0123456789")] = None
    run: Annotated[str | None, About("Id of the run.", example="run-0123456789")] = None
    needed: Annotated[int | None, About("Workflows that must end in time.", example=2)] = None
    workflow: Annotated[str | None, About("Name of this caller's workflow.")] = None
    reason: Annotated[str | None, About("Why it failed.")] = None


@dataclass(frozen=True, kw_only=True)
class RequestNow:
    """What a run has to keep."""

    due: Annotated[datetime, About("Deadline.")]
    deadline_s: Annotated[float, About("From the start.", "s", 7200.0)]
    needed: Annotated[int, About("Workflows that must be done.", example=6)]
    probability: Annotated[float, About("Requested.", example=0.9)]
    budget_usd: Annotated[float | None, About("Most that it may cost.", "USD", 40.0)]
    promise: Annotated[float | None, About("Probability that it is kept.", example=0.97)]


@dataclass(frozen=True, kw_only=True)
class RequestEntry(RequestNow):
    """A request, or a refused change of it."""

    at_s: Annotated[float, About("Since when, from the start.", "s", 0.0)]
    by: Annotated[str, About("Who changed it; empty: with the submission, or here.")]
    refused: Annotated[str, About("Why it was refused; empty: it was not.")]


@dataclass(frozen=True, kw_only=True)
class RequestOfRun:
    """What the newest run of a set has to keep, and how that was changed."""

    run: Annotated[str, About("Id of the run.", example="run-0123456789")]
    history: Annotated[Sequence[RequestEntry], About("The first request, then each change.")]


@dataclass(frozen=True, kw_only=True)
class RequestChangeSent:
    """A change of what a run has to keep, as it would be planned now."""

    run: Annotated[str, About("Id of the run.", example="run-0123456789")]
    before: Annotated[RequestNow, About("The request and its promise now.")]
    after: Annotated[RequestNow, About("The changed request and its promise.")]
    cost_usd: Annotated[float, About("Cost of its plan, at most.", "USD", 2.72)]
    message: Annotated[int | None, About("Number of the message; null for a preview.")]
