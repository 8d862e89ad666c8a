"""The first schema. Before it changes after a release, write out its tables here."""

import uuid

import sqlalchemy as sa
from alembic import op

from lineage_backfill.store.schema import acts, meta, metadata, saved_plans, tokens

revision = "0001_first_release"
down_revision = None


def upgrade() -> None:
    """Create the tables and set the id of the store."""
    later = (acts, tokens, saved_plans)
    tables = [table for table in metadata.sorted_tables if table not in later]
    metadata.create_all(op.get_bind(), tables=tables)
    op.execute(sa.insert(meta).values(name="store_id", value=uuid.uuid4().hex))
