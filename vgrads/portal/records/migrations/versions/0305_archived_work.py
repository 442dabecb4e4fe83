"""When sets and bags were archived; the index of the list of sets has it, too."""

import sqlalchemy as sa
from alembic import op

revision = "0305"
down_revision = "0304"
_INDEX, _LISTED = "ix_workflow_set_list", ["created", "id", "name", "owner", "state", "revision"]


def upgrade() -> None:
    for table in ("workflow_set", "bag"):
        op.add_column(table, sa.Column("archived_s", sa.Float(), nullable=True))
    op.drop_index(_INDEX, "workflow_set")
    op.create_index(_INDEX, "workflow_set", [*_LISTED, "archived_s"])


def downgrade() -> None:
    op.drop_index(_INDEX, "workflow_set")
    for table in ("workflow_set", "bag"):
        op.drop_column(table, "archived_s")
    op.create_index(_INDEX, "workflow_set", _LISTED)
