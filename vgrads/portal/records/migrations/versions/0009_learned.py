"""What is estimated from all task records, so that questions need not estimate it again."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "learned",
        sa.Column("what", sa.String(), primary_key=True),
        sa.Column("body", sa.String(), nullable=False),
    )
    op.create_index("ix_task_record_kind", "task_record", ["kind"])


def downgrade() -> None:
    op.drop_index("ix_task_record_kind", "task_record")
    op.drop_table("learned")
