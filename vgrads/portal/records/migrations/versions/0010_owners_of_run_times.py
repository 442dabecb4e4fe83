"""Run times belong to the owner of the run. Those of before belong to the operator, and serve
everybody."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    with op.batch_alter_table("task_record") as table:
        table.add_column(sa.Column("owner", sa.String(), nullable=False, server_default="local"))
        table.create_index("ix_task_record_owner", ["owner"])


def downgrade() -> None:
    op.execute("DELETE FROM task_record WHERE owner <> 'local'")
    with op.batch_alter_table("task_record") as table:
        table.drop_index("ix_task_record_owner")
        table.drop_column("owner")
