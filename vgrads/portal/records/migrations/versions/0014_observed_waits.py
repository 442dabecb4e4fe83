"""Up to which wait the outcome of a forecast is known: jobs that wait past a bound score it."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("forecast", sa.Column("observed_s", sa.Float(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("forecast") as table:
        table.drop_column("observed_s")
