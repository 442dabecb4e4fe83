"""Leases by signs of life and fencing numbers, no wall clocks. A run that is looked after right now
is not to be moved."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_NEW = ("beats", "beat_s", "beaten_s")


def upgrade() -> None:
    for table in ("run_lease", "work"):
        with op.batch_alter_table(table) as batch:
            batch.drop_column("until_s")
            batch.add_column(sa.Column("beats", sa.Integer(), nullable=False, server_default="0"))
            for name in ("beat_s", "beaten_s"):
                batch.add_column(sa.Column(name, sa.Float(), nullable=False, server_default="0"))
    with op.batch_alter_table("run_lease") as batch:
        batch.add_column(sa.Column("number", sa.Integer(), nullable=False, server_default="0"))
    op.execute("UPDATE run_lease SET owner = ''")
    op.execute("UPDATE work SET owner = '', state = 'queued' WHERE state = 'taken'")


def downgrade() -> None:
    with op.batch_alter_table("run_lease") as batch:
        batch.drop_column("number")
    for table in ("run_lease", "work"):
        with op.batch_alter_table(table) as batch:
            for name in _NEW:
                batch.drop_column(name)
            batch.add_column(sa.Column("until_s", sa.Float(), nullable=False, server_default="0"))
