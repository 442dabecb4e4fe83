"""Managers that can be helped, and pools that decide who gets how many hosts."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    for name in ("manager", "pool"):
        op.create_table(
            name,
            sa.Column("name", sa.String(), primary_key=True),
            sa.Column("owner", sa.String(), nullable=False),
            sa.Column("at_s", sa.Float(), nullable=False),
            sa.Column("entry", sa.String(), nullable=False),
        )
    op.create_table(
        "pool_moment",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("pool", sa.String(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
    )
    op.create_index("ix_pool_moment_pool", "pool_moment", ["pool"])


def downgrade() -> None:
    for name in ("pool_moment", "pool", "manager"):
        op.drop_table(name)
