"""Targets of alarms."""

import sqlalchemy as sa
from alembic import op

revision = "0302"
down_revision = "0301"


def upgrade() -> None:
    op.create_table(
        "alarm_target",
        sa.Column("owner", sa.String(), primary_key=True, nullable=False),
        sa.Column("name", sa.String(), primary_key=True, nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("limited", sa.Boolean(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("alarm_target")
