"""What the service needs: owners, states and revisions of sets, background work, tokens, grants,
audit."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_HISTORY = ("site", "queue", "file", "changed", "body")


def _column(name: str, kind: sa.types.TypeEngine[Any], default: str) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False, server_default=default)


def upgrade() -> None:
    binary = op.get_bind().dialect.name == "postgresql"
    for column in (
        _column("owner", sa.String(), "local"),
        _column("state", sa.String(), "planned"),
        _column("problem", sa.String(), ""),
        _column("revision", sa.Integer(), "1"),
        _column("real", sa.Boolean(), "false" if binary else "0"),
        _column("planned_s", sa.Float(), "0"),
        _column("summary", sa.String(), "{}"),
    ):
        op.add_column("workflow_set", column)
    op.create_index("ix_workflow_set_owner", "workflow_set", ["owner"])
    op.add_column("run", _column("how", sa.String(), "{}"))
    op.add_column("virtual_grid", _column("owner", sa.String(), "local"))
    _rebuild_history(with_site=False)
    _create()


def downgrade() -> None:
    for name in ("audit", "idempotency_key", "site_grant", "token", "work", "plan_archive"):
        op.drop_table(name)
    op.execute("DELETE FROM history WHERE site NOT IN (SELECT name FROM site)")
    _rebuild_history(with_site=True)
    op.drop_column("virtual_grid", "owner")
    op.drop_column("run", "how")
    op.drop_index("ix_workflow_set_owner", "workflow_set")
    for name in ("owner", "state", "problem", "revision", "real", "planned_s", "summary"):
        op.drop_column("workflow_set", name)


def _rebuild_history(with_site: bool) -> None:
    """Histories with or without the rule that their site stands in the database."""
    reference = [sa.ForeignKey("site.name", ondelete="CASCADE")] if with_site else []
    op.create_table(
        "history_anew",
        sa.Column("site", sa.String(), *reference, nullable=False),
        sa.Column("queue", sa.String(), nullable=False),
        sa.Column("file", sa.String(), nullable=False),
        sa.Column("changed", sa.DateTime(timezone=True), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("site", "queue"),
    )
    columns = ", ".join(_HISTORY)
    op.execute(f"INSERT INTO history_anew ({columns}) SELECT {columns} FROM history")
    op.drop_table("history")
    op.rename_table("history_anew", "history")


def _create() -> None:
    op.create_table(
        "plan_archive",
        sa.Column("set_id", sa.String(), sa.ForeignKey("workflow_set.id"), primary_key=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "work",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column(
            "set_id", sa.String(), sa.ForeignKey("workflow_set.id"), nullable=False, index=True
        ),
        sa.Column("run_id", sa.String(), sa.ForeignKey("run.id")),
        sa.Column("state", sa.String(), nullable=False, index=True),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("until_s", sa.Float(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
    )
    op.create_table(
        "token",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("digest", sa.String(), nullable=False, index=True, unique=True),
        sa.Column("user", sa.String(), nullable=False, index=True),
        sa.Column("scopes", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_s", sa.Float(), nullable=False),
        sa.Column("expires_s", sa.Float(), nullable=False),
        sa.Column("session", sa.Boolean(), nullable=False),
    )
    op.create_table(
        "site_grant",
        sa.Column("site", sa.String(), primary_key=True),
        sa.Column("user", sa.String(), primary_key=True),
    )
    op.create_table(
        "idempotency_key",
        sa.Column("user", sa.String(), primary_key=True),
        sa.Column("key", sa.String(), primary_key=True),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("answer", sa.String(), nullable=False),
        sa.Column("created_s", sa.Float(), nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("at_s", sa.Float(), nullable=False, index=True),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("object", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
    )
