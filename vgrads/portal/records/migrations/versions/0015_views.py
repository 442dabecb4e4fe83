"""In which view of its queue a forecast was learned; empty for those of before, of which it was not
recorded."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("forecast", sa.Column("view", sa.String(), nullable=False, server_default=""))


def downgrade() -> None:
    with op.batch_alter_table("forecast") as table:
        table.drop_column("view")
