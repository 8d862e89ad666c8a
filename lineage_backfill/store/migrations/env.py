"""Runs revisions on the connection, and in the transaction, of the run store."""

from alembic import context

from lineage_backfill.store.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
context.run_migrations()
