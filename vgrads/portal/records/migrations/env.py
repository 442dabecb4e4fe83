"""Alembic environment: runs the steps over the given connection, in its transaction."""

from alembic import context
from sqlmodel import SQLModel

from vgrads.portal.records import tables

assert tables.SetRow.metadata is SQLModel.metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    transactional_ddl=False,  # all in the caller's transaction
)
context.run_migrations()
