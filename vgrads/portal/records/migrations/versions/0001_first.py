"""The tables before there were versions. A database of that time has some of them or all."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


text, real = sa.String(), sa.Float()
blob, moment = sa.LargeBinary(), sa.DateTime(timezone=True)


def needed(name: str, kind: sa.types.TypeEngine[Any] = text) -> sa.Column[Any]:
    """A column that is never null."""
    return sa.Column(name, kind, nullable=False)


def key(name: str, *more: sa.ForeignKey, kind: sa.types.TypeEngine[Any] = text) -> sa.Column[Any]:
    """A column of the primary key."""
    return sa.Column(name, kind, *more, primary_key=True, nullable=False)


def of_run() -> sa.ForeignKey:
    """To a run."""
    return sa.ForeignKey("run.id")


def of_site() -> sa.ForeignKey:
    """To a site, with which it goes."""
    return sa.ForeignKey("site.name", ondelete="CASCADE")


def _tables() -> dict[str, list[sa.schema.SchemaItem]]:
    return {
        "workflow_set": [
            key("id"),
            needed("name"),
            needed("created", moment),
            needed("document"),
            needed("plan"),
            needed("gantt"),
        ],
        "run": [
            key("id"),
            sa.Column("set_id", text, sa.ForeignKey("workflow_set.id"), nullable=False, index=True),
            needed("state"),
            needed("started", moment),
            needed("outcome"),
            needed("gantt"),
        ],
        "run_event": [key("run_id", of_run()), key("position", kind=sa.Integer()), needed("body")],
        "run_archive": [key("run_id", of_run()), key("name"), needed("body", blob)],
        "run_lease": [
            key("run_id", of_run()),
            needed("owner"),
            needed("until_s", real),
            needed("stop"),
        ],
        "acquisition": [
            key("id", kind=sa.Integer()),
            sa.Column("run_id", text, of_run(), nullable=False, index=True),
            sa.Column("site", text, nullable=False, index=True),
            needed("queue"),
            needed("procs", sa.Integer()),
            needed("requested_s", real),
            sa.Column("granted_s", real),
            sa.Column("ready_s", real),
            sa.Column("ended_s", real),
            needed("refused", sa.Boolean()),
            needed("broken", sa.Boolean()),
        ],
        "virtual_grid": [
            key("id"),
            needed("name"),
            needed("created", moment),
            needed("offer"),
            needed("gantt"),
        ],
        "site": [key("name"), needed("document")],
        "link": [key("one"), key("other"), needed("document")],
        "history": [
            key("site", of_site()),
            key("queue"),
            needed("file"),
            needed("changed", moment),
            needed("body", blob),
        ],
        "collection": [key("site", of_site()), needed("until_s", real)],
    }


def upgrade() -> None:
    there = set(sa.inspect(op.get_bind()).get_table_names())
    for name, columns in _tables().items():
        if name not in there:
            op.create_table(name, *columns)


def downgrade() -> None:
    for name in reversed(_tables()):
        op.drop_table(name)
