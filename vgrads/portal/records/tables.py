"""The tables of the database. What changes here changes by a migration (:mod:`portal.migrate`)."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Field, SQLModel


class SetRow(SQLModel, table=True):
    """A workflow set that was handed over, as it was written, with its plan.

    ``state``: planning, planned or failed (``problem`` says why); ``revision`` counts its plans;
    ``summary`` is of the newest one what lists show; ``real``: on sites that were opened for its
    owner.
    """

    __tablename__ = "workflow_set"
    id: str = Field(primary_key=True)
    name: str
    created: datetime
    document: str
    plan: str
    gantt: str
    owner: str = Field(default="local", index=True)
    state: str = "planned"
    problem: str = ""
    revision: int = 1
    real: bool = False
    planned_s: float = 0.0
    summary: str = "{}"


class PlanRow(SQLModel, table=True):
    """The newest plan of a set with what it was made from, archived to be run as it was shown."""

    __tablename__ = "plan_archive"
    set_id: str = Field(foreign_key="workflow_set.id", primary_key=True)
    body: bytes


class RunRow(SQLModel, table=True):
    """A run of a set: running, kept, broken, cancelled, failed or interrupted; ``how`` it was asked
    for."""

    __tablename__ = "run"
    id: str = Field(primary_key=True)
    set_id: str = Field(foreign_key="workflow_set.id", index=True)
    state: str
    started: datetime
    outcome: str = "{}"
    gantt: str = "{}"
    how: str = "{}"


class EventRow(SQLModel, table=True):
    """One event of a run's journal."""

    __tablename__ = "run_event"
    run_id: str = Field(foreign_key="run.id", primary_key=True)
    position: int = Field(primary_key=True)
    body: str


class ArchiveRow(SQLModel, table=True):
    """A value that a run is resumed from: what it was started with, and its books."""

    __tablename__ = "run_archive"
    run_id: str = Field(foreign_key="run.id", primary_key=True)
    name: str = Field(primary_key=True)
    body: bytes


class LeaseRow(SQLModel, table=True):
    """Who looks after a run, and why it is to stop, if it is; stays when nobody does (``owner``
    empty).

    ``number`` goes up with each manager: what an older one writes is refused. ``beats``,
    ``beat_s``, ``beaten_s``: signs of life, how many, the owner's monotonic clock, the database's
    own.
    """

    __tablename__ = "run_lease"
    run_id: str = Field(foreign_key="run.id", primary_key=True)
    owner: str
    stop: str = ""
    number: int = 0
    beats: int = 0
    beat_s: float = 0.0
    beaten_s: float = 0.0


class MessageRow(SQLModel, table=True):
    """Between a run and whoever releases its tasks: told to the run (``inward``), or answered by
    it, as JSON."""

    __tablename__ = "run_message"
    id: int | None = Field(default=None, primary_key=True)
    run_id: str = Field(foreign_key="run.id", index=True)
    inward: bool
    body: str


class AcquisitionRow(SQLModel, table=True):
    """A slot of a run from request to end; what binding overhead and rates are learned from."""

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
    """An offer of nodes that was made for a request."""

    __tablename__ = "virtual_grid"
    id: str = Field(primary_key=True)
    name: str
    created: datetime
    offer: str
    gantt: str
    owner: str = "local"


class SiteRow(SQLModel, table=True):
    """A site as it would stand in a TOML file; the paths of its histories are in their own
    table."""

    __tablename__ = "site"
    name: str = Field(primary_key=True)
    document: str


class LinkRow(SQLModel, table=True):
    """A network link between two sites."""

    __tablename__ = "link"
    one: str = Field(primary_key=True)
    other: str = Field(primary_key=True)
    document: str


class HistoryRow(SQLModel, table=True):
    """The history of a queue: a log file as it was given. The site may also be one of a file."""

    __tablename__ = "history"
    site: str = Field(primary_key=True)
    queue: str = Field(primary_key=True)
    file: str
    changed: datetime
    body: bytes


class CollectionRow(SQLModel, table=True):
    """How far a site's accounting has been collected, in seconds since 1970."""

    __tablename__ = "collection"
    site: str = Field(primary_key=True, foreign_key="site.name", ondelete="CASCADE")
    until_s: float


class WorkRow(SQLModel, table=True):
    """Work that a service does in the background: planning a set, or carrying a run out.

    ``state``: queued, taken, done or failed; ``owner`` took it and gives signs of life (as of
    :class:`LeaseRow`).
    """

    __tablename__ = "work"
    id: int | None = Field(default=None, primary_key=True)
    kind: str
    set_id: str = Field(foreign_key="workflow_set.id", index=True)
    run_id: str | None = Field(default=None, foreign_key="run.id")
    state: str = Field(default="queued", index=True)
    owner: str = ""
    beats: int = 0
    beat_s: float = 0.0
    beaten_s: float = 0.0
    tries: int = 0


class BagRow(SQLModel, table=True):
    """A bag of tasks that was handed over: waiting, running, done, failed, cancelled or
    interrupted.

    ``dispatcher``: whose it is, ``number``: its number there, and in its folder; ``stop``: why it
    is to be cancelled; ``summary``: how it stood when it was looked at last, what lists show.
    """

    __tablename__ = "bag"
    id: str = Field(primary_key=True)
    dispatcher: str = Field(index=True)
    number: int
    name: str
    owner: str = Field(default="local", index=True)
    state: str = Field(default="waiting", index=True)
    created: datetime
    tasks: int
    stop: str = ""
    summary: str = "{}"


class ManagerRow(SQLModel, table=True):
    """A manager that takes hosts of pools, as it said last how it stands (``entry``); ``at_s``: the
    database's clock."""

    __tablename__ = "manager"
    name: str = Field(primary_key=True)
    owner: str
    at_s: float
    entry: str


class PoolRow(SQLModel, table=True):
    """A pool of hosts, as it said last what it has decided and why (``entry``)."""

    __tablename__ = "pool"
    name: str = Field(primary_key=True)
    owner: str
    at_s: float
    entry: str


class MomentRow(SQLModel, table=True):
    """What a pool had decided and had running at an instant, and how much its managers could use:
    for its picture."""

    __tablename__ = "pool_moment"
    id: int | None = Field(default=None, primary_key=True)
    pool: str = Field(index=True)
    at_s: float
    body: str


class TokenRow(SQLModel, table=True):
    """A secret that opens the service: only its digest is kept. ``session``: made by logging in."""

    __tablename__ = "token"
    id: str = Field(primary_key=True)
    digest: str = Field(index=True, unique=True)
    user: str = Field(index=True)
    scopes: str
    name: str = ""
    created_s: float
    expires_s: float
    session: bool = False


class GrantRow(SQLModel, table=True):
    """A real site that the operator opened for a user's tasks."""

    __tablename__ = "site_grant"
    site: str = Field(primary_key=True)
    user: str = Field(primary_key=True)


class KeyRow(SQLModel, table=True):
    """An idempotency key of a user: what was asked with it, and what was answered."""

    __tablename__ = "idempotency_key"
    user: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    digest: str
    answer: str
    created_s: float


class AuditRow(SQLModel, table=True):
    """Who did what, when, from where, and how it was answered."""

    __tablename__ = "audit"
    id: int | None = Field(default=None, primary_key=True)
    at_s: float = Field(index=True)
    user: str
    action: str
    object: str
    status: int
    address: str = ""


class TaskRecordRow(SQLModel, table=True):
    """What one attempt of a task took, as JSON; ``key`` is its digest."""

    __tablename__ = "task_record"
    key: str = Field(primary_key=True)
    kind: str
    body: str


class ScoreRow(SQLModel, table=True):
    """What a benchmark says of a machine, or of a site."""

    __tablename__ = "machine_score"
    machine: str = Field(primary_key=True)
    cpu: float
    io: float
