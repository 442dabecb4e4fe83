"""In which view of its queue a forecast was learned; empty for those of before, of which it was not
recorded. Of these, answers of commands at a probability that is not standard leave the scores: the
state of the queue was learned at that probability, and so were the standard quantiles that are
stored with them."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
_STANDARD = (0.5, 0.75, 0.9, 0.95)
_AT_ONCE = 500  # rows of a statement


def upgrade() -> None:
    op.add_column("forecast", sa.Column("view", sa.String(), nullable=False, server_default=""))
    names = ("id", "statements", "kind", "method", "owner", "state")
    table = sa.table("forecast", *map(sa.column, names))
    by_command = (table.c.kind == "bound", table.c.method == "state", table.c.owner == "")
    query = sa.select(table.c.id, table.c.statements).where(*by_command)
    connection = op.get_bind()
    special = [key for key, text in connection.execute(query) if _is_special(text)]
    for first in range(0, len(special), _AT_ONCE):
        chosen = table.c.id.in_(special[first : first + _AT_ONCE])
        connection.execute(sa.update(table).where(chosen).values(state="excluded"))


def downgrade() -> None:
    op.execute(
        "UPDATE forecast SET state = CASE WHEN wait_s IS NULL THEN 'closed' ELSE 'scored' END "
        "WHERE state = 'excluded'"
    )
    with op.batch_alter_table("forecast") as table:
        table.drop_column("view")


def _is_special(statements: str) -> bool:
    """Return whether a bound at another quantile is stated."""
    return any(level not in _STANDARD for level, _ in json.loads(statements)["bounds"])
