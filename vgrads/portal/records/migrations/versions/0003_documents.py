"""Plans, books and set-ups of runs become documents: pickles name the places of classes, which
move.

Down again there is nothing to do: vgrads 0.1 says of a document that a newer version wrote it, and
plans anew.
"""

import sqlalchemy as sa
from alembic import op

from vgrads.portal.records.migrations.pickles import as_document

revision = "0003"
down_revision = "0002"

_RUNS = sa.table(
    "run_archive", sa.column("run_id"), sa.column("name"), sa.column("body", sa.LargeBinary)
)
_PLANS = sa.table("plan_archive", sa.column("set_id"), sa.column("body", sa.LargeBinary))


def upgrade() -> None:
    for table in (_RUNS, _PLANS):
        keys = [column for column in table.c if column.name != "body"]
        connection = op.get_bind()
        for key in connection.execute(sa.select(*keys)).all():  # one body at a time: they are large
            here = sa.and_(*(column == value for column, value in zip(keys, key, strict=True)))
            body = connection.execute(sa.select(table.c.body).where(here)).scalar_one()
            document = as_document(bytes(body))
            if document is not None:
                connection.execute(sa.update(table).where(here).values(body=document))


def downgrade() -> None:
    pass
