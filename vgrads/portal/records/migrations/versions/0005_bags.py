"""Bags of tasks."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_TEXTS = {
    "dispatcher": None,
    "name": None,
    "owner": "local",
    "state": "waiting",
    "stop": "",
    "summary": "{}",
}
_INDEXED = ("dispatcher", "owner", "state")


def upgrade() -> None:
    op.create_table(
        "bag",
        sa.Column("id", sa.String(), primary_key=True),
        *(
            sa.Column(name, sa.String(), nullable=False, server_default=text)
            for name, text in _TEXTS.items()
        ),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("tasks", sa.Integer(), nullable=False),
    )
    for name in _INDEXED:
        op.create_index(f"ix_bag_{name}", "bag", [name])


def downgrade() -> None:
    op.drop_table("bag")
