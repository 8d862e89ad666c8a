"""The alembic revisions of the run store's tables."""
