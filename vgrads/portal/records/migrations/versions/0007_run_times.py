"""What tasks took, and what benchmarks say of machines."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "task_record",
        sa.Column("key", sa.String(), primary_key=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
    )
    op.create_table(
        "machine_score",
        sa.Column("machine", sa.String(), primary_key=True),
        sa.Column("cpu", sa.Float(), nullable=False),
        sa.Column("io", sa.Float(), nullable=False),
    )


def downgrade() -> None:
    for name in ("machine_score", "task_record"):
        op.drop_table(name)
