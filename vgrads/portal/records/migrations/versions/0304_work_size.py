"""Number of tasks of a set that waits to be planned."""

import sqlalchemy as sa
from alembic import op

revision = "0304"
down_revision = "0303"


def upgrade() -> None:
    op.add_column("work", sa.Column("tasks", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("work", "tasks")
