"""Questions about the wait of one job in one queue, for all interfaces: their fields, defaults and
ranges. Light: a service knows them before it forecasts anything."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from vgrads.operations.fields import (
    DURATION,
    INSTANT,
    NAMES,
    SHARE,
    About,
    OnCommandLine,
    Request,
)
from vgrads.operations.shared import InstantOption, PredictionOptions, SitesOption

if TYPE_CHECKING:
    from vgrads.api.queues.queries import HistorySource
    from vgrads.traces.reading_options import ReadingOptions

QUANTILES = (0.5, 0.75, 0.9, 0.95)
_LONGEST_S = 31 * 86400.0


@dataclass(frozen=True, kw_only=True)
class RequestedJob(Request):
    """What a job requests."""

    procs: Annotated[
        int,
        About("Processors of the job.", minimum=1, maximum=10**9, example=16),
        OnCommandLine(flags="--procs -n"),
    ] = 1
    walltime_s: Annotated[
        float,
        DURATION,
        About("Requested time of the job, e.g. 2h.", minimum=0, maximum=1e9, example=7200),
        OnCommandLine(flags="--walltime -w"),
    ] = 3600.0


@dataclass(frozen=True, kw_only=True)
class LiveOption(Request):
    """Whether the present of a queue counts."""

    live: Annotated[
        bool,
        About(
            "Use the queue as its site lists it now (SITE/QUEUE of a real site), or the history "
            "alone."
        ),
    ] = True


@dataclass(frozen=True, kw_only=True)
class JobOptions(LiveOption, RequestedJob, PredictionOptions, InstantOption):
    """A job, and how its wait is forecast."""

    user: Annotated[
        str | None,
        About(
            "User of the job, as named in the log: the user's jobs in the queue and past waits are "
            "then taken into account."
        ),
        OnCommandLine(flags="--user -u"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class BoundOptions(JobOptions):
    """Print an upper bound on a job's wait. (GETBOUND)"""

    probability: Annotated[
        float,
        SHARE,
        About("Share of jobs that wait no longer than the bound.", above=0, below=1),
        OnCommandLine(flags="--probability -p"),
    ] = 0.95
    explain: Annotated[bool, About("Show which features of the queue state changed the bound.")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class ProbabilityOptions(JobOptions):
    """Print the probability that a job starts within a time. (GETPROB)"""

    within_s: Annotated[
        float,
        DURATION,
        About("How long the job may wait, e.g. 30m.", minimum=0, maximum=1e9, example=1800),
    ]


@dataclass(frozen=True, kw_only=True)
class TrajectoryOptions(JobOptions):
    """Print when a job must be submitted to run by a given time. (VARQ)"""

    start_by_s: Annotated[
        float,
        DURATION,
        About(
            "Time by which the job must be running, e.g. 6h from now.",
            minimum=0,
            maximum=_LONGEST_S,
            example=21600,
        ),
    ]
    probability: Annotated[
        float,
        SHARE,
        About("Probability with which the job must be running.", above=0, below=1),
        OnCommandLine(flags="--probability -p"),
    ] = 0.9
    step_s: Annotated[
        float,
        DURATION,
        About("Interval between the submission times that are tried.", above=0),
    ] = 30.0


@dataclass(frozen=True, kw_only=True)
class ForecastOptions(JobOptions):
    """Forecast the wait of a job: bounds, the probabilities of a start within several times, and
    with --start-by the best instant to submit it."""

    quantiles: Annotated[
        tuple[float, ...],
        SHARE,
        About("Share of jobs that wait no longer than a bound; may be repeated."),
        OnCommandLine(flags="--quantile", metavar="P"),
    ] = QUANTILES
    within_s: Annotated[
        tuple[float, ...],
        DURATION,
        About(
            "Wait at which the probability of a start is stated; may be repeated. Default: 10m, "
            "1h, 4h, 12h, 1d."
        ),
    ] = ()
    start_by_s: Annotated[
        float | None,
        DURATION,
        About(
            "Time by which the job must be running, e.g. 6h from now.",
            above=0,
            maximum=_LONGEST_S,
            example=21600,
        ),
    ] = None
    probability: Annotated[
        float,
        SHARE,
        About("With --start-by: with which it must be running.", above=0, below=1),
        OnCommandLine(flags="--probability -p"),
    ] = 0.9


@dataclass(frozen=True, kw_only=True)
class RankingOptions(LiveOption, RequestedJob):
    """Rank all queues by the expected start of a job, with intervals, and name the cheapest
    cloud."""


@dataclass(frozen=True, kw_only=True)
class FileFormat(Request):
    """How a history is read, where its file does not say it."""

    format: Annotated[str | None, About("Format of the history. Default: detected.")] = None
    columns: Annotated[
        str | None,
        NAMES,
        About("Names of the columns of a table that has no header, as of sacct."),
        OnCommandLine(metavar="NAME,…"),
    ] = None
    zone: Annotated[
        str | None,
        About("Time zone of local times in the history, e.g. Europe/Paris. Default: UTC."),
    ] = None
    taken_at: Annotated[
        float | datetime | None,
        INSTANT,
        About(
            "When the history was taken: its waiting jobs are the queue then. Default: at its "
            "newest event."
        ),
        OnCommandLine(metavar="INSTANT"),
    ] = None
    force: Annotated[bool, About("Use the rest of a file whose records are mostly unusable.")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class ReadingFields(FileFormat):
    """What of a history counts, and how it is read."""

    queue: Annotated[
        str | int | None,
        About("Queue of the log, by name or number. Default: all jobs."),
        OnCommandLine(flags="--queue -q"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class HistoryFields(ReadingFields):
    """A history, and how it is read."""

    history: Annotated[
        Path,
        About(
            "A queue log (SWF, GWF, sacct -P, PBS or Grid Engine accounting; plain, .gz or .xz), "
            "or SITE or SITE/QUEUE of the database."
        ),
        OnCommandLine(argument=True, metavar="HISTORY"),
    ]


@dataclass(frozen=True, kw_only=True)
class JobPlace:
    """Where a job would be submitted: to a ``queue`` of a ``site``, or to that of a ``history``, a
    file; ``reading``: how that is read."""

    DESCRIBED: ClassVar[bool] = False
    site: str = ""
    queue: str = ""
    history: HistorySource | None = None
    reading: ReadingOptions | None = None


@dataclass(frozen=True, kw_only=True)
class JobQuestion(JobPlace, JobOptions):
    """A job in a queue."""


@dataclass(frozen=True, kw_only=True)
class BoundQuestion(JobPlace, BoundOptions):
    """GETBOUND: the wait that such jobs do not exceed with a ``probability``."""


@dataclass(frozen=True, kw_only=True)
class ProbabilityQuestion(JobPlace, ProbabilityOptions):
    """GETPROB: the probability that such a job starts within a time."""


@dataclass(frozen=True, kw_only=True)
class TrajectoryQuestion(JobPlace, TrajectoryOptions):
    """VARQ: the latest instant to submit such a job so that it runs in ``start_by_s`` with a
    ``probability``."""


@dataclass(frozen=True, kw_only=True)
class ForecastQuestion(JobPlace, ForecastOptions):
    """All of these."""


QuestionAtPlace = (
    JobQuestion | BoundQuestion | ProbabilityQuestion | TrajectoryQuestion | ForecastQuestion
)


@dataclass(frozen=True, kw_only=True)
class BoundRequest(HistoryFields, BoundOptions):
    """Print an upper bound on a job's wait. (GETBOUND)"""


@dataclass(frozen=True, kw_only=True)
class ProbabilityRequest(HistoryFields, ProbabilityOptions):
    """Print the probability that a job starts within a time. (GETPROB)"""


@dataclass(frozen=True, kw_only=True)
class TrajectoryRequest(HistoryFields, TrajectoryOptions):
    """Print when a job must be submitted to run by a given time. (VARQ)"""


@dataclass(frozen=True, kw_only=True)
class ForecastRequest(HistoryFields, ForecastOptions):
    """Forecast the wait of a job: bounds, the probabilities of a start within several times, and
    with --start-by the best instant to submit it."""


@dataclass(frozen=True, kw_only=True)
class RankingRequest(RankingOptions, SitesOption):
    """Rank all queues by the expected start of a job, with intervals, and name the cheapest
    cloud."""


@dataclass(frozen=True, kw_only=True)
class BacktestOptions(FileFormat, PredictionOptions):
    """How histories are replayed."""

    by: Annotated[
        str,
        About(
            "One row per log, queue, cluster of like jobs, or group: width, queue, requested time."
        ),
    ] = "log"
    probability: Annotated[
        float,
        SHARE,
        About("Quantile of the wait that is bounded.", above=0, below=1),
        OnCommandLine(flags="--probability -p"),
    ] = 0.95
    size: Annotated[
        str | None,
        About(
            "Feature by which jobs are clustered: procs, time, product or backlog. Default: that "
            "of the method."
        ),
    ] = None
    question: Annotated[
        str,
        About(
            "Information about each job. asked: as in a query, without its user. known: with its "
            "user and the user's jobs in the queue.",
            choices=("asked", "known"),
        ),
        OnCommandLine(flags="--as"),
    ] = "asked"
    view: Annotated[
        str,
        About(
            "Jobs that are known at each instant. full: all. started: without those that wait. "
            "ended: only those that have ended."
        ),
    ] = "full"


@dataclass(frozen=True, kw_only=True)
class BacktestRequest(BacktestOptions):
    """Test bounds on past waits: replay histories, using no data before its time."""

    histories: Annotated[
        tuple[Path, ...],
        About("Queue logs."),
        OnCommandLine(argument=True, metavar="HISTORY..."),
    ]


@dataclass(frozen=True, kw_only=True)
class ScoreRequest(SitesOption):
    """Score the forecasts that were issued, by the jobs that have started since: coverage, loss,
    reliability, and Slurm's own start estimates for the same jobs."""

    site: Annotated[
        str | None,
        About(
            "A queue as SITE/QUEUE, a site, or a file of a history that was queried. Default: all "
            "queues."
        ),
        OnCommandLine(argument=True, metavar="[SITE", complete="complete_sites"),
    ] = None
    queue: Annotated[
        str | None,
        About("Its queue. Default: its only one, of a file all."),
        OnCommandLine(argument=True, metavar="QUEUE]"),
    ] = None


NOT_QUERIED = frozenset({"at", "user", "arrays", "step_s"})
"""Fields that a query over HTTP does not have: its queue is in the path, its instant is now."""
