"""What is told to runs whose tasks are released one by one, and what they answer."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "run_message",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("run_id", sa.String(), sa.ForeignKey("run.id"), nullable=False, index=True),
        sa.Column("inward", sa.Boolean(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("run_message")
