"""Questions about the wait of one job in one queue, for all interfaces: their fields, defaults and
ranges. Light: a service knows them before it forecasts anything."""

from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field, create_model

if TYPE_CHECKING:
    from vgrads.api.queues.history_files import Instant
    from vgrads.api.queues.queries import HistorySource
    from vgrads.traces.reading_options import ReadingOptions

Procs = Annotated[int, Field(ge=1, le=10**9)]
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
StartBy = Annotated[float, Field(ge=0, le=31 * 86400.0, allow_inf_nan=False)]
"""A time from now, at most a month."""
Method = Literal["state", "qbets", "bmbp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuestion:
    """A job, and where it would be submitted: to a ``queue`` of a ``site``, or to that of a
    ``history``, a file.

    ``live``: use the present queue of a real site, as it lists it. ``at``, ``user``, ``reading``:
    the instant of the history, who submits the job, how the file is read. ``arrays``: equal jobs of
    one user that are submitted and start together count as one.
    """

    procs: Procs = 1
    walltime_s: Seconds = 3600.0
    confidence: Share = 0.95
    method: Method = "state"
    live: bool = True
    site: str = ""
    queue: str = ""
    history: "HistorySource | None" = None
    at: "Instant" = None
    user: str | None = None
    reading: "ReadingOptions | None" = None
    arrays: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundQuestion(JobQuestion):
    """GETBOUND: the wait that such jobs do not exceed with a ``probability``; ``explain``: what
    moved it."""

    probability: Share = 0.95
    explain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbabilityQuestion(JobQuestion):
    """GETPROB: the probability that such a job starts within a time."""

    within_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryQuestion(JobQuestion):
    """VARQ: the latest instant to submit such a job so that it runs in ``start_by_s`` with a
    ``probability``. ``step_s``: between the instants that are tried."""

    start_by_s: StartBy
    probability: Share = 0.9
    step_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingQuestion:
    """Where a job would start first, over all queues."""

    procs: Procs = 1
    walltime_s: Seconds = 3600.0
    live: bool = True


_NOT_QUERIED = {"site", "queue", "history", "at", "user", "reading", "arrays", "step_s"}
"""Fields that a query over HTTP does not have: its queue is in the path, its instant is now."""


def query_model(question: type[JobQuestion | RankingQuestion]) -> type[BaseModel]:
    """Return the model of the parameters of a query over HTTP."""
    parameters: dict[str, Any] = {
        entry.name: (entry.type, ... if entry.default is MISSING else entry.default)
        for entry in fields(question)
        if entry.name not in _NOT_QUERIED
    }
    return create_model(question.__name__, **parameters)
