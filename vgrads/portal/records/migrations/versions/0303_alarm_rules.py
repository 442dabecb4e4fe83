"""Rules of alarms by owner."""

import sqlalchemy as sa
from alembic import op

revision = "0303"
down_revision = "0302"


def upgrade() -> None:
    op.create_table(
        "alarm_rules",
        sa.Column("owner", sa.String(), primary_key=True, nullable=False),
        sa.Column("rules", sa.String(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("alarm_rules")
