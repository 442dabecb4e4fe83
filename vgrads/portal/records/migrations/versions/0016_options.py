"""With which options a set was submitted, for its next plan."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column(
        "workflow_set", sa.Column("options", sa.String(), nullable=False, server_default="{}")
    )


def downgrade() -> None:
    with op.batch_alter_table("workflow_set") as table:
        table.drop_column("options")
