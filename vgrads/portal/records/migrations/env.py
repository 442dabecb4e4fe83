"""How Alembic runs the steps: over the connection that it is given, in that connection's
transaction."""

from alembic import context
from sqlmodel import SQLModel

from vgrads.portal.records import tables

assert tables.SetRow.metadata is SQLModel.metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    transactional_ddl=False,  # the caller's transaction holds it all
)
context.run_migrations()
