"""Answers about waits in queues, and how good they have been. Fields that date or count the jobs
of users are absent for callers who may read forecasts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from vgrads.operations.answers.sites import HistoryReading
from vgrads.operations.fields import About


@dataclass(frozen=True, kw_only=True)
class ViewOfQueue:
    """What of the queue's present an answer is based on."""

    source: Annotated[str, About("history, or the site's own list.", example="history")]
    view: Annotated[str, About("Which jobs are known.", example="ended")]
    as_of: Annotated[str, About("Instant, RFC 3339.", example="2008-12-31T04:56:24Z")]
    age_s: Annotated[float | None, About("Of the site's list.", "s")]
    waiting: Annotated[int | None, About("Jobs that wait.", example=3)]
    running: Annotated[int | None, About("Jobs that run.", example=12)]
    reason: Annotated[str | None, About("Why the site's list is not used.")]


@dataclass(frozen=True, kw_only=True)
class QueueStall:
    """A stall of the queue: submissions, and no start."""

    since: Annotated[str, About("Its start, RFC 3339.", example="2008-12-31T04:56:24Z")]
    submissions: Annotated[int, About("Submissions since.", example=12)]


@dataclass(frozen=True, kw_only=True)
class JobSizeClass:
    """Jobs of similar size, on whose waits an answer is based."""

    by: Annotated[str, About("What they are compared by.", example="product")]
    above: Annotated[float | None, About("More than this.", example=12600.0)]
    up_to: Annotated[float | None, About("At most this.", example=19800.0)]


@dataclass(frozen=True, kw_only=True)
class JobCounts:
    """Jobs of a history."""

    jobs: Annotated[int, About("Jobs.", example=3932)]
    distinct: Annotated[int, About("Equal jobs counted once.", example=3931)]


@dataclass(frozen=True, kw_only=True)
class BoundEffect:
    """What moved a bound, and how far."""

    side: Annotated[str, About("Side of the queue's state.", example="recent waits")]
    reason: Annotated[str | None, About("In words.", example="longest of the last 30 waits 0s")]
    moved_s: Annotated[float, About("Change of the bound.", "s", -4496.9)]


@dataclass(frozen=True, kw_only=True)
class BoundExplanation:
    """Why a bound is what it is."""

    method: Annotated[str, About("Method.", example="state")]
    why: Annotated[str, About("Why this method.", example="the state of the queue and past waits")]
    queues: Annotated[Sequence[str], About("Other queues of the machine.")]
    moved: Annotated[Sequence[BoundEffect], About("Effects.")]
    usual_bound_s: Annotated[float | None, About("Without them.", "s", 21525.6)] = None


@dataclass(frozen=True, kw_only=True)
class WaitBound:
    """An upper bound on a job's wait, as ``vgrads bound --json``."""

    bound_s: Annotated[float | None, About("Bound; null: none.", "s", 8796.0)]
    probability: Annotated[float, About("That the wait is not longer.", example=0.95)]
    confidence: Annotated[float, About("Of the bound.", example=0.95)]
    method: Annotated[str, About("Method.", example="state")]
    jobs: Annotated[int | None, About("Jobs that it is based on.", example=1300)] = None
    since: Annotated[str | None, About("Oldest of them.", example="2008-12-28T07:01:09Z")] = None
    cluster: Annotated[JobSizeClass | None, About("Jobs of similar size.")] = None
    reason: Annotated[str | None, About("Why there is no bound, or another method.")] = None
    history: Annotated[JobCounts | None, About("Whole history.")] = None
    warning: Annotated[str | None, About("Why the answer is doubtful.")] = None
    downtime: Annotated[QueueStall | None, About("Current stall.")] = None
    closure: Annotated[str | None, About("Closed windows that matter.")] = None
    queue_view: Annotated[ViewOfQueue | None, About("Present of the queue.")] = None
    reading: Annotated[HistoryReading | None, About("File of the history.")] = None
    explanation: Annotated[BoundExplanation | None, About("Where it was requested.")] = None


@dataclass(frozen=True, kw_only=True)
class StartProbability:
    """The probability that a job starts within a time, as ``vgrads probability --json``."""

    probability: Annotated[float, About("Of a start in time.", example=0.93)]
    within_s: Annotated[float, About("The time.", "s", 3600.0)]
    confidence: Annotated[float, About("Of the probability.", example=0.95)]
    method: Annotated[str, About("Method.", example="state")]
    jobs: Annotated[int | None, About("Jobs that it is based on.", example=1300)] = None
    since: Annotated[str | None, About("Oldest of them.", example="2008-12-28T07:01:09Z")] = None
    reason: Annotated[str | None, About("Why another method answers.")] = None
    warning: Annotated[str | None, About("Why the answer is doubtful.")] = None
    downtime: Annotated[QueueStall | None, About("Current stall.")] = None
    closure: Annotated[str | None, About("Closed windows that matter.")] = None
    queue_view: Annotated[ViewOfQueue | None, About("Present of the queue.")] = None
    reading: Annotated[HistoryReading | None, About("File of the history.")] = None


@dataclass(frozen=True, kw_only=True)
class SubmissionInstant:
    """An instant of submission, and the probability of a start in time."""

    submit_in_s: Annotated[float, About("From now.", "s", 60.0)]
    probability: Annotated[float, About("Of a start in time.", example=0.93)]


@dataclass(frozen=True, kw_only=True)
class SubmissionTrajectory:
    """When a job must be submitted to run by a given time, as ``vgrads trajectory --json``."""

    submit_in_s: Annotated[
        float | None, About("Latest instant, from now; null: none.", "s", 3330.0)
    ]
    probability: Annotated[float, About("Of a start in time then.", example=0.9)]
    walltime_s: Annotated[float, About("Of the job that is submitted then.", "s", 3870.0)]
    best: Annotated[SubmissionInstant, About("Most probable instant.")]
    trajectory: Annotated[
        Sequence[Sequence[float]],
        About("Instants, and the probability of each.", example=[[0.0, 0.93], [30.0, 0.93]]),
    ]
    level: Annotated[float, About("Required probability, by the record.", example=0.9)]
    level_reason: Annotated[str | None, About("Why it is not the requested one.")] = None
    reason: Annotated[str | None, About("Why another method answers.")] = None
    warning: Annotated[str | None, About("Why the answer is doubtful.")] = None
    closure: Annotated[str | None, About("Closed windows that matter.")] = None
    queue_view: Annotated[ViewOfQueue | None, About("Present of the queue.")] = None


@dataclass(frozen=True, kw_only=True)
class QuantileBound:
    """A bound on a wait at a quantile."""

    quantile: Annotated[float, About("Quantile.", example=0.95)]
    bound_s: Annotated[float | None, About("Bound; null: none.", "s", 8796.0)]


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The probability of a start within a time."""

    within_s: Annotated[float, About("The time.", "s", 3600.0)]
    probability: Annotated[float, About("Of a start in time.", example=0.93)]


@dataclass(frozen=True, kw_only=True)
class BestSubmission(SubmissionInstant):
    """The latest instant to submit a job with the requested probability, else the best."""

    walltime_s: Annotated[float, About("Of the job that is submitted then.", "s", 3870.0)]
    meets_request: Annotated[bool, About("Whether it is as probable as requested.")]
    level: Annotated[float, About("Required probability, by the record.", example=0.9)]
    level_reason: Annotated[str | None, About("Why it is not the requested one.")]
    warning: Annotated[str | None, About("Why the answer is doubtful.")]


@dataclass(frozen=True, kw_only=True)
class ForecastAnswer:
    """The answer to one of many questions; of a wrong one, its fields and the error."""

    site: Annotated[str | None, About("Site.", example="kth")] = None
    queue: Annotated[str | None, About("Queue.", example="default")] = None
    procs: Annotated[int | None, About("Of the job.", "processors", 64)] = None
    walltime_s: Annotated[float | None, About("Of the job.", "s", 14400.0)] = None
    method: Annotated[str | None, About("Method.", example="state")] = None
    bounds: Annotated[Sequence[QuantileBound] | None, About("At each quantile.")] = None
    curve: Annotated[Sequence[CurvePoint] | None, About("Probabilities of a start.")] = None
    best_submission: Annotated[BestSubmission | None, About("With start_by_s.")] = None
    jobs: Annotated[int | None, About("Jobs that it is based on.", example=1300)] = None
    since: Annotated[str | None, About("Oldest of them.", example="2008-12-28T07:01:09Z")] = None
    reason: Annotated[str | None, About("Why there is no bound, or another method.")] = None
    closure: Annotated[str | None, About("Closed windows that matter.")] = None
    warning: Annotated[str | None, About("Why the answer is doubtful.")] = None
    queue_view: Annotated[ViewOfQueue | None, About("Present of the queue.")] = None
    field: Annotated[str | None, About("Field that is wrong.")] = None
    error: Annotated[str | None, About("What is wrong.")] = None


@dataclass(frozen=True, kw_only=True)
class ForecastAnswers:
    """Answers in the order of the questions."""

    forecasts: Annotated[Sequence[ForecastAnswer], About("The answers.")]


@dataclass(frozen=True, kw_only=True)
class RankedQueue:
    """A queue by the expected start of a job."""

    site: Annotated[str, About("Site.", example="kth")]
    queue: Annotated[str, About("Queue.", example="default")]
    expected_start_s: Annotated[float | None, About("Expected, from now.", "s", 60.0)]
    earliest_start_s: Annotated[float | None, About("Earliest.", "s")]
    latest_start_s: Annotated[float | None, About("Latest.", "s", 5078.2)]
    bounds: Annotated[Sequence[QuantileBound], About("At each quantile.")]
    method: Annotated[str, About("Method.", example="state")]
    jobs: Annotated[int, About("Jobs that it is based on.", example=1300)]
    since: Annotated[str | None, About("Oldest of them.", example="2008-12-28T07:01:09Z")]
    reason: Annotated[str | None, About("Why there is no bound, or another method.")]
    warning: Annotated[str | None, About("Why the answer is doubtful.")]
    closure: Annotated[str | None, About("Closed windows that matter.")]
    queue_view: Annotated[ViewOfQueue, About("Present of the queue.")]


@dataclass(frozen=True, kw_only=True)
class UnrankedQueue:
    """A queue without an expected start, and why; further fields as far as there are any."""

    site: Annotated[str, About("Site.", example="kth")]
    queue: Annotated[str, About("Queue.", example="default")]
    field: Annotated[str, About("Field of the job, or queue.", example="procs")]
    error: Annotated[str, About("Why it has none.", example="procs: at most 32 in this queue")]
    procs: Annotated[int | None, About("Of the job.", "processors", 64)] = None
    walltime_s: Annotated[float | None, About("Of the job.", "s", 14400.0)] = None
    expected_start_s: Annotated[float | None, About("Null.", "s")] = None
    earliest_start_s: Annotated[float | None, About("Earliest.", "s")] = None
    latest_start_s: Annotated[float | None, About("Latest.", "s")] = None
    bounds: Annotated[Sequence[QuantileBound] | None, About("At each quantile.")] = None
    method: Annotated[str | None, About("Method.")] = None
    jobs: Annotated[int | None, About("Jobs that it is based on.")] = None
    since: Annotated[str | None, About("Oldest of them.")] = None
    reason: Annotated[str | None, About("Why there is no bound.")] = None
    warning: Annotated[str | None, About("Why the answer is doubtful.")] = None
    closure: Annotated[str | None, About("Closed windows that matter.")] = None
    queue_view: Annotated[ViewOfQueue | None, About("Present of the queue.")] = None


@dataclass(frozen=True, kw_only=True)
class CloudOffer:
    """The cheapest nodes of a cloud that run the job."""

    site: Annotated[str, About("Site.", example="ec2")]
    node_type: Annotated[str | None, About("Type of node.", example="c1.xlarge")]
    nodes: Annotated[int, About("Nodes.", example=2)]
    start_s: Annotated[float, About("Start, from now.", "s", 240.0)]
    price_usd_per_hour: Annotated[float, About("Of a node.", "USD per hour", 0.68)]
    cost_usd: Annotated[float, About("Of the job.", "USD", 1.36)]


@dataclass(frozen=True, kw_only=True)
class QueueRanking:
    """Where a job would start first, as ``vgrads where --json``."""

    procs: Annotated[int, About("Of the job.", "processors", 4)]
    walltime_s: Annotated[float, About("Of the job.", "s", 3600.0)]
    queues: Annotated[Sequence[RankedQueue], About("By expected start.")]
    left_out: Annotated[Sequence[UnrankedQueue], About("Without one.")]
    cloud: Annotated[CloudOffer | None, About("Cheapest cloud.")]


@dataclass(frozen=True, kw_only=True)
class RecordCounts:
    """Issued forecasts by what became of them."""

    issued: Annotated[int, About("Issued, with repetitions.", example=40)]
    open: Annotated[int, About("Not decided yet.", example=2)]
    scored: Annotated[int, About("Compared with a wait.", example=38)]
    without_start: Annotated[int, About("Without a start.", example=0)]
    retrospective: Annotated[int, About("Of an instant of the past.", example=0)]


@dataclass(frozen=True, kw_only=True)
class QuantileScore:
    """Score of bounds at a quantile."""

    quantile: Annotated[float, About("Quantile.", example=0.95)]
    coverage: Annotated[float | None, About("Share not exceeded.", example=0.96)]
    bounds: Annotated[int | None, About("Bounds.", example=38)] = None
    pinball_s: Annotated[float | None, About("Pinball loss.", "s", 266.5)] = None


@dataclass(frozen=True, kw_only=True)
class ViewScore:
    """Score of forecasts with one view of the queue."""

    view: Annotated[str | None, About("Which jobs were known.", example="ended")]
    scored: Annotated[int, About("Forecasts.", example=38)]
    bounds: Annotated[int, About("Bounds.", example=38)]
    coverage: Annotated[float | None, About("Share not exceeded.", example=0.96)]


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """Stated probabilities of a bin, and how often they came true."""

    stated: Annotated[float, About("Mean of the stated ones.", example=0.9)]
    observed: Annotated[float, About("Share that came true.", example=0.92)]
    statements: Annotated[int | None, About("How many.", example=20)] = None


@dataclass(frozen=True, kw_only=True)
class ErrorPair:
    """The same measure of both estimates."""

    vgrads: Annotated[float | None, About("Of vgrads.", "s", 266.5)]
    slurm: Annotated[float | None, About("Of the site.", "s", 1070.5)]


@dataclass(frozen=True, kw_only=True)
class EstimateComparison:
    """Medians beside the start times that Slurm estimated."""

    jobs: Annotated[int, About("Jobs with both.", example=12)]
    left_out: Annotated[int, About("Others.", example=3)]
    started_by_estimate: Annotated[float | None, About("Share that started by then.")]
    median_error_s: Annotated[ErrorPair, About("Median error.")]
    pinball_s: Annotated[ErrorPair, About("Pinball loss.")]


@dataclass(frozen=True, kw_only=True)
class WatchedBoundCounts:
    """Newest bounds of a queue whose time has passed."""

    bounds: Annotated[int, About("With a known outcome.", example=30)]
    covered: Annotated[int, About("Of these, not exceeded.", example=29)]
    unknown: Annotated[int, About("Without a known job.", example=0)]
    hidden: Annotated[int, About("How many more than ever before.", example=0)]


@dataclass(frozen=True, kw_only=True)
class QueueScore:
    """Score of the newest forecasts of a queue, as ``vgrads score SITE QUEUE --json``."""

    site: Annotated[str, About("Site.", example="kth")]
    queue: Annotated[str, About("Queue.", example="default")]
    quantiles: Annotated[Sequence[QuantileScore], About("Bounds.")]
    reliability: Annotated[Sequence[ReliabilityBin], About("Probabilities.")]
    brier: Annotated[float | None, About("Brier score.", example=0.08)]
    warning: Annotated[str | None, About("Why answers are doubtful.")]
    records: Annotated[RecordCounts | None, About("Issued forecasts.")] = None
    scored: Annotated[int | None, About("Those that count here.", example=38)] = None
    views: Annotated[Sequence[ViewScore] | None, About("By view of the queue.")] = None
    slurm: Annotated[EstimateComparison | None, About("Beside Slurm's estimates.")] = None
    watched: Annotated[WatchedBoundCounts | None, About("Newest bounds.")] = None


@dataclass(frozen=True, kw_only=True)
class PromiseScore:
    """How many promises of runs were kept."""

    promises: Annotated[int, About("Promises of ended runs.", example=20)]
    kept: Annotated[int, About("Of these, kept.", example=19)]
    share_in_time: Annotated[float | None, About("Share.", example=0.95, key="kept_share")]
    promised: Annotated[float | None, About("Mean of the promised probabilities.", example=0.94)]
    open: Annotated[int, About("Promises of other runs.", example=3)]
    reliability: Annotated[Sequence[ReliabilityBin], About("Probabilities.")]
    brier: Annotated[float | None, About("Brier score.", example=0.05)]


@dataclass(frozen=True, kw_only=True)
class AllScores:
    """Scores of all queues, and of the promises, as ``vgrads score --json``."""

    queues: Annotated[Sequence[QueueScore], About("By queue.")]
    promises: Annotated[PromiseScore, About("Promises of runs.")]
