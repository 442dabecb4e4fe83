"""Numbers of the accounts of users' tasks. Users of before keep theirs, since files on nodes belong
to it: a part of a digest of the name. Of two users with the same, the one who was there first keeps
it; the other gets another one."""

import hashlib
import itertools
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
_NOBODY = ("", "-", "local")


def upgrade() -> None:
    table = op.create_table(
        "account",
        sa.Column("user", sa.String(), primary_key=True, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, unique=True),
    )
    rows: list[dict[str, object]] = []
    used: set[int] = set()
    for user in _users():
        numbers = (_number(user, turn) for turn in itertools.count())
        number = next(number for number in numbers if number not in used)
        used.add(number)
        rows.append({"user": user, "number": number})
    if rows:
        op.bulk_insert(table, rows)


def downgrade() -> None:
    op.drop_table("account")


def _users() -> list[str]:
    """Return the users, those who were there first before others."""
    first: dict[str, float] = {}
    connection = op.get_bind()
    token = sa.table("token", sa.column("user"), sa.column("created_s"))
    query = sa.select(token.c.user, sa.func.min(token.c.created_s)).group_by(token.c.user)
    came = [(user, created_s) for user, created_s in connection.execute(query)]
    for name in ("workflow_set", "bag"):
        table = sa.table(name, sa.column("owner"), sa.column("created", sa.DateTime()))
        query = sa.select(table.c.owner, sa.func.min(table.c.created)).group_by(table.c.owner)
        came += [(owner, _seconds(created)) for owner, created in connection.execute(query)]
    for user, at_s in came:
        if user not in _NOBODY:
            first[user] = min(at_s, first.get(user, at_s))
    return sorted(first, key=lambda user: (first[user], user))


def _seconds(instant: datetime) -> float:
    return instant.replace(tzinfo=UTC).timestamp()


def _number(user: str, turn: int) -> int:
    """Return the number that vgrads gave a user so far (``turn`` 0), or another one."""
    text = f"{user}\0{turn}" if turn else user
    return 0x70000000 + int(hashlib.sha256(text.encode()).hexdigest()[:7], 16) % 0x0FFF0000
