"""Progress of planning; indexes from which lists of all sets are read without their plans."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
_SETS = ["created", "id", "name", "owner", "state", "revision"]
_RUNS = ["set_id", "started", "id", "state"]


def upgrade() -> None:
    op.add_column("work", sa.Column("progress", sa.String(), nullable=False, server_default=""))
    op.create_index("ix_workflow_set_list", "workflow_set", _SETS)
    op.create_index("ix_run_list", "run", _RUNS)


def downgrade() -> None:
    op.drop_index("ix_run_list", "run")
    op.drop_index("ix_workflow_set_list", "workflow_set")
    with op.batch_alter_table("work") as table:
        table.drop_column("progress")
