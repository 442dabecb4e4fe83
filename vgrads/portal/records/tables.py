"""The tables of the database. Changes need a migration (:mod:`portal.migrate`)."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index
from sqlmodel import Field, SQLModel

from vgrads.portal.records import reader

OPERATOR = reader.OPERATOR
"""Owner of what is done at the command line."""


class SetRow(SQLModel, table=True):
    """A submitted workflow set, as written, with its plan.

    ``state``: planning, planned or failed (``problem`` has the reason); ``revision`` counts its
    plans; ``summary``: of the newest one, for lists; ``real``: on sites that were opened for its
    owner; ``options``: of planning, that differ from their defaults; ``archived_s``: when it was
    archived.
    """

    __tablename__ = "workflow_set"
    id: str = Field(primary_key=True)
    name: str
    created: datetime
    document: str
    options: str = "{}"
    plan: str
    gantt: str
    owner: str = Field(default=OPERATOR, index=True)
    state: str = "planned"
    problem: str = ""
    revision: int = 1
    real: bool = False
    planned_s: float = 0.0
    summary: str = "{}"
    archived_s: float | None = None
    __table_args__ = (
        Index(
            "ix_workflow_set_list",
            *("created", "id", "name", "owner", "state", "revision", "archived_s"),
        ),
    )


class PlanRow(SQLModel, table=True):
    """The newest plan of a set with its inputs, archived to be run as shown."""

    __tablename__ = "plan_archive"
    set_id: str = Field(foreign_key="workflow_set.id", primary_key=True)
    body: bytes


class RunRow(SQLModel, table=True):
    """A run of a set: running, kept, broken, cancelled, failed or interrupted; ``how``: its
    options."""

    __tablename__ = "run"
    id: str = Field(primary_key=True)
    set_id: str = Field(foreign_key="workflow_set.id", index=True)
    state: str
    started: datetime
    outcome: str = "{}"
    gantt: str = "{}"
    how: str = "{}"
    __table_args__ = (Index("ix_run_list", "set_id", "started", "id", "state"),)


class EventRow(SQLModel, table=True):
    """One event of a run's journal."""

    __tablename__ = "run_event"
    run_id: str = Field(foreign_key="run.id", primary_key=True)
    position: int = Field(primary_key=True)
    body: str


class ArchiveRow(SQLModel, table=True):
    """A value for resuming a run: its start parameters, and its execution plans."""

    __tablename__ = "run_archive"
    run_id: str = Field(foreign_key="run.id", primary_key=True)
    name: str = Field(primary_key=True)
    body: bytes


class LeaseRow(SQLModel, table=True):
    """The manager of a run, and the cancellation reason, if any; remains without a manager
    (``owner`` empty).

    ``number`` increases with each manager: writes of an older one are rejected. ``heartbeats``,
    ``heartbeat_s``, ``beaten_s``: count of heartbeats, the owner's monotonic clock, the database's
    own.
    """

    __tablename__ = "run_lease"
    run_id: str = Field(foreign_key="run.id", primary_key=True)
    owner: str
    stop: str = ""
    number: int = 0
    heartbeats: int = 0
    heartbeat_s: float = 0.0
    beaten_s: float = 0.0


class MessageRow(SQLModel, table=True):
    """A message between a run and the caller that releases its tasks: to the run (``inward``), or
    an answer of it, as JSON."""

    __tablename__ = "run_message"
    id: int | None = Field(default=None, primary_key=True)
    run_id: str = Field(foreign_key="run.id", index=True)
    inward: bool
    body: str


class AcquisitionRow(SQLModel, table=True):
    """A slot of a run from request to end; source of the learned binding overhead and rates."""

    __tablename__ = "acquisition"
    id: int | None = Field(default=None, primary_key=True)
    run_id: str = Field(foreign_key="run.id", index=True)
    site: str = Field(index=True)
    queue: str
    procs: int
    requested_s: float
    granted_s: float | None = None
    ready_s: float | None = None
    ended_s: float | None = None
    refused: bool = False
    broken: bool = False


class GridRow(SQLModel, table=True):
    """An offer of nodes for a request."""

    __tablename__ = "virtual_grid"
    id: str = Field(primary_key=True)
    name: str
    created: datetime
    offer: str
    gantt: str
    owner: str = OPERATOR


class SiteRow(SQLModel, table=True):
    """A site as in a TOML file; the paths of its histories are in their own table."""

    __tablename__ = "site"
    name: str = Field(primary_key=True)
    document: str


class LinkRow(SQLModel, table=True):
    """A network link between two sites."""

    __tablename__ = "link"
    first_site: str = Field(primary_key=True)
    other: str = Field(primary_key=True)
    document: str


class HistoryRow(SQLModel, table=True):
    """The history of a queue: the original log file. The site may also be one of a file."""

    __tablename__ = "history"
    site: str = Field(primary_key=True)
    queue: str = Field(primary_key=True)
    file: str
    changed: datetime
    body: bytes


class CollectionRow(SQLModel, table=True):
    """End of a site's collected accounting, in seconds since 1970."""

    __tablename__ = "collection"
    site: str = Field(primary_key=True, foreign_key="site.name", ondelete="CASCADE")
    until_s: float


class WorkRow(SQLModel, table=True):
    """Background work of a service: planning a set, or running a run.

    ``state``: queued, taken, done or failed; ``owner`` took it and sends heartbeats (as of
    :class:`LeaseRow`); ``progress``: of planning, as JSON (:mod:`vgrads.kernel.progress`);
    ``tasks``: of a set that is to be planned, None where that was not recorded.
    """

    __tablename__ = "work"
    id: int | None = Field(default=None, primary_key=True)
    kind: str
    set_id: str = Field(foreign_key="workflow_set.id", index=True)
    run_id: str | None = Field(default=None, foreign_key="run.id")
    state: str = Field(default="queued", index=True)
    owner: str = ""
    heartbeats: int = 0
    heartbeat_s: float = 0.0
    beaten_s: float = 0.0
    tries: int = 0
    progress: str = ""
    tasks: int | None = None


class BagRow(SQLModel, table=True):
    """A submitted bag of tasks: waiting, running, done, failed, cancelled or interrupted.

    ``dispatcher``: its dispatcher, ``number``: its number there, and in its folder; ``stop``:
    cancellation reason; ``summary``: its last status, for lists; ``archived_s``: when it was
    archived.
    """

    __tablename__ = "bag"
    id: str = Field(primary_key=True)
    dispatcher: str = Field(index=True)
    number: int
    name: str
    owner: str = Field(default=OPERATOR, index=True)
    state: str = Field(default="waiting", index=True)
    created: datetime
    tasks: int
    stop: str = ""
    summary: str = "{}"
    archived_s: float | None = None


class ManagerRow(SQLModel, table=True):
    """A manager that leases nodes of pools, with its last published state (``entry``); ``at_s``:
    the database's clock."""

    __tablename__ = "manager"
    name: str = Field(primary_key=True)
    owner: str
    at_s: float
    entry: str


class PoolRow(SQLModel, table=True):
    """A pool of nodes, with its last published decision and reasons (``entry``)."""

    __tablename__ = "pool"
    name: str = Field(primary_key=True)
    owner: str
    at_s: float
    entry: str


class MomentRow(SQLModel, table=True):
    """A pool's decided and running workers at an instant, and its managers' capacity: for its
    chart."""

    __tablename__ = "pool_moment"
    id: int | None = Field(default=None, primary_key=True)
    pool: str = Field(index=True)
    at_s: float
    body: str


class TokenRow(SQLModel, table=True):
    """A secret that grants access to the service: only its digest is stored. ``session``: created
    by logging in."""

    __tablename__ = "token"
    id: str = Field(primary_key=True)
    digest: str = Field(index=True, unique=True)
    user: str = Field(index=True)
    scopes: str
    name: str = ""
    created_s: float
    expires_s: float
    session: bool = False


class AccountRow(SQLModel, table=True):
    """The account under which a user's tasks run where agents run as root: a number that no other
    user ever gets, since files on nodes belong to it."""

    __tablename__ = "account"
    user: str = Field(primary_key=True)
    number: int = Field(unique=True)


class AlarmTargetRow(SQLModel, table=True):
    """Where an owner is notified of alarms: an apprise URL, which contains a secret. ``address``:
    its scheme and host, which alone are shown; ``limited``: added over HTTP, so that the operator's
    limits hold."""

    __tablename__ = "alarm_target"
    owner: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    url: str = Field(repr=False)
    address: str
    limited: bool
    created: datetime


class AlarmRulesRow(SQLModel, table=True):
    """Rules of alarms for sets of an owner that state none: JSON, as users write them."""

    __tablename__ = "alarm_rules"
    owner: str = Field(primary_key=True)
    rules: str


class GrantRow(SQLModel, table=True):
    """A real site that the operator opened for a user's tasks."""

    __tablename__ = "site_grant"
    site: str = Field(primary_key=True)
    user: str = Field(primary_key=True)


class KeyRow(SQLModel, table=True):
    """An idempotency key of a user: the request, and the answer."""

    __tablename__ = "idempotency_key"
    user: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    digest: str
    answer: str
    created_s: float


class AuditRow(SQLModel, table=True):
    """A logged change: user, action, time, address, and answer."""

    __tablename__ = "audit"
    id: int | None = Field(default=None, primary_key=True)
    at_s: float = Field(index=True)
    user: str
    action: str
    object: str
    status: int
    address: str = ""


class TaskRecordRow(SQLModel, table=True):
    """Resources used by one attempt of a task, as JSON; ``key`` is its digest. Those of the owner
    ``local``, the operator, serve everybody."""

    __tablename__ = "task_record"
    key: str = Field(primary_key=True)
    owner: str = Field(default=OPERATOR, index=True)
    kind: str = Field(index=True)
    body: str


class LearnedRow(SQLModel, table=True):
    """What was estimated from the task records of an owner, and what owners may learn of each
    other, as JSON."""

    __tablename__ = "learned"
    what: str = Field(primary_key=True)
    body: str


class ScoreRow(SQLModel, table=True):
    """Benchmark score of a machine, or of a site."""

    __tablename__ = "machine_score"
    machine: str = Field(primary_key=True)
    cpu: float
    io: float


class ForecastRow(SQLModel, table=True):
    """A forecast as issued (:class:`vgrads.api.queues.issued.IssuedForecast`), and its outcome.

    ``statements``: bounds, probabilities, and what was promised with a recommended submission, as
    JSON; ``times``: how often the same was issued.
    ``state``: open, scored, or closed without a score. ``covered``: its bound at .95 was not
    exceeded, once that is known; of a promise: it was kept. ``observed_s``: of what it stated, the
    longest wait whose outcome is known; None of our own jobs, of which all is known.
    ``job_submit_s``: of the job that scores it, None where none is known. ``estimate``: "" (not
    queried), none, or stated: the site's own, ``estimate_s``. ``view``: in which the queue was
    learned; empty where that was not recorded.
    """

    __tablename__ = "forecast"
    id: str = Field(primary_key=True)
    issued_s: float = Field(index=True)
    instant_s: float
    submit_in_s: float = 0.0
    site: str = Field(index=True)
    queue: str
    procs: int
    walltime_s: float
    kind: str
    method: str
    model: str
    owner: str = ""
    job: str = Field(default="", index=True)
    history: str = ""
    retrospective: bool = False
    view: str = ""
    times: int = 1
    statements: str
    state: str = Field(default="open", index=True)
    wait_s: float | None = None
    job_submit_s: float | None = None
    observed_s: float | None = None
    scored_s: float | None = None
    covered: bool | None = None
    estimate: str = ""
    estimate_s: float | None = None
