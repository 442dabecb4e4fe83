"""Forecasts as issued, and their outcomes."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
_TEXT, _NUMBER = sa.String(), sa.Float()


def upgrade() -> None:
    op.create_table(
        "forecast",
        sa.Column("id", _TEXT, primary_key=True),
        *(sa.Column(n, _NUMBER, nullable=False) for n in ("issued_s", "instant_s", "submit_in_s")),
        sa.Column("site", _TEXT, nullable=False),
        sa.Column("queue", _TEXT, nullable=False),
        sa.Column("procs", sa.Integer(), nullable=False),
        sa.Column("walltime_s", _NUMBER, nullable=False),
        *(
            sa.Column(name, _TEXT, nullable=False)
            for name in ("kind", "method", "model", "owner", "job", "history")
        ),
        sa.Column("retrospective", sa.Boolean(), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.Column("statements", _TEXT, nullable=False),
        sa.Column("state", _TEXT, nullable=False),
        *(sa.Column(n, _NUMBER, nullable=True) for n in ("wait_s", "job_submit_s", "scored_s")),
        sa.Column("covered", sa.Boolean(), nullable=True),
        sa.Column("estimate", _TEXT, nullable=False),
        sa.Column("estimate_s", _NUMBER, nullable=True),
    )
    for name in ("issued_s", "site", "job", "state"):
        op.create_index(f"ix_forecast_{name}", "forecast", [name])


def downgrade() -> None:
    op.drop_table("forecast")
