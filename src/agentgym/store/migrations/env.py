"""Runs the migrations on the connection, and in the transaction, of the store."""

from alembic import context

from agentgym.store.schema import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
