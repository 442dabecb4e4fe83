"""The first tables."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0301"
down_revision = None

text, real, whole = sa.String(), sa.Float(), sa.Integer()
flag, blob, instant = sa.Boolean(), sa.LargeBinary(), sa.DateTime(timezone=True)


def key(name: str, *more: sa.ForeignKey, kind: sa.types.TypeEngine[Any] = text) -> sa.Column[Any]:
    """Return a column of the primary key."""
    return sa.Column(name, kind, *more, primary_key=True, nullable=False)


def needed(
    name: str,
    kind: sa.types.TypeEngine[Any] = text,
    *more: sa.ForeignKey,
    index: bool = False,
    unique: bool | None = None,
) -> sa.Column[Any]:
    """Return a column that is never null."""
    return sa.Column(name, kind, *more, nullable=False, index=index, unique=unique)


def of_run() -> sa.ForeignKey:
    """Return a reference to a run."""
    return sa.ForeignKey("run.id")


def of_set() -> sa.ForeignKey:
    """Return a reference to a set."""
    return sa.ForeignKey("workflow_set.id")


def _create_sets() -> dict[str, list[sa.schema.SchemaItem]]:
    return {
        "workflow_set": [
            key("id"),
            needed("name"),
            needed("created", instant),
            needed("document"),
            needed("options"),
            needed("plan"),
            needed("gantt"),
            needed("owner", index=True),
            needed("state"),
            needed("problem"),
            needed("revision", whole),
            needed("real", flag),
            needed("planned_s", real),
            needed("summary"),
            sa.Index("ix_workflow_set_list", "created", "id", "name", "owner", "state", "revision"),
        ],
        "plan_archive": [
            key("set_id", of_set()),
            needed("body", blob),
        ],
        "virtual_grid": [
            key("id"),
            needed("name"),
            needed("created", instant),
            needed("offer"),
            needed("gantt"),
            needed("owner"),
        ],
        "idempotency_key": [
            key("user"),
            key("key"),
            needed("digest"),
            needed("answer"),
            needed("created_s", real),
        ],
    }


def _create_runs() -> dict[str, list[sa.schema.SchemaItem]]:
    return {
        "run": [
            key("id"),
            needed("set_id", text, of_set(), index=True),
            needed("state"),
            needed("started", instant),
            needed("outcome"),
            needed("gantt"),
            needed("how"),
            sa.Index("ix_run_list", "set_id", "started", "id", "state"),
        ],
        "run_event": [
            key("run_id", of_run()),
            key("position", kind=whole),
            needed("body"),
        ],
        "run_archive": [
            key("run_id", of_run()),
            key("name"),
            needed("body", blob),
        ],
        "run_lease": [
            key("run_id", of_run()),
            needed("owner"),
            needed("stop"),
            needed("number", whole),
            needed("heartbeats", whole),
            needed("heartbeat_s", real),
            needed("beaten_s", real),
        ],
        "run_message": [
            key("id", kind=whole),
            needed("run_id", text, of_run(), index=True),
            needed("inward", flag),
            needed("body"),
        ],
    }


def _create_work() -> dict[str, list[sa.schema.SchemaItem]]:
    return {
        "work": [
            key("id", kind=whole),
            needed("kind"),
            needed("set_id", text, of_set(), index=True),
            sa.Column("run_id", text, of_run()),
            needed("state", index=True),
            needed("owner"),
            needed("heartbeats", whole),
            needed("heartbeat_s", real),
            needed("beaten_s", real),
            needed("tries", whole),
            needed("progress"),
        ],
        "acquisition": [
            key("id", kind=whole),
            needed("run_id", text, of_run(), index=True),
            needed("site", index=True),
            needed("queue"),
            needed("procs", whole),
            needed("requested_s", real),
            sa.Column("granted_s", real),
            sa.Column("ready_s", real),
            sa.Column("ended_s", real),
            needed("refused", flag),
            needed("broken", flag),
        ],
    }


def _create_bags() -> dict[str, list[sa.schema.SchemaItem]]:
    return {
        "bag": [
            key("id"),
            needed("dispatcher", index=True),
            needed("number", whole),
            needed("name"),
            needed("owner", index=True),
            needed("state", index=True),
            needed("created", instant),
            needed("tasks", whole),
            needed("stop"),
            needed("summary"),
        ],
        "manager": [
            key("name"),
            needed("owner"),
            needed("at_s", real),
            needed("entry"),
        ],
        "pool": [
            key("name"),
            needed("owner"),
            needed("at_s", real),
            needed("entry"),
        ],
        "pool_moment": [
            key("id", kind=whole),
            needed("pool", index=True),
            needed("at_s", real),
            needed("body"),
        ],
    }


def _create_sites() -> dict[str, list[sa.schema.SchemaItem]]:
    return {
        "site": [
            key("name"),
            needed("document"),
        ],
        "link": [
            key("first_site"),
            key("other"),
            needed("document"),
        ],
        "history": [
            key("site"),
            key("queue"),
            needed("file"),
            needed("changed", instant),
            needed("body", blob),
        ],
        "collection": [
            key("site", sa.ForeignKey("site.name", ondelete="CASCADE")),
            needed("until_s", real),
        ],
        "machine_score": [
            key("machine"),
            needed("cpu", real),
            needed("io", real),
        ],
    }


def _create_users() -> dict[str, list[sa.schema.SchemaItem]]:
    return {
        "token": [
            key("id"),
            needed("digest", index=True, unique=True),
            needed("user", index=True),
            needed("scopes"),
            needed("name"),
            needed("created_s", real),
            needed("expires_s", real),
            needed("session", flag),
        ],
        "account": [
            key("user"),
            needed("number", whole, unique=True),
        ],
        "site_grant": [
            key("site"),
            key("user"),
        ],
        "audit": [
            key("id", kind=whole),
            needed("at_s", real, index=True),
            needed("user"),
            needed("action"),
            needed("object"),
            needed("status", whole),
            needed("address"),
        ],
    }


def _run_times() -> dict[str, list[sa.schema.SchemaItem]]:
    return {
        "task_record": [
            key("key"),
            needed("owner", index=True),
            needed("kind", index=True),
            needed("body"),
        ],
        "learned": [
            key("what"),
            needed("body"),
        ],
    }


def _create_forecasts() -> dict[str, list[sa.schema.SchemaItem]]:
    return {
        "forecast": [
            key("id"),
            needed("issued_s", real, index=True),
            needed("instant_s", real),
            needed("submit_in_s", real),
            needed("site", index=True),
            needed("queue"),
            needed("procs", whole),
            needed("walltime_s", real),
            needed("kind"),
            needed("method"),
            needed("model"),
            needed("owner"),
            needed("job", index=True),
            needed("history"),
            needed("retrospective", flag),
            needed("view"),
            needed("times", whole),
            needed("statements"),
            needed("state", index=True),
            sa.Column("wait_s", real),
            sa.Column("job_submit_s", real),
            sa.Column("observed_s", real),
            sa.Column("scored_s", real),
            sa.Column("covered", flag),
            needed("estimate"),
            sa.Column("estimate_s", real),
        ],
    }


def _list_tables() -> dict[str, list[sa.schema.SchemaItem]]:
    parts = (
        _create_sets,
        _create_runs,
        _create_work,
        _create_bags,
        _create_sites,
        _create_users,
        _run_times,
        _create_forecasts,
    )
    return {name: columns for part in parts for name, columns in part().items()}


def upgrade() -> None:
    for name, columns in _list_tables().items():
        op.create_table(name, *columns)


def downgrade() -> None:
    for name in reversed(_list_tables()):
        op.drop_table(name)
